// What    The version of the compressed-tensors library that wrote a file, as its config names it. Some releases changed
//         how weights are stored, and no tensor shows it.
// Names   "0.13.0", "0.14.1+cu12" are releases; "0.13.1.a20260225", "0.14.0rc1", "0.18.1.dev3", "0.13.0.post2" builds from
//         between two. A build is named after the last release with one more patch, or after the next one.
// Threads Pure functions.
#ifndef GEMMD_CORE_CHECKPOINT_COMPRESSED_VERSION_H_
#define GEMMD_CORE_CHECKPOINT_COMPRESSED_VERSION_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gemmd {

class CompressedVersion {
 public:
  CompressedVersion() = default;  // none is named
  // "", "abc" and "1" are versions of which nothing is known.
  explicit CompressedVersion(absl::string_view text);

  // Whether a file of it is stored as since release 0.`minor`.0, minor >= 1. nullopt: as before or as since, which its
  // name does not tell.
  std::optional<bool> IsSince(int minor) const;

  // BAD_CHECKPOINT where IsSince(minor) is nullopt: that `what` was changed then, and what to do.
  absl::Status CannotTell(int minor, absl::string_view what) const;

 private:
  std::string text_;
  bool known_ = false;
  bool is_release_ = false;
  int major_ = 0;
  int minor_ = 0;
  int patch_ = 0;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_COMPRESSED_VERSION_H_

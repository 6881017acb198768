// What    Many cache entries as one file, to carry a warm cache to another machine.
// Layout  Little-endian: magic "GEMMDBND", u32 schema, u32 number of entries; per entry a u64 size
//         and the entry (cache_entry.h); then SHA-256 over everything before it.
// Errors  DataLoss BUNDLE_DAMAGED: short, long, changed, or an entry in it that is not whole.
// Memory  Writing and reading hold the bundle once: entries are appended to it one by one, and looked at inside it.
// Threads Pure functions; a writer belongs to one thread.
#ifndef GEMMD_KERNELS_JIT_BUNDLE_H_
#define GEMMD_KERNELS_JIT_BUNDLE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd::jit {

// Of the first bytes of what may become a bundle, however few: whether they can be a bundle's.
absl::Status CheckBundleStart(absl::string_view start);

// Of so many entries with so many bytes.
uint64_t BundleBytes(uint64_t entries, uint64_t entry_bytes);

class BundleWriter {
 public:
  // `expected_bytes` of the whole bundle; one that becomes larger moves in memory.
  explicit BundleWriter(uint64_t expected_bytes);
  void Add(absl::string_view entry);
  uint32_t entries() const { return entries_; }
  uint64_t bytes() const;  // of the bundle, if no entry follows
  std::string Finish() &&;

 private:
  uint32_t entries_ = 0;
  std::string bundle_;
};

// (key, entry) in the order of the bundle, every entry verified. The entries lie in `bundle`.
absl::StatusOr<std::vector<std::pair<std::string, absl::string_view>>> DecodeBundle(
    absl::string_view bundle);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_BUNDLE_H_

// What    A file that appears whole or not at all: the bytes go to a new file in the folder of `path`,
//         Commit syncs it and gives it its name. Without Commit nothing of it stays: it has no name before, where the
//         file system can do that (O_TMPFILE). Elsewhere it is PATH.part-PID, which a killed process leaves.
// Errors  InvalidArgument BAD_ARGUMENT: the file exists and is not to be replaced. Unavailable: the system
//         refused; the message has the path and its words.
// Threads One thread.
#ifndef GEMMD_CLIENT_GEMMCTL_EXPORT_FILE_H_
#define GEMMD_CLIENT_GEMMCTL_EXPORT_FILE_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gemmd::gemmctl {

class ExportFile {
 public:
  static absl::StatusOr<ExportFile> Create(const std::string& path, bool replace);
  ExportFile(ExportFile&& other) noexcept
      : path_(std::move(other.path_)),
        part_(std::move(other.part_)),
        replace_(other.replace_),
        descriptor_(std::exchange(other.descriptor_, -1)) {}
  ExportFile& operator=(ExportFile&&) = delete;
  ~ExportFile();

  absl::Status Write(const void* data, size_t size);
  // Also refuses a file that came into being meanwhile, unless it is to be replaced.
  absl::Status Commit();

 private:
  ExportFile(std::string path, std::string part, bool replace, int descriptor)
      : path_(std::move(path)),
        part_(std::move(part)),
        replace_(replace),
        descriptor_(descriptor) {}

  absl::Status NameFirst();

  std::string path_;
  std::string part_;  // its name until Commit; empty = it has none
  bool replace_;
  int descriptor_;
};

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_EXPORT_FILE_H_

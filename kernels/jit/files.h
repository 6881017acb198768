// What    Small pieces of file handling that the parts of the disk tier share.
// Threads Any.
#ifndef GEMMD_KERNELS_JIT_FILES_H_
#define GEMMD_KERNELS_JIT_FILES_H_

#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/jit/file_calls.h"

namespace gemmd::jit {

// Owner of one file descriptor; O_CLOEXEC and O_NOFOLLOW are added to `flags`.
class File {
 public:
  File(const std::filesystem::path& path, int flags, mode_t mode = 0,
       const FileCalls& calls = SystemFileCalls());
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  const int fd_;
};

std::string ErrnoText();

// The whole regular file, at most `limit` bytes; nothing when it is something else.
std::optional<std::string> ReadWhole(const File& file, uint64_t limit);
// At most `limit` bytes from the start of the regular file.
std::optional<std::string> ReadFront(const File& file, uint64_t limit);

bool WriteAll(const FileCalls& calls, int fd, absl::string_view bytes);

// Whether `path` still names the file behind `fd`.
bool SameFile(int fd, const std::filesystem::path& path);

// Removes the file when nobody holds a flock on it.
void RemoveIfUnowned(const std::filesystem::path& path);

// `bytes` as the file `name` of `directory`: written to a temporary file (held by a flock), synced,
// renamed, the directory synced. At every moment the name means the whole old file or the whole new
// one. Unavailable CACHE_WRITE.
absl::Status Publish(const FileCalls& calls, const std::filesystem::path& directory,
                     const std::string& name, absl::string_view bytes);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_FILES_H_

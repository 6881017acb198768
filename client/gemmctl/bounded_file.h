// What    A file of ours that is read: a regular file, and no more of it than asked for, so that neither a
//         device without end nor a pipe without a writer holds the tool up or eats its memory.
// Errors  NotFound BAD_FILE: it cannot be opened. InvalidArgument BAD_FILE: it is no regular file, or it has
//         fewer bytes, or more than the limit. Unavailable BAD_FILE: the system cannot read it.
// Threads One thread.
#ifndef GEMMD_CLIENT_GEMMCTL_BOUNDED_FILE_H_
#define GEMMD_CLIENT_GEMMCTL_BOUNDED_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace gemmd::gemmctl {

class BoundedFile {
 public:
  static absl::StatusOr<BoundedFile> Open(const std::string& path);
  BoundedFile(BoundedFile&& other) noexcept
      : path_(std::move(other.path_)),
        size_(other.size_),
        descriptor_(std::exchange(other.descriptor_, -1)) {}
  BoundedFile& operator=(BoundedFile&&) = delete;
  ~BoundedFile();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // when it was opened
  absl::StatusOr<std::string> Read(uint64_t offset, uint64_t size) const;

 private:
  BoundedFile(std::string path, uint64_t size, int descriptor)
      : path_(std::move(path)), size_(size), descriptor_(descriptor) {}

  std::string path_;
  uint64_t size_;
  int descriptor_;
};

// All of a text of at most `limit` bytes.
absl::StatusOr<std::string> ReadText(const std::string& path, uint64_t limit);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_BOUNDED_FILE_H_

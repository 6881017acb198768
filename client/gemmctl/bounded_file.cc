#include "client/gemmctl/bounded_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

absl::Status Bad(absl::StatusCode code, const std::string& path, absl::string_view fault) {
  return Error(code, "BAD_FILE", absl::StrCat(path, ": ", fault));
}

}  // namespace

absl::StatusOr<BoundedFile> BoundedFile::Open(const std::string& path) {
  // Without O_NONBLOCK a pipe that nobody writes would be waited for.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return Bad(absl::StatusCode::kNotFound, path,
               absl::StrCat("cannot be read: ", std::strerror(errno)));
  }
  struct stat info {};
  const bool is_file = fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  BoundedFile file(path, is_file ? static_cast<uint64_t>(info.st_size) : 0, descriptor);
  if (!is_file) return Bad(absl::StatusCode::kInvalidArgument, path, "is no regular file");
  return file;
}

BoundedFile::~BoundedFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<std::string> BoundedFile::Read(uint64_t offset, uint64_t size) const {
  if (offset > size_ || size > size_ - offset) {
    return Bad(absl::StatusCode::kInvalidArgument, path_,
               absl::StrCat("has ", size_, " bytes, ", offset, " + ", size, " are needed"));
  }
  std::string bytes(size, '\0');
  for (uint64_t done = 0; done < size;) {
    const ssize_t count =
        pread(descriptor_, bytes.data() + done, size - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return Bad(absl::StatusCode::kUnavailable, path_,
                 absl::StrCat("cannot be read: ", std::strerror(errno)));
    }
    if (count == 0) {
      return Bad(absl::StatusCode::kInvalidArgument, path_, "became shorter while it was read");
    }
    done += static_cast<uint64_t>(count);
  }
  return bytes;
}

absl::StatusOr<std::string> ReadText(const std::string& path, uint64_t limit) {
  GEMMD_ASSIGN_OR_RETURN(const BoundedFile file, BoundedFile::Open(path));
  if (file.size() > limit) {
    return Bad(absl::StatusCode::kInvalidArgument, path,
               absl::StrCat("has ", file.size(), " bytes, at most ", limit, " are read"));
  }
  return file.Read(0, file.size());
}

}  // namespace gemmd::gemmctl

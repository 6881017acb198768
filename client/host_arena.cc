#include "client/host_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd::client {
namespace {

absl::Status SystemError(const char* call, uint64_t bytes) {
  return Error(absl::StatusCode::kResourceExhausted, "HOST_MEMORY",
               absl::StrCat(call, " for ", bytes, " bytes: ", std::strerror(errno)));
}

absl::Status SizeAndSeal(int fd, uint64_t bytes) {
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return SystemError("ftruncate", bytes);
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return SystemError("fcntl(F_ADD_SEALS)", bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<HostArena>> HostArena::Create(uint64_t bytes,
                                                             const std::string& name) {
  if (bytes == 0 || bytes > uint64_t{1} << 62) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_SIZE",
                 absl::StrCat("host memory of ", bytes, " bytes cannot be shared"));
  }
  const int fd = memfd_create(name.substr(0, 200).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return SystemError("memfd_create", bytes);
  if (absl::Status sized = SizeAndSeal(fd, bytes); !sized.ok()) {
    close(fd);
    return sized;
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    absl::Status failed = SystemError("mmap", bytes);
    close(fd);
    return failed;
  }
  return std::shared_ptr<HostArena>(new HostArena(fd, static_cast<std::byte*>(data), bytes));
}

HostArena::~HostArena() {
  munmap(data_, size_);
  close(fd_);
}

}  // namespace gemmd::client

#include "server/instance_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/exit_codes.h"
#include "server/paths.h"
#include "server/unix_socket.h"

namespace gemmd {
namespace {

absl::Status AlreadyRunning(const std::string& socket_path, absl::string_view who) {
  return Error(absl::StatusCode::kFailedPrecondition, kAlreadyRunning,
               absl::StrCat("another instance is running: ", who, " ", socket_path));
}

// Whether some process accepts connections at `path`.
bool IsLive(const std::string& path) {
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) continue;
    const sockaddr_un address = UnixAddress(path);
    const bool connected =
        connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
        errno == EAGAIN;
    close(fd);
    if (connected) return true;
  }
  return false;
}

absl::Status ClearPath(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus()
                           : SystemError(errno, absl::StrCat("cannot examine ", path));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return Error(absl::StatusCode::kUnavailable, kCannotCreate,
                 absl::StrCat("cannot create socket ", path, ": the path is a ",
                              S_ISDIR(info.st_mode) ? "directory" : "file that is no socket"));
  }
  if (IsLive(path)) return AlreadyRunning(path, "a process listens at");
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return SystemError(errno, absl::StrCat("cannot remove the stale socket ", path));
  }
  return absl::OkStatus();
}

}  // namespace

InstanceLock::InstanceLock(std::string socket_path, int fd)
    : socket_path_(std::move(socket_path)), fd_(fd) {}

InstanceLock::InstanceLock(InstanceLock&& other) noexcept
    : socket_path_(std::move(other.socket_path_)), fd_(std::exchange(other.fd_, -1)) {}

InstanceLock::~InstanceLock() {
  if (fd_ < 0) return;
  unlink(socket_path_.c_str());
  close(fd_);
}

absl::StatusOr<InstanceLock> InstanceLock::Acquire(const std::string& socket_path) {
  GEMMD_RETURN_IF_ERROR(MakeDirectory(std::filesystem::path(socket_path).parent_path()));
  const std::string lock_path = socket_path + ".lock";
  const int fd = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return SystemError(errno, absl::StrCat("cannot open ", lock_path));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    close(fd);
    if (error == EWOULDBLOCK) return AlreadyRunning(socket_path, "it holds the lock of");
    return SystemError(error, absl::StrCat("cannot lock ", lock_path));
  }
  if (const absl::Status status = ClearPath(socket_path); !status.ok()) {
    close(fd);
    return status;
  }
  return InstanceLock(socket_path, fd);
}

}  // namespace gemmd

#include "client/gemmctl/daemon_process.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/time/clock.h"

namespace gemmd::gemmctl {
namespace {

// The number of the process that called listen(), or 0.
pid_t Listener(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return 0;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return 0;
  ucred peer{};
  socklen_t size = sizeof(peer);
  const bool known = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
                     getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  close(fd);
  return known ? peer.pid : 0;
}

}  // namespace

std::optional<DaemonProcess> DaemonProcess::ListeningAt(const std::string& socket_path) {
  const pid_t pid = Listener(socket_path);
  if (pid <= 0) return std::nullopt;
  const auto descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (descriptor < 0) return std::nullopt;
  // It still listens, so that the number was its own when the descriptor was made.
  DaemonProcess process(descriptor);
  if (Listener(socket_path) != pid) return std::nullopt;
  return process;
}

DaemonProcess::~DaemonProcess() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool DaemonProcess::Ended(absl::Time deadline) const {
  while (true) {
    const absl::Duration left = std::clamp(deadline - absl::Now(), absl::ZeroDuration(), absl::Hours(1));
    pollfd entry{.fd = descriptor_, .events = POLLIN, .revents = 0};
    const int ready = poll(&entry, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (absl::Now() >= deadline) return false;
  }
}

}  // namespace gemmd::gemmctl

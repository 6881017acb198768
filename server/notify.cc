#include "server/notify.h"

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "server/unix_socket.h"

namespace gemmd {

void NotifySystemd(const std::string& state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
  sockaddr_un address = UnixAddress(path);
  if (path[0] == '@') address.sun_path[0] = '\0';  // abstract namespace
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::string(path).size());
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  sendto(fd, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
         length);
  close(fd);
}

absl::Duration WatchdogPeriod() {
  const char* usec = std::getenv("WATCHDOG_USEC");
  const char* pid = std::getenv("WATCHDOG_PID");
  int64_t microseconds = 0;
  if (usec == nullptr || !absl::SimpleAtoi(usec, &microseconds) || microseconds <= 0) {
    return absl::InfiniteDuration();
  }
  int64_t process = 0;
  if (pid != nullptr && (!absl::SimpleAtoi(pid, &process) || process != getpid())) {
    return absl::InfiniteDuration();
  }
  return absl::Microseconds(microseconds) / 2;
}

}  // namespace gemmd

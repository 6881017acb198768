#include "server/connections.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "server/unix_socket.h"

namespace gemmd {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(5);
// A connection that is being accepted is for an instant neither in the backlog nor a descriptor.
constexpr int kQuietPasses = 2;

std::vector<int> OpenDescriptors() {
  std::vector<int> descriptors;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    int fd = -1;
    if (absl::SimpleAtoi(entry.path().filename().string(), &fd)) descriptors.push_back(fd);
  }
  return descriptors;
}

// Whether `fd` is the listener at `path` or a connection that it accepted: both carry its name.
bool BelongsTo(const sockaddr_un& path, int fd) {
  sockaddr_un name{};
  socklen_t size = sizeof name;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0 &&
         name.sun_family == AF_UNIX &&
         std::strncmp(name.sun_path, path.sun_path, sizeof name.sun_path) == 0;
}

bool IsListener(int fd) {
  int listens = 0;
  socklen_t size = sizeof listens;
  return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
}

bool HasBacklog(int listener) {
  pollfd event = {listener, POLLIN, 0};
  return poll(&event, 1, 0) == 1;
}

// One look at all descriptors; whether there was nothing to end.
bool Pass(const sockaddr_un& path) {
  const std::vector<int> descriptors = OpenDescriptors();
  bool quiet = !descriptors.empty();  // empty: /proc could not be read
  for (const int fd : descriptors) {
    if (!BelongsTo(path, fd)) continue;
    if (IsListener(fd)) {
      quiet &= !HasBacklog(fd);
    } else {
      quiet = false;
      shutdown(fd, SHUT_RDWR);
    }
  }
  return quiet;
}

}  // namespace

bool CloseConnections(const std::string& path, absl::Time deadline) {
  unlink(path.c_str());
  const sockaddr_un address = UnixAddress(path);
  for (int quiet = 0; quiet < kQuietPasses;) {
    quiet = Pass(address) ? quiet + 1 : 0;
    if (quiet == kQuietPasses) return true;
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(kPause);
  }
  return true;
}

}  // namespace gemmd

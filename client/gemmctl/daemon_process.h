// What    The process that listens at a socket, to wait for its end. Until then it holds its locks and its
//         memory, though nothing answers at the socket any more.
// Threads One thread.
#ifndef GEMMD_CLIENT_GEMMCTL_DAEMON_PROCESS_H_
#define GEMMD_CLIENT_GEMMCTL_DAEMON_PROCESS_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace gemmd::gemmctl {

class DaemonProcess {
 public:
  // Nullopt: nobody listens at the path, the process is not visible from here (another container), or the
  // system does not let processes be waited for so.
  static std::optional<DaemonProcess> ListeningAt(const std::string& socket_path);
  DaemonProcess(DaemonProcess&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  DaemonProcess& operator=(DaemonProcess&&) = delete;
  ~DaemonProcess();

  // Whether it has ended; waits for that until `deadline`.
  bool Ended(absl::Time deadline) const;

 private:
  explicit DaemonProcess(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;  // of the process: never another one's that got its number
};

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_DAEMON_PROCESS_H_

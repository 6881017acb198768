#include "server/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>

namespace gemmd {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP};

// All that a handler may touch.
std::atomic<int> last_signal{0};
std::atomic<int> wake_fd{-1};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler must not wait for a lock");

void OnSignal(int number) {
  const int saved = errno;
  last_signal = number;
  eventfd_write(wake_fd, 1);
  errno = saved;
}

}  // namespace

Signals::Signals() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  wake_fd = wake_.get();
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a write beyond a limit of file sizes is an error like that of a full disk
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  for (const int number : kSignals) sigaction(number, &action, nullptr);
}

Signals::~Signals() {
  for (const int number : kSignals) signal(number, SIG_DFL);
  wake_fd = -1;
}

int Signals::Wait(absl::Duration at_most) {
  pollfd fds[] = {{wake_.get(), POLLIN, 0}};
  poll(fds, 1, static_cast<int>(absl::ToInt64Milliseconds(at_most)));
  eventfd_t ignored = 0;
  eventfd_read(wake_.get(), &ignored);
  return last_signal.exchange(0);
}

void Signals::Wake() { eventfd_write(wake_.get(), 1); }

}  // namespace gemmd

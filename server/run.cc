#include "server/run.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/daemon.h"
#include "server/exit_codes.h"
#include "server/logging.h"
#include "server/notify.h"
#include "server/signals.h"

namespace gemmd {
namespace {

// Beyond the drain deadline, for what cannot be interrupted: a kernel that runs, memory being released.
constexpr absl::Duration kStopGrace = absl::Seconds(3);

// A drain that someone asked for; read by the main thread after Signals::Wake.
class DrainRequest {
 public:
  void Set(absl::Duration deadline) {
    MutexLock lock(mutex_);
    if (!deadline_.has_value()) deadline_ = deadline;
  }
  std::optional<absl::Duration> Get() {
    MutexLock lock(mutex_);
    return deadline_;
  }

 private:
  Mutex mutex_;
  std::optional<absl::Duration> deadline_ ABSL_GUARDED_BY(mutex_);
};

class Watchdog {
 public:
  void Feed() {
    if (absl::Now() < next_) return;
    NotifySystemd("WATCHDOG=1");
    next_ = absl::Now() + period_;
  }
  absl::Duration Patience() const { return std::min(absl::Seconds(1), period_); }

 private:
  const absl::Duration period_ = WatchdogPeriod();
  absl::Time next_ =
      period_ == absl::InfiniteDuration() ? absl::InfiniteFuture() : absl::InfinitePast();
};

[[noreturn]] void ExitAtOnce(const Config& config, int code, const std::string& why) {
  LogError(why);
  unlink(config.socket.c_str());
  unlink(config.session_socket.c_str());
  StopLogging();
  _exit(code);
}

// Serves until it is time to stop. Returns the exit code that the reason asks for.
int Serve(Daemon& daemon, Signals& signals, Watchdog& watchdog, DrainRequest& drain) {
  while (true) {
    watchdog.Feed();
    if (const int signal = signals.Wait(watchdog.Patience()); signal != 0) {
      LogInfo("signal received", {{"signal", signal}});
      drain.Set(daemon.config().drain_deadline);
    }
    if (const absl::Status health = daemon.Tick(); !health.ok()) {
      LogError("a device is lost; ending the process", {{"error", std::string(health.message())}});
      drain.Set(absl::ZeroDuration());
      return kExitFatal;
    }
    if (drain.Get().has_value()) return kExitDrained;
  }
}

// Stops on a thread of its own, so that a second signal and the time limit still work.
void StopInTime(std::unique_ptr<Daemon> daemon, Signals& signals, Watchdog& watchdog,
                absl::Duration patience) {
  NotifySystemd("STOPPING=1\nSTATUS=draining");
  const absl::Time deadline = absl::Now() + patience;
  const Config config = daemon->config();
  std::atomic<bool> stopped{false};
  std::thread thread([&daemon, &stopped, &signals, deadline] {
    daemon->Stop(deadline);
    daemon.reset();  // waits until all memory is released
    stopped = true;
    signals.Wake();
  });
  while (!stopped) {
    watchdog.Feed();
    if (const int signal = signals.Wait(watchdog.Patience()); signal != 0) {
      ExitAtOnce(config, 128 + signal, "second signal: ending without a drain");
    }
    if (absl::Now() > deadline + kStopGrace) {
      ExitAtOnce(config, kExitFatal, "could not stop in time");
    }
  }
  thread.join();
}

}  // namespace

int RunDaemon(LoadedConfig config) {
  umask(0077);  // sockets get their real mode after they are bound
  Signals signals;
  StartLogging(config.config.log_format, config.config.log_level);
  DrainRequest drain;
  auto daemon = Daemon::Start(std::move(config), [&drain, &signals](absl::Duration deadline) {
    drain.Set(deadline);
    signals.Wake();
  });
  if (!daemon.ok()) {
    LogError("cannot start", {{"error", std::string(daemon.status().message())}});
    StopLogging();
    return ExitCodeOf(daemon.status());
  }
  NotifySystemd("READY=1\nSTATUS=serving");
  Watchdog watchdog;
  const int code = Serve(**daemon, signals, watchdog, drain);
  StopInTime(*std::move(daemon), signals, watchdog, *drain.Get());
  LogInfo("stopped", {{"exit", code}});
  StopLogging();
  return code;
}

}  // namespace gemmd

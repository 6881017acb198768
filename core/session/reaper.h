// What    A thread that releases device objects, so that a slow or hanging release blocks nobody
//         else.
// Threads Thread-safe. One reaper per device: a hanging driver call stops the releases of that
//         device only.
// Why     Closing the mapping of a dead client's memory synchronises the device and can hang for
//         ever.
#ifndef GEMMD_CORE_SESSION_REAPER_H_
#define GEMMD_CORE_SESSION_REAPER_H_

#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/time/time.h"
#include "core/exec/device.h"
#include "kernels/base/mutex.h"

namespace gemmd {

class Reaper {
 public:
  // `closed` is called after each release with its duration; may be null.
  explicit Reaper(std::function<void(absl::Duration)> closed);
  ~Reaper();  // releases everything first; hangs if a release does
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  // Takes over the memory: it is released here when the last copy of the result is gone. The reaper
  // must outlive every copy.
  std::shared_ptr<Memory> Guard(std::unique_ptr<Memory> memory);
  std::shared_ptr<DeviceLayer> Guard(std::shared_ptr<DeviceLayer> layer);

  struct Backlog {
    int pending = 0;  // waiting or being released
    absl::Duration oldest;
  };
  Backlog backlog() const;

  // Whether the backlog is empty before `deadline`.
  bool WaitUntilEmpty(absl::Time deadline);

 private:
  struct Item {
    std::function<void()> release;
    bool is_memory = false;
    absl::Time since;
  };
  void Add(std::function<void()> release, bool is_memory);
  void Work();

  const std::function<void(absl::Duration)> closed_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Item> items_ ABSL_GUARDED_BY(mutex_);  // the front one is being released
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_SESSION_REAPER_H_

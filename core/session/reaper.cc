#include "core/session/reaper.h"

#include <utility>

#include "absl/time/clock.h"

namespace gemmd {

Reaper::Reaper(std::function<void(absl::Duration)> closed)
    : closed_(std::move(closed)), thread_([this] { Work(); }) {}

Reaper::~Reaper() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

std::shared_ptr<Memory> Reaper::Guard(std::unique_ptr<Memory> memory) {
  return std::shared_ptr<Memory>(memory.release(), [this](Memory* released) {
    Add([released] { delete released; }, /*is_memory=*/true);
  });
}

std::shared_ptr<DeviceLayer> Reaper::Guard(std::shared_ptr<DeviceLayer> layer) {
  DeviceLayer* raw = layer.get();
  return std::shared_ptr<DeviceLayer>(raw, [this, owner = std::move(layer)](DeviceLayer*) mutable {
    Add([owner = std::move(owner)]() mutable { owner.reset(); }, /*is_memory=*/false);
  });
}

void Reaper::Add(std::function<void()> release, bool is_memory) {
  MutexLock lock(mutex_);
  items_.push_back({std::move(release), is_memory, absl::Now()});
  changed_.NotifyAll();
}

Reaper::Backlog Reaper::backlog() const {
  MutexLock lock(mutex_);
  if (items_.empty()) return {};
  return {static_cast<int>(items_.size()), absl::Now() - items_.front().since};
}

bool Reaper::WaitUntilEmpty(absl::Time deadline) {
  MutexLock lock(mutex_);
  return changed_.WaitUntil(mutex_, deadline, [this] { return items_.empty(); });
}

void Reaper::Work() {
  while (true) {
    std::function<void()> release;
    bool is_memory = false;
    {
      MutexLock lock(mutex_);
      changed_.Wait(mutex_, [this] { return stopping_ || !items_.empty(); });
      if (items_.empty()) return;
      release = std::move(items_.front().release);
      is_memory = items_.front().is_memory;
    }
    const absl::Time start = absl::Now();
    release();
    if (is_memory && closed_) closed_(absl::Now() - start);
    MutexLock lock(mutex_);
    items_.pop_front();
    changed_.NotifyAll();
  }
}

}  // namespace gemmd

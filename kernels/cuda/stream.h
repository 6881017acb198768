// What    Streams and events with one owner each. The context of creation must be current for
//         Create.
// Errors  As ToStatus.
// Threads As the driver: enqueueing from several threads is safe, its order is then not defined.
#ifndef GEMMD_KERNELS_CUDA_STREAM_H_
#define GEMMD_KERNELS_CUDA_STREAM_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/handles.h"

namespace gemmd::cuda {

class Stream {
 public:
  // Does not synchronise with the legacy default stream.
  static absl::StatusOr<Stream> Create(const DriverTable& driver);

  CUstream get() const { return handle_.get(); }
  absl::Status Synchronize() const;
  // True when everything enqueued so far is complete.
  absl::StatusOr<bool> IsIdle() const;

 private:
  explicit Stream(Handle<CUstream, &DriverTable::cuStreamDestroy> handle)
      : handle_(std::move(handle)) {}

  Handle<CUstream, &DriverTable::cuStreamDestroy> handle_;
};

enum class EventKind { kTiming, kOrderOnly };

class Event {
 public:
  static absl::StatusOr<Event> Create(const DriverTable& driver, EventKind kind);

  CUevent get() const { return handle_.get(); }
  const DriverTable& driver() const { return handle_.driver(); }
  absl::Status Record(CUstream stream) const;
  absl::Status Synchronize() const;
  // Makes later work of `stream` wait for this event.
  absl::Status MakeWait(CUstream stream) const;

 private:
  explicit Event(Handle<CUevent, &DriverTable::cuEventDestroy> handle)
      : handle_(std::move(handle)) {}

  Handle<CUevent, &DriverTable::cuEventDestroy> handle_;
};

// Device time between two recorded, completed events of kind kTiming.
absl::StatusOr<absl::Duration> Elapsed(const Event& from, const Event& to);

}  // namespace gemmd::cuda

#endif  // GEMMD_KERNELS_CUDA_STREAM_H_

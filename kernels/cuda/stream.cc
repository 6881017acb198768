#include "kernels/cuda/stream.h"

#include "kernels/base/status.h"

namespace gemmd::cuda {

absl::StatusOr<Stream> Stream::Create(const DriverTable& driver) {
  CUstream raw = nullptr;
  GEMMD_CUDA(driver, cuStreamCreate, &raw, CU_STREAM_NON_BLOCKING);
  return Stream(Handle<CUstream, &DriverTable::cuStreamDestroy>(driver, raw));
}

absl::Status Stream::Synchronize() const {
  GEMMD_CUDA(handle_.driver(), cuStreamSynchronize, handle_.get());
  return absl::OkStatus();
}

absl::StatusOr<bool> Stream::IsIdle() const {
  const CUresult result = handle_.driver().cuStreamQuery(handle_.get());
  if (result == CUDA_ERROR_NOT_READY) return false;
  GEMMD_RETURN_IF_ERROR(ToStatus(handle_.driver(), result, "cuStreamQuery"));
  return true;
}

absl::StatusOr<Event> Event::Create(const DriverTable& driver, EventKind kind) {
  CUevent raw = nullptr;
  GEMMD_CUDA(driver, cuEventCreate, &raw,
             kind == EventKind::kTiming ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
  return Event(Handle<CUevent, &DriverTable::cuEventDestroy>(driver, raw));
}

absl::Status Event::Record(CUstream stream) const {
  GEMMD_CUDA(handle_.driver(), cuEventRecord, handle_.get(), stream);
  return absl::OkStatus();
}

absl::Status Event::Synchronize() const {
  GEMMD_CUDA(handle_.driver(), cuEventSynchronize, handle_.get());
  return absl::OkStatus();
}

absl::Status Event::MakeWait(CUstream stream) const {
  GEMMD_CUDA(handle_.driver(), cuStreamWaitEvent, stream, handle_.get(), CU_EVENT_WAIT_DEFAULT);
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> Elapsed(const Event& from, const Event& to) {
  float milliseconds = 0;
  GEMMD_CUDA(from.driver(), cuEventElapsedTime, &milliseconds, from.get(), to.get());
  return absl::Milliseconds(milliseconds);
}

}  // namespace gemmd::cuda

// What    Durations of kernels from CUPTI's activity records.
// Units   Microseconds; CUPTI counts nanoseconds.
// Errors  Unavailable: CUPTI cannot be loaded or refuses this GPU. Internal: records were dropped.
// Threads One timer per process, used by one thread; CUPTI delivers buffers on a thread of its own.
// Source  CUPTI user's guide, "CUPTI Activity API".
#ifndef GEMMD_TESTS_BENCH_DEVICE_CUPTI_TIMER_H_
#define GEMMD_TESTS_BENCH_DEVICE_CUPTI_TIMER_H_

#include <cupti.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/device/shared_library.h"
#include "tests/bench/host/kernel_record.h"

namespace gemmd::bench {

class CuptiTimer {
 public:
  // `library` empty: the usual places.
  static absl::StatusOr<std::unique_ptr<CuptiTimer>> Load(const std::string& library);

  // Records kernels from here on. From the first Start on launches cost more on the host.
  absl::Status Start();
  // The kernels since Start in order of their start; the GPU is idle.
  absl::StatusOr<std::vector<KernelRecord>> Stop();

  std::string version() const;

 private:
  struct Functions {
    decltype(&::cuptiActivityRegisterCallbacks) register_callbacks;
    decltype(&::cuptiActivityEnable) enable;
    decltype(&::cuptiActivityDisable) disable;
    decltype(&::cuptiActivityFlushAll) flush_all;
    decltype(&::cuptiActivityGetNextRecord) next_record;
    decltype(&::cuptiActivityGetNumDroppedRecords) dropped_records;
    decltype(&::cuptiGetVersion) get_version;
    decltype(&::cuptiGetResultString) result_string;
  };

  CuptiTimer(SharedLibrary library, const Functions& functions)
      : library_(std::move(library)), functions_(functions) {}
  absl::Status ToStatus(CUptiResult result, const char* call) const;
  absl::Status ReadBuffer(uint8_t* buffer, size_t bytes, std::vector<KernelRecord>& records) const;

  const SharedLibrary library_;
  const Functions functions_;
  bool registered_ = false;
};

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_DEVICE_CUPTI_TIMER_H_

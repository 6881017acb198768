// What    What NVML says about a GPU: driver, clocks, temperature, power. Reads only; nothing is
//         set.
// Errors  None: what cannot be read stays 0 or empty.
// Threads One thread at a time.
#ifndef GEMMD_TESTS_BENCH_DEVICE_GPU_MONITOR_H_
#define GEMMD_TESTS_BENCH_DEVICE_GPU_MONITOR_H_

#include <string>

#include "tests/bench/host/report.h"

namespace gemmd::bench {

class GpuMonitor {
 public:
  explicit GpuMonitor(const std::string& uuid);

  std::string driver_version() const;
  int max_sm_mhz() const;
  int max_memory_mhz() const;
  GpuState Read() const;

 private:
  // NVML's own types are plain; its header is not needed for them.
  using Device = void*;
  struct Functions {
    int (*init)() = nullptr;
    int (*find)(const char*, Device*) = nullptr;
    int (*driver_version)(char*, unsigned) = nullptr;
    int (*clock)(Device, int, unsigned*) = nullptr;
    int (*max_clock)(Device, int, unsigned*) = nullptr;
    int (*temperature)(Device, int, unsigned*) = nullptr;
    int (*power)(Device, unsigned*) = nullptr;
  };

  bool usable_ = false;
  Functions functions_;
  Device device_ = nullptr;
};

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_DEVICE_GPU_MONITOR_H_

// What    The CPU as a device: the reference arithmetic in double precision on a BLAS,
//         multi-threaded.
// Memory  Regions are host memory: memfds of clients (mapped shared), or allocations of the daemon.
// Threads As Device.
#ifndef GEMMD_CORE_EXEC_CPU_DEVICE_H_
#define GEMMD_CORE_EXEC_CPU_DEVICE_H_

#include <memory>

#include "core/exec/device.h"

namespace gemmd {

struct CpuDeviceOptions {
  int threads = 0;  // 0 = all cores of the process's affinity mask
};

std::unique_ptr<Device> CreateCpuDevice(const CpuDeviceOptions& options);

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_CPU_DEVICE_H_

// What    Opens the devices that the configuration asks for: GPUs, largest first, then always the
//         CPU.
// Errors  NO_DEVICE (exit 69) with the driver's reason when --device=cuda finds no GPU.
#ifndef GEMMD_SERVER_DEVICES_H_
#define GEMMD_SERVER_DEVICES_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/exec/cuda_device.h"
#include "core/exec/device.h"
#include "core/prewarm.h"
#include "server/config.h"

namespace gemmd {

using KernelNoticeFunction = std::function<void(const KernelNotice&)>;

// `on_kernel`: called from any thread as long as the devices live; must not block.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(const Config& config,
                                                                 const KernelStore& kernels,
                                                                 std::shared_ptr<TuningStore> tuning,
                                                                 KernelNoticeFunction on_kernel);

}  // namespace gemmd

#endif  // GEMMD_SERVER_DEVICES_H_

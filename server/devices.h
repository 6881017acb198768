// What    Opens the devices that the configuration asks for: GPUs, largest first, then always the
//         CPU.
// Errors  NO_DEVICE (exit 69) with the driver's reason when --device=cuda finds no GPU.
#ifndef GEMMD_SERVER_DEVICES_H_
#define GEMMD_SERVER_DEVICES_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/exec/device.h"
#include "core/prewarm.h"
#include "server/config.h"

namespace gemmd {

absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(const Config& config,
                                                                 const KernelStore& kernels);

}  // namespace gemmd

#endif  // GEMMD_SERVER_DEVICES_H_

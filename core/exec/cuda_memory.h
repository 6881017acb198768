// What    Memory of clients and of the daemon on one GPU: CUDA IPC mappings, imported VMM
//         allocations and our own allocations.
// Keys    One open per IPC handle and GPU in the whole process: opening it again gives the same
//         mapping, and the last user closes it.
// Errors  As cuda::IpcMapping, cuda::VmmMapping, cuda::DeviceBuffer.
// Threads Any. The context of `gpu` is current in the calls; destruction makes it current by
//         itself, and may block while the exporting process dies.
#ifndef GEMMD_CORE_EXEC_CUDA_MEMORY_H_
#define GEMMD_CORE_EXEC_CUDA_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/exec/cuda_layer.h"
#include "core/exec/device.h"

namespace gemmd {

// `allocation_size` 0 = take the driver's word.
absl::StatusOr<std::unique_ptr<Memory>> OpenIpcMemory(std::shared_ptr<CudaGpu> gpu,
                                                      absl::Span<const std::byte> handle,
                                                      uint64_t allocation_size);
absl::StatusOr<std::unique_ptr<Memory>> ImportVmmMemory(std::shared_ptr<CudaGpu> gpu, int fd,
                                                        uint64_t size);
absl::StatusOr<std::unique_ptr<Memory>> AllocateDeviceMemory(std::shared_ptr<CudaGpu> gpu,
                                                             uint64_t size);

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_CUDA_MEMORY_H_

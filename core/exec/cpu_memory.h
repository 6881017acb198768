// What    Host memory as regions of the CPU device: memfds of clients and allocations of the
//         daemon.
// Errors  InvalidArgument REGION_OUT_OF_BOUNDS: the file is smaller than `size`, or `size` is 0.
//         FailedPrecondition NOT_IPC_CAPABLE: no memfd, or not sealed against shrinking (a client
//         that shrinks its file would kill the daemon by SIGBUS); IPC_OPEN_FAILED: the mapping
//         failed. ResourceExhausted GPU_OOM: the allocation failed.
// Threads Pure functions.
#ifndef GEMMD_CORE_EXEC_CPU_MEMORY_H_
#define GEMMD_CORE_EXEC_CPU_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/exec/device.h"

namespace gemmd {

absl::StatusOr<std::unique_ptr<Memory>> MapMemfd(int fd, uint64_t size);
absl::StatusOr<std::unique_ptr<Memory>> AllocateHostMemory(uint64_t size);

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_CPU_MEMORY_H_

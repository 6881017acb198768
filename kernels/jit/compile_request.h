// What    What a caller says when it asks a KernelCache for a kernel, and what it learns beside it.
#ifndef GEMMD_KERNELS_JIT_COMPILE_REQUEST_H_
#define GEMMD_KERNELS_JIT_COMPILE_REQUEST_H_

#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "kernels/jit/compile_queue.h"

namespace gemmd::jit {

enum class KernelOrigin : uint8_t { kMemory, kDisk, kCompiled };

struct CompileRequest {
  absl::Time deadline = absl::InfiniteFuture();
  CompilePriority priority = CompilePriority::kClient;
  // Asked now and then while the call waits.
  std::function<bool()> cancelled = nullptr;
  KernelOrigin* origin = nullptr;  // where the kernel came from
};

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_COMPILE_REQUEST_H_

// What    One NVRTC compilation of a program over the embedded sources, and the key that names its
//         result.
// Keys    SHA-256 over the schema, program, name expression, architecture, embedded sources,
//         compiler version and options. No path, time, PATH or HOME.
// Errors  Unavailable NVRTC_MISSING. Internal COMPILE_FAILED: the message ends with the compiler's
//         log. InvalidArgument BAD_ARCHITECTURE: not of the form sm_<number>[a|f].
// Threads Any.
#ifndef GEMMD_KERNELS_JIT_COMPILER_H_
#define GEMMD_KERNELS_JIT_COMPILER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/jit/nvrtc.h"

namespace gemmd::jit {

// For example
//   program          #include "kernels/device/gemm.cuh"
//                    namespace gemmd::device { struct Config { static constexpr int kBlockM = 64;
//                    ... }; }
//   name_expression  gemmd::device::Gemm<gemmd::device::Config>
//   architecture     sm_90a
struct KernelSource {
  std::string program;
  std::string name_expression;
  std::string architecture;
};

struct CompiledKernel {
  std::vector<std::byte> cubin;
  std::string lowered_name;  // the kernel's symbol in the cubin
  std::string key;           // KernelKey of its source
  // What the compiler printed; both empty for a kernel read from disk.
  std::string log;    // warnings
  std::string usage;  // registers, stack, spills and shared memory of the kernel (ptxas -v)
};

// Lower-case hexadecimal, 64 characters.
std::string KernelKey(const KernelSource& source, const NvrtcTable& nvrtc);

absl::StatusOr<CompiledKernel> Compile(const KernelSource& source, const NvrtcTable& nvrtc);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_COMPILER_H_

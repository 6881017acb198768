// What    One NVRTC compilation of a program over the embedded sources, and the key that names its
//         result.
// Keys    kernel_key.h.
// Errors  Unavailable NVRTC_MISSING. Internal COMPILE_FAILED: the message ends with the compiler's
//         log, or says that what it gave is no cubin for the architecture (cubin.h). InvalidArgument BAD_ARCHITECTURE: not of the form sm_<number>[a|f].
// Threads Any.
#ifndef GEMMD_KERNELS_JIT_COMPILER_H_
#define GEMMD_KERNELS_JIT_COMPILER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/jit/kernel_key.h"
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
  std::string label = {};  // for lists and logs; not part of the key
};

struct CompiledKernel {
  std::vector<std::byte> cubin;
  std::string lowered_name;  // the kernel's symbol in the cubin
  std::string key;           // KernelKey of its source
  std::string log;           // warnings of the compiler; empty for a kernel read from disk
  std::string usage;         // registers, stack, spills and shared memory of the kernel (ptxas -v)
  std::string architecture = {};
  std::string compiler = {};  // CompilerName
  std::string label = {};     // KernelSource::label, else its name expression
};

// Version and build of a compiler: "13.0 65be0db3...".
std::string CompilerName(const NvrtcTable& nvrtc);

// What the key of `source` is made of when `compiler` (CompilerName) compiles it.
KeyInputs KeyInputsOf(const KernelSource& source, const std::string& compiler);
std::string KernelKey(const KernelSource& source, const std::string& compiler);
std::string KernelKey(const KernelSource& source, const NvrtcTable& nvrtc);

// InvalidArgument BAD_ARCHITECTURE: its form.
absl::Status CheckArchitecture(const std::string& architecture);
// 90 of sm_90a; 0 of what is not of that form.
int ArchitectureNumber(absl::string_view architecture);

absl::StatusOr<CompiledKernel> Compile(const KernelSource& source, const NvrtcTable& nvrtc);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_COMPILER_H_

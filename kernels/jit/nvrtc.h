// What    Table of NVRTC functions, filled from the library at run time. Needs no GPU.
//         GEMMD_NVRTC names it (a library file, or a folder that holds one), and nothing else is
//         tried then. Otherwise libnvrtc.so.13, libnvrtc.so.12, libnvrtc.so, and the same names
//         under CUDA_HOME/lib64 and /usr/local/cuda/lib64. libnvrtc-builtins is taken from the
//         folder of the library where it lies there, so that no search path has to name that folder.
// Errors  Unavailable NVRTC_MISSING: the message lists what was tried and why each failed.
// Threads LoadNvrtc is thread-safe; NVRTC itself compiles independent programs in parallel.
#ifndef GEMMD_KERNELS_JIT_NVRTC_H_
#define GEMMD_KERNELS_JIT_NVRTC_H_

#include <nvrtc.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define GEMMD_NVRTC_FUNCTIONS(X) \
  X(nvrtcVersion)                \
  X(nvrtcGetErrorString)         \
  X(nvrtcGetNumSupportedArchs)   \
  X(nvrtcGetSupportedArchs)      \
  X(nvrtcCreateProgram)          \
  X(nvrtcDestroyProgram)         \
  X(nvrtcAddNameExpression)      \
  X(nvrtcCompileProgram)         \
  X(nvrtcGetProgramLogSize)      \
  X(nvrtcGetProgramLog)          \
  X(nvrtcGetLoweredName)         \
  X(nvrtcGetCUBINSize)           \
  X(nvrtcGetCUBIN)

namespace gemmd::jit {

struct NvrtcTable {
#define GEMMD_DECLARE_NVRTC_FUNCTION(name) decltype(&::name) name = nullptr;
  GEMMD_NVRTC_FUNCTIONS(GEMMD_DECLARE_NVRTC_FUNCTION)
#undef GEMMD_DECLARE_NVRTC_FUNCTION
  std::string version;     // "13.0"; all that NVRTC tells, patch releases share it
  int version_number = 0;  // 1300
  // Build id of the loaded library, or the SHA-256 of its file when it carries none. Tells patch
  // releases apart.
  std::string digest;
  std::string path;                // of the loaded library
  std::vector<int> architectures;  // it compiles for: 75, 80, 90 ...
};

// Once per process. A failure is not remembered: NVRTC may be installed while the daemon runs.
absl::StatusOr<const NvrtcTable*> LoadNvrtc();

// The first of `candidates` that loads and has every function; without remembering it.
absl::StatusOr<NvrtcTable> LoadNvrtcFrom(const std::vector<std::string>& candidates);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_NVRTC_H_

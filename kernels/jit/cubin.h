// What    Whether bytes are a cubin, and which architecture it was made for, as its ELF header says: what the driver
//         looks at when it loads it.
// Source  e_flags of CUDA's ELF, as NVRTC 12.8 and 13.0 write them: ABI version 7 (12.8 up to sm_90a) has the number of
//         the architecture in bits 0 to 7, ABI version 8 in bits 8 to 15. A suffix (sm_90a) is not told apart here.
// Threads Pure function; safe on any input.
#ifndef GEMMD_KERNELS_JIT_CUBIN_H_
#define GEMMD_KERNELS_JIT_CUBIN_H_

#include <optional>

#include "absl/strings/string_view.h"

namespace gemmd::jit {

// Whether it begins with the whole header of a 64-bit ELF for CUDA.
bool IsCubin(absl::string_view bytes);

// 90 of a cubin for sm_90 or sm_90a. Nothing of what is no cubin, or of an ABI version that is not known: the driver
// judges the latter.
std::optional<int> CubinArchitecture(absl::string_view cubin);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_CUBIN_H_

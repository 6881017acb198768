// What    Device sources, contract headers and standard-library shims, linked into this program:
//         NVRTC needs nothing on disk. The name is what #include says: "kernels/device/gemm.cuh",
//         "cstdint".
// Threads Any; constant data.
#ifndef GEMMD_KERNELS_JIT_EMBEDDED_SOURCES_H_
#define GEMMD_KERNELS_JIT_EMBEDDED_SOURCES_H_

#include <cstddef>
#include <string>

#include "absl/types/span.h"

namespace gemmd::jit {

struct EmbeddedSource {
  const char* name;
  const char* text;  // ends with 0
  size_t size;       // without the 0
};

// In the order of names.
absl::Span<const EmbeddedSource> EmbeddedSources();

// SHA-256 over every name and byte, in lower-case hexadecimal.
const std::string& EmbeddedSourcesDigest();

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_EMBEDDED_SOURCES_H_

// What    A number for what a kernel's results round to: equal numbers, equal bits for equal rows.
// Keys    SHA-256 over the kernel's key (jit/kernel_key.h: its program, device sources, compiler and
//         architecture) and the blocks of its cluster, which split K and are no part of the key; the first 8
//         bytes, first one most significant. Never 0.
// Threads Pure function.
#ifndef GEMMD_KERNELS_NUMERICS_H_
#define GEMMD_KERNELS_NUMERICS_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace gemmd {

uint64_t NumericsOf(absl::string_view kernel_key, int cluster);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_NUMERICS_H_

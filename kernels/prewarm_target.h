// What    Whether a GPU would ever look for kernels of an architecture: those for another name than devices have are
//         compiled for nobody.
// Errors  InvalidArgument BAD_ARCHITECTURE: its form; sm_90, sm_90f or sm_80a, where devices are sm_90a and sm_80 (the
//         message names that); or one that the compiler does not know. The message lists those that it knows.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_PREWARM_TARGET_H_
#define GEMMD_KERNELS_PREWARM_TARGET_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace gemmd {

// `known`: what the compiler compiles for, 75, 80, 90 ...; empty: there is none, and nobody knows.

// Form and suffix, of a number that is known or may be.
absl::Status CheckDeviceName(const std::string& architecture, const std::vector<int>& known);
// That the compiler knows the number, too.
absl::Status CheckPrewarmTarget(const std::string& architecture, const std::vector<int>& known);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_PREWARM_TARGET_H_

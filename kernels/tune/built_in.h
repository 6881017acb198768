// What    The tuning that ships with gemmd: kernels/tune/tables/*.json, linked into this program.
// Threads Any; constant data.
#ifndef GEMMD_KERNELS_TUNE_BUILT_IN_H_
#define GEMMD_KERNELS_TUNE_BUILT_IN_H_

#include "absl/types/span.h"

namespace gemmd {

struct BuiltInTuning {
  const char* name;  // "h200.json"
  const char* text;
};

absl::Span<const BuiltInTuning> BuiltInTunings();

}  // namespace gemmd

#endif  // GEMMD_KERNELS_TUNE_BUILT_IN_H_

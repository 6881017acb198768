// What    Configs whose weights were rotated for an x that is rotated too: y = (x R)(W R)^T. No layer can hold R, and
//         where it is a Hadamard matrix no tensor tells of it.
// Source  README.md, "Rotations".
#ifndef GEMMD_CORE_CHECKPOINT_ROTATIONS_H_
#define GEMMD_CORE_CHECKPOINT_ROTATIONS_H_

#include "absl/status/status.h"
#include "core/checkpoint/json.h"

namespace gemmd {

// UNSUPPORTED_FORMAT naming the key of `config`, a quantization_config of any exporter, that says or may say that the x of
// some modules is rotated before the GEMM; which these are no key says. BAD_CHECKPOINT for keys of a wrong type.
absl::Status RejectRotations(const Json& config);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_ROTATIONS_H_

// What    Layers made of layers, exactly: rows of several layers below each other (q, k and v; gate
//         and up), and experts that were stored one by one as one stack. What differs between the
//         parts and can be written finer (scales of the tensor as scales of its rows, an absent
//         bias as zeros) is; what is one group of all K, however its size is written, is one; codes are never touched.
// Shapes  Rows: parts with the same K and E. Experts: parts with the same N and K.
// Errors  InvalidArgument PARTS_DIFFER naming the first difference that cannot be bridged, the two parts by their numbers
//         ("part 1 has int8, part 0 has int4") and both values.
// Threads Pure functions.
#ifndef GEMMD_CORE_QUANT_COMBINE_H_
#define GEMMD_CORE_QUANT_COMBINE_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

// Whether the parts agree in what is not bridged, as far as that does not depend on their bytes: their buffers may
// be empty.
absl::Status CheckAlike(const std::vector<StandardTensor>& parts);

// The parts see the same activations, so what they say of them becomes one: the largest static scale, the
// smallest global scale (a divisor); static zero points with their scales, and input scales, must agree.
absl::StatusOr<StandardTensor> ConcatenateRows(std::vector<StandardTensor> parts);

// Repeats scales and zero points so that `block_n` rows share one; it must divide the rows that share
// one now (all N when that is 0).
void SplitScaleRows(int64_t block_n, StandardTensor& tensor);

// Experts in the order of the parts. Static activation scales stay per expert.
absl::StatusOr<StandardTensor> StackExperts(std::vector<StandardTensor> parts);

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_COMBINE_H_

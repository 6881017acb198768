// What    A part of a layer for one rank of tensor or expert parallelism: some experts, rows and
//         columns, exactly.
// Shapes  Rows may be cut anywhere (inside a block of scales its scale is repeated; interleaved
//         gate and up rows only in pairs). Columns may be cut between groups, of the weights and of
//         the activations; a group index frees the weights' groups: the slice keeps all scale
//         columns.
// Bias    Stays with the slice that begins at column 0: the sum of all slices along K has it once.
// Errors  InvalidArgument SHAPE_MISMATCH for a range outside; SLICE_CUTS_GROUP naming the sizes
//         that would be legal.
// Threads Pure function.
#ifndef GEMMD_CORE_QUANT_SLICE_H_
#define GEMMD_CORE_QUANT_SLICE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

// Half-open. An end of 0 means the end of the layer.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

struct LayerSlice {
  Range experts;
  Range rows;
  Range columns;
};

// Columns are cut at multiples of this.
int64_t ColumnUnit(const StandardTensor& whole);

absl::StatusOr<StandardTensor> Slice(const StandardTensor& whole, const LayerSlice& slice);

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_SLICE_H_

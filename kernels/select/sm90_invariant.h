// What    The one SM90 kernel that serves batch-invariant requests of a layer at every M.
// Keys    A row's bits depend on that row alone: the order of the sum over K is decided by the config
//         (steps of the matrix unit, column groups of warps) and by the parts of K of the cluster, both of
//         which are the same for every M here; columns of the matrix unit (rows of x) do not mix, and rows
//         of a tile that x does not have are zeros.
// Threads Pure function.
#ifndef GEMMD_KERNELS_SELECT_SM90_INVARIANT_H_
#define GEMMD_KERNELS_SELECT_SM90_INVARIANT_H_

#include <optional>

#include "kernels/select/sm90_choice.h"

namespace gemmd {

// ChooseSm90's for 32 rows, so that mostly nothing more is compiled; it reads the weights once for a decoding
// batch. Many rows take several tiles, each of which reads them again. Measurements of a device do not
// change it: its numbers must not. Takes x with and without a map. None: no such kernel fits, and the generic one serves such requests for good.
std::optional<Sm90Choice> ChooseBatchInvariantSm90(const QuantSpec& spec, const LayerShape& shape,
                                                   ElementType x_type);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_SELECT_SM90_INVARIANT_H_

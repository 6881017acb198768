// What    Which config serves a layer. Today one generic config per layer and row mapping, for
//         every M.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_SELECT_HEURISTICS_H_
#define GEMMD_KERNELS_SELECT_HEURISTICS_H_

#include "kernels/contract/quant_spec.h"
#include "kernels/select/gemm_config.h"

namespace gemmd {

GemmConfig ChooseConfig(const QuantSpec& spec, RowMapping row_mapping,
                        CodeOrder codes = CodeOrder::kRows);

// 1 when every weight w = (code - zero_point) * scale * secondary_scale is a TF32 number (11
// significant bits) whatever the codes are, else 2.
int WeightTerms(const QuantSpec& spec);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_SELECT_HEURISTICS_H_

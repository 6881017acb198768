// What    Which rows of x and y, and which expert, a block tile works on.
#ifndef GEMMD_KERNELS_CONTRACT_ROW_MAPPING_H_
#define GEMMD_KERNELS_CONTRACT_ROW_MAPPING_H_

#include <cstdint>

namespace gemmd {

enum class RowMapping : uint8_t {
  kDense,    // row r of x gives row r of y; one expert
  kIndexed,  // rows sorted by expert on the device (contract/gemm_args.h)
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_ROW_MAPPING_H_

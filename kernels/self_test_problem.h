// What    The problem of a kernel's self-test: a layer like the one that the kernel is for, but small,
//         rows of x, and their product. Everything is a small integer, exact in every format and in
//         every order of the sum, so the kernel must compute every element exactly.
// Shapes  A tile and a part of one along N, most of a tile along M; K long enough for the kernel's
//         pipeline and cluster. Two experts for indexed kernels, where codes are not packed: slot s belongs to expert
//         s % 2.
// How     Values repeat with periods of 17 along N and 13 along M, which no tile is a multiple of: a
//         wrong index shows, and the host computes 17 * 13 products instead of thousands.
// Errors  Internal SELF_TEST_IMPOSSIBLE: no small layer has the kernel's packing.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_SELF_TEST_PROBLEM_H_
#define GEMMD_KERNELS_SELF_TEST_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/contract/element_type.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/launch/gemm_plan.h"
#include "kernels/pack/pack_weights.h"

namespace gemmd {

// What a kernel's test is made from: the layer it was chosen for.
struct SelfTestSubject {
  QuantSpec spec;
  LayerShape shape;
  bool is_packed = false;           // made for packed weights
  bool has_packed_codes = false;    // the generic kernel, with codes of packed weights
  bool takes_group_scales = false;  // of x
  ElementType x_type = ElementType::kBFloat16;
  bool half_sums = false;  // its sums are float16, exact up to 2048
};

struct SelfTestProblem {
  using Bytes = std::vector<std::byte>;

  QuantSpec spec;
  LayerShape shape;
  int64_t scale_columns = 0;
  Bytes codes, scales, zero_points, secondary_scales, group_index, bias;
  PackedWeights packed;  // empty unless the kernel reads it

  ElementType x_type = ElementType::kBFloat16;
  int64_t rows = 0;
  Bytes x;                          // [rows, k]
  Bytes group_scales;               // float32 [rows, groups]; empty = none
  int64_t group_scale_columns = 0;  // columns of x that share one

  // Indexed kernels only.
  std::vector<uint32_t> sorted_slots;
  std::vector<int64_t> row_offsets;
  std::vector<int64_t> tile_offsets;

  // y [rows, n].
  float Expected(int64_t row, int64_t column) const;

  std::vector<float> products;  // of each expert, period of M and period of N; for Expected
};

absl::StatusOr<SelfTestProblem> MakeSelfTestProblem(const GemmKernel& kernel,
                                                    const SelfTestSubject& subject);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_SELF_TEST_PROBLEM_H_

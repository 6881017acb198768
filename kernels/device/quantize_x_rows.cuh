// What    Which row of x, and which row of factors, a row of codes is made of.
// Shapes  Dense: row r of x and the only row of factors. With routing (QuantizeArgs): slots, each with the
//         factors of its expert.
// Sync    None: reads the routing of QuantizeArgs.
#ifndef GEMMD_KERNELS_DEVICE_QUANTIZE_X_ROWS_CUH_
#define GEMMD_KERNELS_DEVICE_QUANTIZE_X_ROWS_CUH_

#include "kernels/contract/quantize_args.h"
#include "kernels/device/moe_slots.cuh"

namespace gemmd::device {

template <class Config>
struct QuantizeRow {
  int64_t x_row;
  const float* factors;  // null: none
  bool is_absent;        // a slot without an expert: nothing is made of it

  __host__ __device__ static QuantizeRow Of(const QuantizeArgs& args, int64_t row) {
    if constexpr (!Config::kInputScale) return {row, nullptr, false};
    if (args.routing.topk_ids == nullptr) return {row, args.input_scale, false};
    // A block has one row, so there are fewer than 2^31: no division of 64 bits.
    const auto slot = static_cast<uint32_t>(row);
    const uint32_t token = slot / static_cast<uint32_t>(args.routing.top_k);
    const uint32_t choice = slot % static_cast<uint32_t>(args.routing.top_k);
    const int32_t expert = LocalExpert(
        args.routing, args.routing.topk_ids[token * args.routing.ids_row_stride + choice]);
    if (expert == kAbsent) return {0, nullptr, true};
    return {slot / static_cast<uint32_t>(args.slots_per_x_row),
            args.input_scale + expert * args.input_scale_row_stride, false};
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_QUANTIZE_X_ROWS_CUH_

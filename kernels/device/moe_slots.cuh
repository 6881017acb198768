// What    Slots of a mixture-of-experts request: which local expert a slot belongs to, or none.
// Sync    None.
#ifndef GEMMD_KERNELS_DEVICE_MOE_SLOTS_CUH_
#define GEMMD_KERNELS_DEVICE_MOE_SLOTS_CUH_

#include "kernels/contract/moe_args.h"
#include "kernels/device/portable.cuh"

namespace gemmd::device {

inline constexpr int32_t kAbsent = -1;

// Local number of expert `id`, or kAbsent: -1, another rank's, or past the last expert.
__host__ __device__ inline int32_t LocalExpert(const RoutingArgs& args, int32_t id) {
  if (id < 0 || id >= args.total_experts) return kAbsent;
  const int64_t local = id - args.first_expert;
  return local >= 0 && local < args.experts ? static_cast<int32_t>(local) : kAbsent;
}

__host__ __device__ inline int64_t SlotCount(const RoutingArgs& args) {
  return args.tokens * args.top_k;
}

__host__ __device__ inline int32_t ExpertOfSlot(const RoutingArgs& args, int64_t slot) {
  const int64_t token = slot / args.top_k;
  const int64_t choice = slot % args.top_k;
  return LocalExpert(args, args.topk_ids[token * args.ids_row_stride + choice]);
}

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_MOE_SLOTS_CUH_

// What    Host versions of every kernel, for the fake driver: a launch runs the kernel's own parts on the
//         CPU (tests/kernels/device/host_gemm.h).
#ifndef GEMMD_TESTS_KERNELS_LAUNCH_FAKE_KERNELS_H_
#define GEMMD_TESTS_KERNELS_LAUNCH_FAKE_KERNELS_H_

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/device/moe_activate.cuh"
#include "kernels/device/moe_combine.cuh"
#include "kernels/device/moe_route.cuh"
#include "kernels/pack/pack_weights.h"
#include "tests/kernels/device/host_gemm.h"
#include "tests/support/fake_driver.h"

namespace gemmd::testing {

inline void HostCount(const MoeSortArgs& args) {
  for (int64_t slot = 0; slot < device::SlotCount(args.routing); ++slot) {
    const int32_t expert = device::ExpertOfSlot(args.routing, slot);
    if (expert != device::kAbsent) ++args.counts[expert];
  }
}

inline void HostPrefix(const MoeSortArgs& args) {
  int64_t rows = 0;
  int64_t tiles = 0;
  for (int32_t expert = 0; expert < args.routing.experts; ++expert) {
    const auto count = static_cast<int64_t>(args.counts[expert]);
    args.row_offsets[expert] = rows;
    args.tile_offsets[expert] = tiles;
    args.counts[expert] = static_cast<unsigned long long>(rows);
    rows += count;
    tiles += (count + args.block_m - 1) / args.block_m;
  }
  args.row_offsets[args.routing.experts] = rows;
  args.tile_offsets[args.routing.experts] = tiles;
}

// Backwards: no result may depend on the order within an expert.
inline void HostScatter(const MoeSortArgs& args) {
  for (int64_t slot = device::SlotCount(args.routing) - 1; slot >= 0; --slot) {
    const int32_t expert = device::ExpertOfSlot(args.routing, slot);
    if (expert == device::kAbsent) continue;
    args.sorted_slots[args.counts[expert]++] = static_cast<uint32_t>(slot);
  }
}

inline void HostRoute(const RouteTopKArgs& args) {
  for (int64_t token = 0; token < args.tokens; ++token) {
    std::vector<device::RouteCandidate> order;
    for (int32_t id = 0; id < args.total_experts; ++id) {
      const float logit =
          device::LoadElement(args.logits_type, args.logits, token * args.logits_row_stride + id);
      order.push_back({device::OrderedLogit(logit), id});
    }
    double sum = 0;
    for (const auto& candidate : order) sum += std::exp(static_cast<double>(candidate.logit));
    std::sort(order.begin(), order.end(), device::IsBefore);
    double chosen = 0;
    for (int32_t i = 0; i < args.top_k; ++i)
      chosen += std::exp(static_cast<double>(order[i].logit)) / sum;
    for (int32_t i = 0; i < args.top_k; ++i) {
      const double weight = std::exp(static_cast<double>(order[i].logit)) / sum;
      args.topk_ids[token * args.top_k + i] = order[i].id;
      args.topk_weights[token * args.top_k + i] =
          static_cast<float>(args.renormalize != 0 ? weight / chosen : weight);
    }
  }
}

inline void HostActivate(const MoeActivateArgs& args) {
  for (int64_t slot = 0; slot < device::SlotCount(args.routing); ++slot) {
    if (device::ExpertOfSlot(args.routing, slot) == device::kAbsent) continue;
    for (int64_t column = 0; column < args.columns_out; ++column) {
      device::StoreElement(args.out_type, args.out, slot * args.columns_out + column,
                           device::ActivateElement(args, slot, column));
    }
  }
}

inline void HostCombine(const MoeCombineArgs& args) {
  for (int64_t token = 0; token < args.routing.tokens; ++token) {
    for (int64_t column = 0; column < args.columns; ++column) {
      device::StoreElement(args.y_type, args.y, token * args.y_row_stride + column,
                           device::CombineElement(args, token, column));
    }
  }
}

// Runs a launch that packs; whether it is one.
inline bool RunFakePack(const cuda::FakeLaunch& launch) {
  if (launch.kernel.find("PackCodes") == std::string::npos) return false;
  const auto& args = *static_cast<const PackArgs*>(launch.params[0]);
  const int64_t blocks = launch.config.gridDimX;
  PackOnHost(args, blocks / args.Blocks(1));
  return true;
}

// Runs a launch whose GEMMs are of `Config`.
template <class Config>
CUresult RunFakeKernel(const cuda::FakeLaunch& launch) {
  const auto is = [&](const char* name) { return launch.kernel.find(name) != std::string::npos; };
  const auto args = [&](auto type) { return *static_cast<decltype(type)*>(launch.params[0]); };
  if (RunFakePack(launch)) return CUDA_SUCCESS;
  if (is("MoeRouteTopK")) {
    HostRoute(args(RouteTopKArgs{}));
  } else if (is("MoeCount")) {
    HostCount(args(MoeSortArgs{}));
  } else if (is("MoePrefix")) {
    HostPrefix(args(MoeSortArgs{}));
  } else if (is("MoeScatter")) {
    HostScatter(args(MoeSortArgs{}));
  } else if (is("MoeActivate")) {
    HostActivate(args(MoeActivateArgs{}));
  } else if (is("MoeCombine")) {
    HostCombine(args(MoeCombineArgs{}));
  } else if (is("Gemm")) {
    HostGemm<Config>::Run(args(GemmArgs{}), launch.config.gridDimX);
  } else {
    return CUDA_ERROR_NOT_FOUND;
  }
  return CUDA_SUCCESS;
}

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_KERNELS_LAUNCH_FAKE_KERNELS_H_

// What    Router logits -> top_k expert ids and weights per token: softmax over all experts, then
// the
//         top_k largest, ties to the lower id; optionally scaled to sum to 1.
// Shapes  One block of kRouteThreads per token, striding over tokens. Any total_experts, any top_k
// up to it. Keys    Sums run in one fixed order, in double precision. A NaN logit sorts last and
// makes every weight
//         of its own token NaN.
// Sync    Block-wide reductions.
#ifndef GEMMD_KERNELS_DEVICE_MOE_ROUTE_CUH_
#define GEMMD_KERNELS_DEVICE_MOE_ROUTE_CUH_

#include "kernels/contract/moe_args.h"
#include "kernels/device/element.cuh"

namespace gemmd::device {

inline constexpr int kRouteThreads = 128;

// Candidates are ordered by logit, largest first, then by id, smallest first.
struct RouteCandidate {
  float logit;
  int32_t id;
};

// A NaN orders as if it were below every number.
__host__ __device__ inline float OrderedLogit(float logit) {
  return logit != logit ? FloatOf(kFloatSign | kFloatInfinity) : logit;
}

__host__ __device__ inline bool IsBefore(const RouteCandidate& a, const RouteCandidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

#ifdef __CUDACC__

template <typename T, typename Combine>
__device__ T ReduceBlock(T value, T* scratch, Combine combine) {
  scratch[threadIdx.x] = value;
  __syncthreads();
  for (int half = kRouteThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      scratch[threadIdx.x] = combine(scratch[threadIdx.x], scratch[threadIdx.x + half]);
    }
    __syncthreads();
  }
  const T result = scratch[0];
  __syncthreads();
  return result;
}

struct TokenRouter {
  const RouteTopKArgs& args;
  const int64_t token;
  RouteCandidate* candidates;  // [kRouteThreads]
  double* sums;                // [kRouteThreads]

  __device__ float Logit(int32_t id) const {
    return LoadWideElement(args.logits_type, args.logits, token * args.logits_row_stride + id);
  }

  // The first candidate after `previous`; id -1 stands for "none yet".
  __device__ RouteCandidate Next(const RouteCandidate& previous) const {
    RouteCandidate best{FloatOf(kFloatSign | kFloatInfinity), args.total_experts};
    for (int32_t id = threadIdx.x; id < args.total_experts; id += kRouteThreads) {
      const RouteCandidate candidate{OrderedLogit(Logit(id)), id};
      const bool allowed = previous.id < 0 || IsBefore(previous, candidate);
      if (allowed && IsBefore(candidate, best)) best = candidate;
    }
    return ReduceBlock(best, candidates, [](const RouteCandidate& a, const RouteCandidate& b) {
      return IsBefore(b, a) ? b : a;
    });
  }

  __device__ double ExpSum(float largest) const {
    double sum = 0;
    for (int32_t id = threadIdx.x; id < args.total_experts; id += kRouteThreads) {
      sum += exp(static_cast<double>(Logit(id)) - largest);
    }
    return ReduceBlock(sum, sums, [](double a, double b) { return a + b; });
  }

  __device__ void Route() const {
    int32_t* ids = args.topk_ids + token * args.top_k;
    float* weights = args.topk_weights + token * args.top_k;
    RouteCandidate chosen{0, -1};
    double largest = 0, denominator = 1, chosen_sum = 0;
    for (int i = 0; i < args.top_k; ++i) {
      chosen = Next(chosen);
      if (i == 0) {
        largest = chosen.logit;
        denominator = ExpSum(chosen.logit);
      }
      const double weight = exp(static_cast<double>(Logit(chosen.id)) - largest) / denominator;
      chosen_sum += weight;
      if (threadIdx.x == 0) {
        ids[i] = chosen.id;
        weights[i] = static_cast<float>(weight);
      }
    }
    if (args.renormalize == 0 || threadIdx.x != 0) return;
    for (int i = 0; i < args.top_k; ++i) {
      const double weight = exp(static_cast<double>(Logit(ids[i])) - largest) / denominator;
      weights[i] = static_cast<float>(weight / chosen_sum);
    }
  }
};

__global__ void __launch_bounds__(kRouteThreads)
    MoeRouteTopK(const __grid_constant__ RouteTopKArgs args) {
  __shared__ RouteCandidate candidates[kRouteThreads];
  __shared__ double sums[kRouteThreads];
  for (int64_t token = blockIdx.x; token < args.tokens; token += gridDim.x) {
    TokenRouter{args, token, candidates, sums}.Route();
  }
}

#endif  // __CUDACC__

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_MOE_ROUTE_CUH_

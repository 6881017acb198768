// What    y = x * w^T for weights decoded in registers, on SM90: weights are wgmma's register
//         operand (64 rows of w a step), up to kTokens rows of x its shared-memory operand.
// Shapes  Grid: x = blocks of kRows rows of w, times the blocks of a cluster; y = tiles of kTokens
//         rows of x. Cluster: along x; block r of a cluster takes stages r, r + size, ... of K.
//         Threads: the math warpgroups of device/sm90_tile.cuh, then one that copies. Weights:
//         contract/packed_weights.h.
// Keys    Scales multiply sums of scale_step columns in float32; such sums are added in the order
//         of K, then over the cluster in the order of ranks: every run gives the same bits.
// Sync    full[stage]: bulk copy of weights and every producer thread's activations. empty[stage]:
//         one arrival per math warp.
#ifndef GEMMD_KERNELS_DEVICE_GEMM_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_GEMM_SM90_CUH_

#include "kernels/device/activation_tile_sm90.cuh"
#include "kernels/device/cluster_sum_sm90.cuh"
#include "kernels/device/group_product_sm90.cuh"
#include "kernels/device/ptx/cluster.cuh"
#include "kernels/device/ptx/warpgroup.cuh"
#include "kernels/device/stage_ring_sm90.cuh"
#include "kernels/device/weight_copy_sm90.cuh"

namespace gemmd::device {

// Which part of K a block works on: stages `first`, `first + step`, ... of kStageColumns columns.
struct StageRangeSm90 {
  int32_t first;
  int32_t step;
};

template <class Config>
__device__ __forceinline__ void ProduceSm90(const GemmArgs& args, StageRingSm90<Config> ring,
                                            int32_t tile, int64_t first_token, StageRangeSm90 range,
                                            int thread) {
  const auto weights = WeightCopySm90<Config>::Of(args, tile, gridDim.y == 1);
  const auto activations = ActivationTileSm90<Config>::Of(args, first_token, thread);
  const auto chunks = static_cast<int32_t>(PackedLayout::Chunks(args.weights.k));
  int32_t chunk = range.first * Config::kColumnGroups;
  for (; chunk < chunks; chunk += range.step * Config::kColumnGroups, ring.Advance()) {
    ring.WaitEmpty();
    if (thread == 0) weights.Start(chunk, ring.weights(), ring.full());
    activations.Load(chunk, ring.activations(), ring.full());
  }
}

// The chunks of one warpgroup. The next chunk's codes are read and decoded under this one's wgmma.
template <class Config>
__device__ __forceinline__ void MultiplySm90(const GemmArgs& args, StageRingSm90<Config> ring,
                                             StageRangeSm90 range, int thread,
                                             GroupProductSm90<Config>& product) {
  using Tile = Sm90Tile<Config>;
  // The same for the whole warp: descriptors then live in uniform registers.
  const int group = __shfl_sync(0xffffffffu, thread / 128, 0);
  const int column_group = group / Config::kRowGroups;
  const int row_group = group % Config::kRowGroups;
  const int lane = thread % 128;
  const bool is_first_of_warp = thread % 32 == 0;
  const auto last = static_cast<int32_t>(PackedLayout::Chunks(args.weights.k)) - 1;
  const int last_bytes = Tile::Layout().UnitBytes(PackedLayout::SlabsOf(last, args.weights.k));
  const int32_t step = range.step * Config::kColumnGroups;
  int32_t chunk = range.first * Config::kColumnGroups + column_group;
  const uint32_t tile = column_group * Tile::kChunkTileBytes;

  WeightUnitSm90<Config> unit;
  const auto load = [&] {
    ring.WaitFull();
    const int unit_bytes = chunk == last ? last_bytes : Tile::kUnitBytes;
    unit.Load(ring.weight_bytes() + column_group * Tile::kChunkBytes + row_group * unit_bytes,
              lane);
  };
  product.Clear();
  if (chunk > last) return;
  load();
  unit.DecodeSlab(0, product.a[0]);
  for (;;) {
    const StageRingSm90<Config> current = ring;
    ring.Advance();
    chunk += step;
    const bool has_next = chunk <= last;
    product.Multiply(unit, current.activations() + tile, has_next, load);
    current.ArriveEmpty(is_first_of_warp);
    if (!has_next) break;
  }
}

template <class Config>
__global__ void __launch_bounds__(Sm90Tile<Config>::kThreads, 1)
    GemmSm90(const __grid_constant__ GemmArgs args) {
  using Tile = Sm90Tile<Config>;
  using Sum = ClusterSumSm90<Config>;
  extern __shared__ __align__(1024) char shared[];
  const uint32_t rank = ptx::ClusterRank();
  const uint32_t blocks = ptx::ClusterSize();
  const auto tile = static_cast<int32_t>(blockIdx.x / blocks);
  const int64_t first_token = static_cast<int64_t>(blockIdx.y) * Config::kTokens;
  const StageRangeSm90 range = {static_cast<int32_t>(rank), static_cast<int32_t>(blocks)};
  const int thread = threadIdx.x;

  StageRingSm90<Config> ring(shared);
  if (thread == 0) ring.Init();
  __syncthreads();

  if (thread >= Tile::kMathThreads) {
    ptx::LowerRegisters<Tile::kProducerRegisters>();
    ProduceSm90<Config>(args, ring, tile, first_token, range, thread - Tile::kMathThreads);
    __syncwarp();
    ptx::NamedBarrierArrive<1, Tile::kThreads>();
  } else {
    ptx::RaiseRegisters<Tile::kMathRegisters>();
    GroupProductSm90<Config> product;
    MultiplySm90<Config>(args, ring, range, thread, product);
    ptx::NamedBarrier<1, Tile::kThreads>();  // the sums lie where the stages were
    auto* const sums = reinterpret_cast<float*>(shared);
    Sum::Put(sums, thread / 128, thread % 128, product.sum);
    ptx::ClusterArrive();
    ptx::ClusterWait();
    Sum::Store(args, ptx::SharedAddress(sums), first_token, tile * Tile::kRows, rank, blocks,
               thread);
    __syncwarp();
    ptx::ClusterArrive();
    ptx::ClusterWait();
  }
}

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_GEMM_SM90_CUH_

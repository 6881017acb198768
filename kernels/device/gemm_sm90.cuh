// What    y = x * w^T for weights decoded in registers, on SM90: weights are wgmma's register
//         operand (64 rows of w a step), up to kTokens rows of x its shared-memory operand.
// Shapes  Grid: x = tiles of kRows rows of w, times the parts of K; y = as many as x has tiles of
//         kTokens rows; TilePlaceSm90 says which block works on which.
//         Cluster, along x: kSharers neighbouring tiles that share the tile of x, times the parts
//         of K; part p takes stages p, p + parts, ... Threads: the math warpgroups of
//         device/sm90_tile.cuh, then one that copies. Weights: contract/packed_weights.h.
// Keys    Scales multiply sums of scale_step columns in float32; such sums are added in the order
//         of K, then over the parts in their order: every run gives the same bits.
// Sync    full[stage]: bulk copies of weights and x and, where threads copy x or its scales, one arrival
//         of each of them. empty[stage]: one arrival per math warp of every block that shares x.
// Overlap device/README.md, "Kernels that overlap". Before ptx::GridDependencyWait a thread touches the block's
//         shared memory, the arguments and the packed weights only. Threads that copy x or its scales wait
//         before the first of them; math threads wait before their first stage, hence before they read row
//         scales, bias or factors and before they write y. So no block ends without having waited.
#ifndef GEMMD_KERNELS_DEVICE_GEMM_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_GEMM_SM90_CUH_

#include "kernels/device/activation_tile_sm90.cuh"
#include "kernels/device/cluster_sum_sm90.cuh"
#include "kernels/device/group_product_sm90.cuh"
#include "kernels/device/ptx/grid_dependency.cuh"
#include "kernels/device/ptx/warpgroup.cuh"
#include "kernels/device/stage_ring_sm90.cuh"
#include "kernels/device/store_terms_sm90.cuh"
#include "kernels/device/tile_place_sm90.cuh"
#include "kernels/device/weight_copy_sm90.cuh"

namespace gemmd::device {

// Threads that arrive at a stage's full barrier beside the one that starts bulk copies.
template <class Config>
__device__ int ProducersSm90(const GemmArgs& args) {
  if (args.has_x_map == 0) return Sm90Tile<Config>::kProducerThreads;
  return Config::kHasXScales ? Sm90Tile<Config>::kXThreads : 0;
}

// Weights of stages whose x is mapped, by one warp. They are not waited for: no kernel in front writes them.
template <class Config>
__device__ __forceinline__ void ProduceWeightsSm90(const GemmArgs& args,
                                                   StageRingSm90<Config> ring, int32_t tile,
                                                   StageRangeSm90 range) {
  const auto weights = WeightCopySm90<Config>::Of(args, tile, gridDim.y == 1);
  const auto chunks = static_cast<int32_t>(Sm90Tile<Config>::Layout().Chunks(args.weights.k));
  int32_t chunk = range.first * Config::kColumnGroups;
  GEMMD_NO_UNROLL
  for (; chunk < chunks; chunk += range.step * Config::kColumnGroups, ring.Advance()) {
    ring.WaitEmpty();
    if (!ptx::ElectOne()) continue;
    weights.Start(chunk, ring.weights(), ring.full(), MappedActivationsSm90<Config>::kBytes);
  }
}

// x of the same stages by the tensor memory accelerator, and its scales by the threads; `thread` of kXThreads.
template <class Config>
__device__ __forceinline__ void ProduceMappedXSm90(const GemmArgs& args,
                                                   StageRingSm90<Config> ring,
                                                   int64_t first_token,
                                                   const ClusterPlaceSm90<Config>& place,
                                                   int thread) {
  const int warp = __shfl_sync(0xffffffffu, thread / 32, 0);
  if (!Config::kHasXScales && warp != 0) return;
  const auto activations = MappedActivationsSm90<Config>::Of(args, first_token,
                                                             {place.first_rank(), place.sharer});
  const auto x_scales = XScaleTileSm90<Config>::Of(args, first_token);
  const auto chunks = static_cast<int32_t>(Sm90Tile<Config>::Layout().Chunks(args.weights.k));
  const StageRangeSm90 range = place.range();
  ptx::GridDependencyWait();
  int32_t chunk = range.first * Config::kColumnGroups;
  GEMMD_NO_UNROLL
  for (; chunk < chunks; chunk += range.step * Config::kColumnGroups, ring.Advance()) {
    ring.WaitEmpty();
    if (warp == 0 && ptx::ElectOne()) {
      activations.Start(chunk, ring.activations(), ring.full());
    }
    if constexpr (Config::kHasXScales) {
      x_scales.Load(chunk, ring.x_scales(), thread, Sm90Tile<Config>::kXThreads);
      ptx::MbarrierArriveAfterCopies(ring.full());
    }
  }
}

// The threads copy x: for rows that the accelerator cannot address.
template <class Config>
__device__ __forceinline__ void ProduceCopiedSm90(const GemmArgs& args, StageRingSm90<Config> ring,
                                                  int32_t tile, int64_t first_token,
                                                  StageRangeSm90 range, int thread) {
  const auto weights = WeightCopySm90<Config>::Of(args, tile, gridDim.y == 1);
  const auto activations = ActivationTileSm90<Config>::Of(args, first_token, thread);
  const auto x_scales = XScaleTileSm90<Config>::Of(args, first_token);
  const auto chunks = static_cast<int32_t>(Sm90Tile<Config>::Layout().Chunks(args.weights.k));
  ptx::GridDependencyWait();
  int32_t chunk = range.first * Config::kColumnGroups;
  for (; chunk < chunks; chunk += range.step * Config::kColumnGroups, ring.Advance()) {
    ring.WaitEmpty();
    if (thread == 0) weights.Start(chunk, ring.weights(), ring.full(), 0);
    if constexpr (Config::kHasXScales) {
      x_scales.Load(chunk, ring.x_scales(), thread, Sm90Tile<Config>::kProducerThreads);
    }
    activations.Load(chunk, ring.activations(), ring.full());
  }
}

// Where one warpgroup's chunk lies in a stage.
template <class Config>
struct ChunkPlaceSm90 {
  using Tile = Sm90Tile<Config>;
  int column_group;
  int row_group;
  int first_token;  // of the thread, in fragment D
  int32_t last;     // chunk of K
  int last_slabs;

  __device__ typename GroupProductSm90<Config>::Chunk In(const StageRingSm90<Config>& ring,
                                                         int32_t chunk) const {
    const bool is_whole = chunk != last || last_slabs == PackedLayout::kSlabsPerChunk;
    const int unit_bytes = is_whole ? Tile::kUnitBytes : Tile::Layout().UnitBytes(1);
    return {ring.weight_bytes() + column_group * Tile::kChunkBytes + row_group * unit_bytes,
            ring.activations() + column_group * Tile::kChunkTileBytes,
            ring.x_scale_floats() + column_group * PackedLayout::kSlabsPerChunk * Config::kTokens +
                first_token,
            is_whole};
  }
};

// The next chunk of one warpgroup, for GroupProductSm90.
template <class Config>
struct NextChunkSm90 {
  const StageRingSm90<Config>& ring;
  const ChunkPlaceSm90<Config>& place;
  int32_t index;
  int lane;
  bool x_by_ordinary_copies;
  WeightUnitSm90<Config>& unit;
  typename GroupProductSm90<Config>::Chunk& chunk;

  __device__ void Wait() const {
    ring.WaitFull(x_by_ordinary_copies);
    chunk = place.In(ring, index);
    unit.LoadScales(chunk.unit, lane);
  }
  __device__ void LoadCodes() const { unit.LoadCodes(chunk.unit, lane, chunk.has_second_slab); }
};

// The chunks of one warpgroup. The next chunk's codes are read and decoded under this one's wgmma.
template <class Config>
__device__ __forceinline__ void MultiplySm90(const GemmArgs& args, StageRingSm90<Config> ring,
                                             const ClusterPlaceSm90<Config>& block, int thread,
                                             GroupProductSm90<Config>& product) {
  using Tile = Sm90Tile<Config>;
  // The same for the whole warp: descriptors then live in uniform registers.
  const int group = __shfl_sync(0xffffffffu, thread / 128, 0);
  const int lane = thread % 128;
  const bool x_by_ordinary_copies = args.has_x_map == 0;
  const StageRangeSm90 range = block.range();
  const auto last = static_cast<int32_t>(Tile::Layout().Chunks(args.weights.k)) - 1;
  const ChunkPlaceSm90<Config> place = {group / Config::kRowGroups, group % Config::kRowGroups,
                                        thread % 4 * 2, last,
                                        Tile::Layout().SlabsOf(last, args.weights.k)};
  const int32_t step = range.step * Config::kColumnGroups;
  int32_t index = range.first * Config::kColumnGroups + place.column_group;

  WeightUnitSm90<Config> unit;
  typename GroupProductSm90<Config>::Chunk chunk;
  product.Clear();
  if (index > last) return;
  const auto next = [&] {
    return NextChunkSm90<Config>{ring, place, index, lane, x_by_ordinary_copies, unit, chunk};
  };
  next().Wait();
  next().LoadCodes();
  unit.Decode(0, product.a[0]);
  for (;;) {
    const StageRingSm90<Config> current = ring;
    const auto current_chunk = chunk;
    ring.Advance();
    index += step;
    const bool has_next = index <= last;
    product.Multiply(unit, current_chunk, lane, has_next, next());
    current.ArriveEmpty(lane % 32, block.first_rank());
    if (!has_next) break;
  }
}

template <class Config>
__global__ void __launch_bounds__(Sm90Tile<Config>::kThreads, 1)
    GemmSm90(const __grid_constant__ GemmArgs args) {
  using Tile = Sm90Tile<Config>;
  using Sum = ClusterSumSm90<Config>;
  static_assert(Config::kWeightSharers == 1, "blocks share tiles of x here");
  extern __shared__ __align__(1024) char shared[];
  const auto place = ClusterPlaceSm90<Config>::Mine();
  const uint32_t clusters = gridDim.x / place.blocks();
  const TilePlaceSm90 tiles =
      TilePlaceSm90::Of(blockIdx.y * clusters + blockIdx.x / place.blocks(), clusters, gridDim.y);
  const auto tile = static_cast<int32_t>(tiles.cluster * Config::kSharers + place.sharer);
  const int64_t first_token = static_cast<int64_t>(tiles.token_tile) * Config::kTokens;
  const int thread = threadIdx.x;
  ptx::GridDependencyLaunch();

  StageRingSm90<Config> ring(shared);
  if (thread == 0) ring.Init(ProducersSm90<Config>(args));
  __syncthreads();
  if constexpr (Config::kSharers > 1) {  // others write into this block's stages
    ptx::ClusterArriveRelaxed();
    ptx::ClusterWait();
  }

  if (thread >= Tile::kMathThreads) {
    ptx::LowerRegisters<Tile::kProducerRegisters>();
    const int producer = thread - Tile::kMathThreads;
    if (args.has_x_map == 0) {
      ProduceCopiedSm90<Config>(args, ring, tile, first_token, place.range(), producer);
    } else if (__shfl_sync(0xffffffffu, producer / 32, 0) == 0) {
      ProduceWeightsSm90<Config>(args, ring, tile, place.range());
    } else {
      ptx::PrefetchTensorMap(&args.x_map);
      ProduceMappedXSm90<Config>(args, ring, first_token, place, producer - Tile::kWeightThreads);
    }
    __syncwarp();
    ptx::NamedBarrierArrive<1, Tile::kThreads>();
  } else {
    ptx::RaiseRegisters<Tile::kMathRegisters>();
    ptx::GridDependencyWait();
    PrefetchStoreTermsSm90<Config>(args, first_token, tile * Tile::kRows, thread);
    GroupProductSm90<Config> product;
    MultiplySm90<Config>(args, ring, place, thread, product);
    ptx::NamedBarrier<1, Tile::kThreads>();  // the sums lie where the stages were
    auto* const sums = reinterpret_cast<float*>(shared);
    Sum::Put(sums, thread / 128, thread % 128, product.sum);
    if (place.parts > 1) {
      ptx::ClusterArrive();
      ptx::ClusterWait();
    } else {
      ptx::NamedBarrier<2, Tile::kMathThreads>();
    }
    Sum::Store(args, ptx::SharedAddress(sums), first_token, tile * Tile::kRows, place.sharer,
               place.part, place.parts, thread);
    if (place.blocks() == 1) return;
    __syncwarp();
    // Others read this block's sums, and arrive at its barriers: no arrival may be on its way when it ends.
    if constexpr (Config::kSharers > 1) {
      ptx::ClusterArrive();
    } else {
      ptx::ClusterArriveRelaxed();
    }
    ptx::ClusterWait();
  }
}

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_GEMM_SM90_CUH_

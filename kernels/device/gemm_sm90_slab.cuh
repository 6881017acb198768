// What    y = x * w^T for weights decoded in registers, on SM90, for many rows of x: stages of one
//         slab leave room for tiles of 256 of them, and the matrix unit always has work.
// Shapes  Grid: x = clusters times their blocks; each works on tiles cluster, cluster + clusters,
//         ... (TilePlaceSm90). Cluster, along x: kSharers neighbouring tiles of w that share the
//         tile of x, times the parts of K; part p takes slabs p, p + parts, ... With several parts
//         every cluster has one tile. Threads: the math warpgroups of device/sm90_tile.cuh, then one
//         that copies. A stage holds one slab. x comes by the tensor memory accelerator: x_map.
// Keys    Every run gives the same bits: sums grow in the order of K, then over the parts.
// Sync    full[stage]: bulk copies of weights and x and, with scales of x, every producer thread.
//         empty[stage]: one arrival per math warp of every block that shares x. While a tile is
//         stored, its last stage is the math warps' own; the others fill for the next tile.
#ifndef GEMMD_KERNELS_DEVICE_GEMM_SM90_SLAB_CUH_
#define GEMMD_KERNELS_DEVICE_GEMM_SM90_SLAB_CUH_

#include "kernels/device/activation_tile_sm90.cuh"
#include "kernels/device/cluster_sum_sm90.cuh"
#include "kernels/device/ptx/warpgroup.cuh"
#include "kernels/device/slab_copy_sm90.cuh"
#include "kernels/device/slab_product_sm90.cuh"
#include "kernels/device/tile_place_sm90.cuh"
#include "kernels/device/tile_store_sm90.cuh"

namespace gemmd::device {

// The tiles of one block.
template <class Config>
struct TileWalkSm90 {
  using Tile = Sm90Tile<Config>;

  ClusterPlaceSm90<Config> place;
  uint32_t clusters;  // that tiles of w make
  uint32_t rows;      // of tiles of x
  uint32_t step;
  uint32_t index;

  __device__ static TileWalkSm90 Of(const GemmArgs& args) {
    const auto place = ClusterPlaceSm90<Config>::Mine();
    const auto tiles = static_cast<uint32_t>((args.weights.n + Tile::kRows - 1) / Tile::kRows);
    return {place, (tiles + Config::kSharers - 1) / Config::kSharers,
            static_cast<uint32_t>((args.m + Config::kTokens - 1) / Config::kTokens),
            gridDim.x / place.blocks(), blockIdx.x / place.blocks()};
  }

  __device__ bool HasTile() const { return index < static_cast<uint64_t>(clusters) * rows; }
  __device__ void Advance() { index += step; }
  __device__ TilePlaceSm90 tiles() const { return TilePlaceSm90::Of(index, clusters, rows); }
  __device__ int32_t tile() const {  // of w
    return static_cast<int32_t>(tiles().cluster * Config::kSharers + place.sharer);
  }
  __device__ int64_t first_token() const {
    return static_cast<int64_t>(tiles().token_tile) * Config::kTokens;
  }
};

template <class Config>
__device__ int32_t SlabsSm90(const GemmArgs& args) {
  constexpr int kColumns = Sm90Tile<Config>::Unit().slab_columns();
  return (args.weights.k + kColumns - 1) / kColumns;
}

// The scales of a tile of x on their way to a stage: Fetch begins with a slab's, Put ends with them. They
// lie in `slot` between, one of kAhead.
template <class Config>
struct NoScalesSm90 {
  static constexpr int kAhead = 1;

  __device__ NoScalesSm90(const GemmArgs&, const TileWalkSm90<Config>&, int) {}
  __device__ void Fetch(int, int32_t) {}
  __device__ void Put(int, int32_t, const StageRingSm90<Config>&) const {}
};

template <class Config>
struct CopiedScalesSm90 {
  static constexpr int kAhead = 1;
  XScaleTileSm90<Config> scales;
  int thread;

  __device__ CopiedScalesSm90(const GemmArgs& args, const TileWalkSm90<Config>& walk, int thread)
      : scales(XScaleTileSm90<Config>::Of(args, walk.first_token())), thread(thread) {}
  __device__ void Fetch(int, int32_t) {}
  __device__ void Put(int, int32_t slab, const StageRingSm90<Config>& ring) const {
    scales.Load(slab, ring.x_scales(), thread);
    ptx::MbarrierArriveAfterCopies(ring.full());
  }
};

template <class Config>
struct MultipliedScalesSm90 {
  static constexpr int kAhead = ScaleProductSm90<Config>::kAhead;
  ScaleProductSm90<Config> product;
  int thread;

  __device__ MultipliedScalesSm90(const GemmArgs& args, const TileWalkSm90<Config>& walk,
                                  int thread)
      : product(ScaleProductSm90<Config>::Of(args, walk.first_token(), walk.tile(), thread)),
        thread(thread) {}
  __device__ void Fetch(int slot, int32_t slab) { product.Fetch(slot, slab); }
  __device__ void Put(int slot, int32_t, const StageRingSm90<Config>& ring) const {
    product.Store(slot, ring.x_scale_floats(), thread);
    ptx::MbarrierArrive(ring.full());
  }
};

template <class Config, bool kHasXScales = Config::kHasXScales,
          bool kSharesScales = Config::kSharesScales>
struct TileScalesSm90 {
  using Type = NoScalesSm90<Config>;
};
template <class Config>
struct TileScalesSm90<Config, true, false> {
  using Type = CopiedScalesSm90<Config>;
};
template <class Config>
struct TileScalesSm90<Config, true, true> {
  using Type = MultipliedScalesSm90<Config>;
};

template <class Config>
__device__ __forceinline__ void ProduceSlabsSm90(const GemmArgs& args, StageRingSm90<Config> ring,
                                                 TileWalkSm90<Config> walk, int thread) {
  using Activations = MappedActivationsSm90<Config>;
  const int warp = __shfl_sync(0xffffffffu, thread / 32, 0);
  if (!Config::kHasXScales && warp != 0) return;
  const ClusterPlaceSm90<Config> place = walk.place;
  const int32_t slabs = SlabsSm90<Config>(args);
  for (; walk.HasTile(); walk.Advance()) {
    const auto weights = SlabCopySm90<Config>::Of(args, walk.tile(), walk.rows == 1);
    const auto activations =
        Activations::Of(args, walk.first_token(), {place.first_rank(), place.sharer});
    typename TileScalesSm90<Config>::Type scales(args, walk, thread);
    constexpr int kAhead = decltype(scales)::kAhead;
    const StageRangeSm90 range = place.range();
    const auto fetch = [&](int slot, int32_t slab) { scales.Fetch(slot, Min(slab, slabs - 1)); };
    GEMMD_UNROLL
    for (int slot = 0; slot < kAhead; ++slot) fetch(slot, range.first + slot * range.step);
    GEMMD_NO_UNROLL
    for (int32_t slab = range.first; slab < slabs;) {
      GEMMD_UNROLL
      for (int slot = 0; slot < kAhead; ++slot, slab += range.step, ring.Advance()) {
        if (slab >= slabs) break;
        ring.WaitEmpty();
        if (warp == 0 && ptx::ElectOne()) {
          weights.Start(slab, ring.weights(), ring.full(), Activations::kBytes);
          activations.Start(slab, ring.activations(), ring.full());
        }
        scales.Put(slot, slab, ring);
        fetch(slot, slab + kAhead * range.step);
      }
    }
  }
}

// Adds up the parts of K, which lie in the blocks of the cluster.
template <class Config>
__device__ __forceinline__ void StoreParts(const GemmArgs& args, char* shared,
                                           const TileWalkSm90<Config>& walk,
                                           const SlabProductSm90<Config>& product, int thread) {
  using Sum = ClusterSumSm90<Config>;
  auto* const sums = reinterpret_cast<float*>(shared);
  ptx::NamedBarrier<2, Sm90Tile<Config>::kMathThreads>();  // the sums lie where the stages were
  Sum::Put(sums, thread / 128, thread % 128, product.sum);
  ptx::ClusterArrive();
  ptx::ClusterWait();
  const ClusterPlaceSm90<Config>& place = walk.place;
  Sum::Store(args, ptx::SharedAddress(sums), walk.first_token(),
             walk.tile() * Sm90Tile<Config>::kRows, place.sharer, place.part, place.parts, thread);
}

template <class Config>
__device__ __forceinline__ void MultiplySlabsSm90(const GemmArgs& args, char* shared,
                                                  StageRingSm90<Config> ring,
                                                  TileWalkSm90<Config> walk, int thread) {
  using Product = SlabProductSm90<Config>;
  using Store = TileStoreSm90<Config, typename Product::Sum>;
  static_assert(Store::kStageBytes * Sm90Tile<Config>::kMathThreads / 32 <=
                    Sm90Tile<Config>::kActivationBytes,
                "the warps' shares of a stage");
  const int warp = __shfl_sync(0xffffffffu, thread / 32, 0);
  const ClusterPlaceSm90<Config> place = walk.place;
  const int32_t slabs = SlabsSm90<Config>(args);
  const StageRangeSm90 range = place.range();
  const int32_t count = (slabs - range.first + range.step - 1) / range.step;
  const typename Product::Place mine = {warp / 4, thread % 128, place.first_rank()};
  Product product;
  for (; walk.HasTile(); walk.Advance()) {
    product.Multiply(ring, count, mine);
    if (place.parts > 1) {
      StoreParts<Config>(args, shared, walk, product, thread);
      return;
    }
    ptx::NamedBarrier<2, Sm90Tile<Config>::kMathThreads>();  // all have read the last stage
    const int32_t first_row = walk.tile() * Sm90Tile<Config>::kRows + warp * Store::kRows;
    if (first_row < args.weights.n) {
      int lane = thread % 32;
      ptx::PinRegister(lane);  // what is computed of it stays out of the loop's registers
      Store(args, walk.first_token(), first_row, lane,
            ring.activation_bytes() + warp * Store::kStageBytes)
          .Store(product.sum);
    }
    ptx::AsyncProxyFence();  // copies write there next
    ring.ArriveEmpty(thread % 32, place.first_rank());
    ring.Advance();
  }
}

template <class Config>
__global__ void __launch_bounds__(Sm90Tile<Config>::kThreads, 1)
    GemmSm90Slab(const __grid_constant__ GemmArgs args) {
  using Tile = Sm90Tile<Config>;
  extern __shared__ __align__(1024) char shared[];
  const auto walk = TileWalkSm90<Config>::Of(args);
  const int thread = threadIdx.x;

  StageRingSm90<Config> ring(shared);
  if (thread == 0) ring.Init(Config::kHasXScales ? Tile::kProducerThreads : 0);
  __syncthreads();
  if constexpr (Config::kSharers > 1) {  // others write into this block's stages
    ptx::ClusterArriveRelaxed();
    ptx::ClusterWait();
  }

  if (thread >= Tile::kMathThreads) {
    ptx::LowerRegisters<Tile::kProducerRegisters>();
    ptx::PrefetchTensorMap(&args.x_map);
    ProduceSlabsSm90<Config>(args, ring, walk, thread - Tile::kMathThreads);
  } else {
    ptx::RaiseRegisters<Tile::kMathRegisters>();
    MultiplySlabsSm90<Config>(args, shared, ring, walk, thread);
    if (walk.place.blocks() == 1) return;
    __syncwarp();
    // Others read this block's sums, and arrive at its barriers: no arrival may be on its way when it ends.
    ptx::ClusterArrive();
    ptx::ClusterWait();
  }
}

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_GEMM_SM90_SLAB_CUH_

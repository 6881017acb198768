// What    y = x * w^T for weights decoded in registers, or read from shared memory where they need no
//         decoding, on SM90, for many rows of x: stages of one slab leave room for tiles of 256 of
//         them, and the matrix unit always has work.
// Shapes  Grid: x = clusters times their blocks; each works on tiles cluster, cluster + clusters,
//         ... (TilePlaceSm90). Cluster, along x: kSharers neighbouring tiles of w that share the
//         tile of x, or kWeightSharers tiles of x that share the tile of w, times the parts of K; part p
//         takes slabs p, p + parts, ... With several parts (kSplitsK) every cluster has one tile. Threads: the math
//         warpgroups of device/sm90_tile.cuh, then one that copies. A stage holds one slab. x and its scales
//         come, and y may go, by the tensor memory accelerator: x_map, x_scale_map, y_map.
// Keys    Every run gives the same bits: sums grow in the order of K, then over the parts.
// Sync    full[stage]: copies of weights, x and scales of x.
//         empty[stage]: one arrival per math warp of every block that shares tiles. While a tile is
//         stored, its last stages (YStageSm90) are the math warps' own, or those of the warp that stores (StoreWarpSm90);
//         the others fill for the next tile.
// Overlap As device/gemm_sm90.cuh: the warp that copies x waits before it, math threads before their first
//         stage, and the warp that copies packed weights (scales that all rows of a tile share are among them)
//         not at all.
#ifndef GEMMD_KERNELS_DEVICE_GEMM_SM90_SLAB_CUH_
#define GEMMD_KERNELS_DEVICE_GEMM_SM90_SLAB_CUH_

#include "kernels/device/activation_tile_sm90.cuh"
#include "kernels/device/cluster_sum_sm90.cuh"
#include "kernels/device/ptx/grid_dependency.cuh"
#include "kernels/device/ptx/warpgroup.cuh"
#include "kernels/device/shared_product_sm90.cuh"
#include "kernels/device/slab_copy_sm90.cuh"
#include "kernels/device/slab_part_product_sm90.cuh"
#include "kernels/device/slab_run_product_sm90.cuh"
#include "kernels/device/slab_unit_product_sm90.cuh"
#include "kernels/device/store_terms_sm90.cuh"
#include "kernels/device/store_warp_sm90.cuh"
#include "kernels/device/tile_place_sm90.cuh"
#include "kernels/device/tile_store_sm90.cuh"
#include "kernels/device/token_product_sm90.cuh"
#include "kernels/device/token_store_sm90.cuh"

namespace gemmd::device {

// The tiles of one block.
template <class Config>
struct TileWalkSm90 {
  using Tile = Sm90Tile<Config>;
  static constexpr int kTokens = Config::kWeightSharers * Config::kTokens;  // of a cluster

  ClusterPlaceSm90<Config> place;
  uint32_t clusters;  // that tiles of w make
  uint32_t rows;      // and tiles of x
  uint32_t step;
  uint32_t index;

  __device__ static TileWalkSm90 Of(const GemmArgs& args) {
    const auto place = ClusterPlaceSm90<Config>::Mine();
    const auto tiles = static_cast<uint32_t>((args.weights.n + Tile::kRows - 1) / Tile::kRows);
    return {place, (tiles + Config::kSharers - 1) / Config::kSharers,
            static_cast<uint32_t>((args.m + kTokens - 1) / kTokens),
            gridDim.x / place.blocks(), blockIdx.x / place.blocks()};
  }

  __device__ bool HasTile() const { return index < static_cast<uint64_t>(clusters) * rows; }
  __device__ bool HasNext() const { return uint64_t{index} + step < static_cast<uint64_t>(clusters) * rows; }
  __device__ void Advance() { index += step; }
  __device__ TilePlaceSm90 tiles() const { return TilePlaceSm90::Of(index, clusters, rows); }
  __device__ int32_t tile() const {  // of w
    return static_cast<int32_t>(tiles().cluster * Config::kSharers + place.sharer % Config::kSharers);
  }
  __device__ int64_t first_token() const {
    const uint32_t of_cluster = Config::kWeightSharers == 1 ? 0 : place.sharer;
    return static_cast<int64_t>(tiles().token_tile) * kTokens + of_cluster * Config::kTokens;
  }
};

template <class Config>
__device__ int32_t SlabsSm90(const GemmArgs& args) {
  constexpr int kColumns = Sm90Tile<Config>::Unit().slab_columns();
  return (args.weights.k + kColumns - 1) / kColumns;
}

// How a warpgroup sums up its part of a tile, and what becomes of the sums.
template <class Config, class ProductOf>
struct RowPartsSm90 {
  using Product = ProductOf;
  using Store = TileStoreSm90<Config, typename Product::Sum>;

  __device__ static void Put(float* sums, int thread, const Product& product) {
    ClusterSumSm90<Config>::Put(sums, thread / 128, thread % 128, product.sum);
  }
};
template <class Config>
struct TokenPartsSm90 {
  using Product = TokenProductSm90<Config>;
  using Store = TokenStoreSm90<Config>;

  __device__ static void Put(float* sums, int thread, const Product& product) {
    using Mine = TokenPlaceSm90<Config>;
    GEMMD_UNROLL
    for (int block = 0; block < Mine::kBlocks; ++block) {
      ClusterSumSm90<Config>::PutTokens(
          sums, Mine::FirstToken(thread / 128) + block * Mine::kBlockTokens,
          Mine::FirstRow(thread / 128), thread % 128, product.sum[block]);
    }
  }
};
template <class Config, bool kSumsInUnit = MatrixStepSm90<Config>::kSumsInUnit, bool kIsLarge = (Config::kTokens > 128)>
struct DecodedPartsSm90 {
  using Type = RowPartsSm90<Config, SlabUnitProductSm90<Config>>;
};
template <class Config>
struct DecodedPartsSm90<Config, false, false> {
  using Type = RowPartsSm90<Config, SlabRunProductSm90<Config>>;
};
template <class Config>
struct DecodedPartsSm90<Config, false, true> {
  using Type = RowPartsSm90<Config, SlabPartProductSm90<Config>>;
};
template <class Config, bool kIsDirect = Sm90Tile<Config>::kIsDirect,
          bool kByToken = MatrixStepSm90<Config>::kPromotesByToken>
struct TilePartsSm90 : DecodedPartsSm90<Config> {};
template <class Config>
struct TilePartsSm90<Config, true, false> {
  using Type = RowPartsSm90<Config, SharedProductSm90<Config>>;
};
template <class Config>
struct TilePartsSm90<Config, true, true> {
  using Type = TokenPartsSm90<Config>;
};

// Weights, by one warp. They are not waited for: no kernel in front writes them.
template <class Config>
__device__ __forceinline__ void ProduceWeightSlabsSm90(const GemmArgs& args,
                                                       StageRingSm90<Config> ring,
                                                       TileWalkSm90<Config> walk) {
  const SharersSm90<Config> sharers = SharersSm90<Config>::Of(walk.place);
  const int32_t slabs = SlabsSm90<Config>(args);
  const StageRangeSm90 range = walk.place.range();
  int last_scale_tile = Config::kStages - 1;
  for (; walk.HasTile(); walk.Advance()) {
    const auto weights = SlabCopySm90<Config>::Of(args, walk.tile(), walk.rows == 1, walk.place);
    MappedXScalesSm90<Config> x_scales(args, walk.first_token(), sharers, last_scale_tile);
    GEMMD_NO_UNROLL
    for (int32_t slab = range.first; slab < slabs; slab += range.step, ring.Advance()) {
      if constexpr (Config::kHasXScales) x_scales.MoveTo(slab);
      ring.WaitEmpty();
      if (!ptx::ElectOne()) continue;
      if constexpr (Config::kHasXScales) ring.x_scale_place() = x_scales.place();
      weights.Start(slab, ring.weights(), ring.shared_scale(), ring.full(),
                    MappedActivationsSm90<Config>::kBytes + x_scales.bytes());
    }
    last_scale_tile = x_scales.tile();
  }
}

// x and its scales, by another warp.
template <class Config>
__device__ __forceinline__ void ProduceXSlabsSm90(const GemmArgs& args, StageRingSm90<Config> ring,
                                                  TileWalkSm90<Config> walk) {
  const SharersSm90<Config> sharers = SharersSm90<Config>::Of(walk.place);
  const int32_t slabs = SlabsSm90<Config>(args);
  const StageRangeSm90 range = walk.place.range();
  int last_scale_tile = Config::kStages - 1;
  ptx::GridDependencyWait();
  for (; walk.HasTile(); walk.Advance()) {
    const auto activations =
        MappedActivationsSm90<Config>::Of(args, walk.first_token(), sharers);
    MappedXScalesSm90<Config> x_scales(args, walk.first_token(), sharers, last_scale_tile);
    GEMMD_NO_UNROLL
    for (int32_t slab = range.first; slab < slabs; slab += range.step, ring.Advance()) {
      if constexpr (Config::kHasXScales) x_scales.MoveTo(slab);
      ring.WaitEmpty();
      if (!ptx::ElectOne()) continue;
      activations.Start(slab, ring.activations(), ring.full());
      if constexpr (Config::kHasXScales) x_scales.Start(ring);
    }
    last_scale_tile = x_scales.tile();
  }
}

// Adds up the parts of K, which lie in the blocks of the cluster.
template <class Config>
__device__ __forceinline__ void StoreParts(const GemmArgs& args, char* shared,
                                           const TileWalkSm90<Config>& walk,
                                           const typename TilePartsSm90<Config>::Type::Product& product,
                                           int thread) {
  using Sum = ClusterSumSm90<Config>;
  auto* const sums = reinterpret_cast<float*>(shared);  // where the stages were
  TilePartsSm90<Config>::Type::Put(sums, thread, product);
  ptx::ClusterArrive();
  ptx::ClusterWait();
  const ClusterPlaceSm90<Config>& place = walk.place;
  Sum::Store(args, ptx::SharedAddress(sums), walk.first_token(),
             walk.tile() * Sm90Tile<Config>::kRows, place.sharer, place.part, place.parts, thread);
}

// Through the last stage, which the copies get back then; or, when another tile follows, into the last two, for the
// warp that stores (YStageSm90).
template <class Config>
__device__ __forceinline__ void StoreTile(const GemmArgs& args, const TileWalkSm90<Config>& walk,
                                          const typename TilePartsSm90<Config>::Type::Product& product,
                                          int warp, int thread, int32_t slabs, StageRingSm90<Config>& ring) {
  using Stage = YStageSm90<Config>;
  using Store = typename TilePartsSm90<Config>::Type::Store;
  static_assert(Store::kStageBytes * Sm90Tile<Config>::kMathThreads / 32 <=
                    Sm90Tile<Config>::kActivationBytes,
                "the warps' shares of a stage");
  int lane = thread % 32;
  const bool behind = Stage::kIsUsed && Stage::Takes(args, slabs) && walk.HasNext();
  ptx::PinRegister(lane);  // what is computed of it stays out of the loop's registers
  Store store(args, walk.first_token(), walk.tile() * Sm90Tile<Config>::kRows, warp, lane,
              ring.activation_bytes() + warp * Store::kStageBytes);
  if constexpr (Stage::kIsUsed) {
    store.Store(product.sum, behind, Stage(ring));
  } else {
    store.Store(product.sum);
  }
  ptx::AsyncProxyFence();  // copies read, or write, there next
  if (behind) {
    __syncwarp();
    if (lane == 0) ptx::MbarrierArrive(ring.stored());
  } else {
    ring.ArriveEmpty(thread % 32, walk.place.first_rank());
    if (Stage::kKeptStages > 1 && slabs > 1) ring.Before().ArriveEmpty(thread % 32, walk.place.first_rank());
  }
  ring.Advance();
}

// y of the tiles that another one follows, by a third warp.
template <class Config>
__device__ __forceinline__ void StoreTilesSm90(const GemmArgs& args, StageRingSm90<Config> ring,
                                               TileWalkSm90<Config> walk, int lane) {
  const int32_t slabs = SlabsSm90<Config>(args);
  if (!YStageSm90<Config>::Takes(args, slabs)) return;
  StoreWarpSm90<Config> warp(args, lane, walk.place.first_rank());
  ring.AdvanceBy(slabs - 1);  // the last one of a tile
  for (; walk.HasNext(); walk.Advance(), ring.AdvanceBy(slabs)) {
    warp.Store(ring, static_cast<int32_t>(walk.first_token()), walk.tile() * Sm90Tile<Config>::kRows);
    warp.GiveBack(ring);
  }
}

template <class Config>
__device__ __forceinline__ void MultiplySlabsSm90(const GemmArgs& args, char* shared,
                                                  StageRingSm90<Config> ring,
                                                  TileWalkSm90<Config> walk, int thread) {
  using Product = typename TilePartsSm90<Config>::Type::Product;
  const int warp = __shfl_sync(0xffffffffu, thread / 32, 0);
  const ClusterPlaceSm90<Config> place = walk.place;
  const int32_t slabs = SlabsSm90<Config>(args);
  const StageRangeSm90 range = place.range();
  const int32_t count = (slabs - range.first + range.step - 1) / range.step;
  const typename Product::Place mine = {warp / 4, thread % 128, place.first_rank()};
  Product product;
  for (; walk.HasTile(); walk.Advance()) {
    PrefetchStoreTermsSm90<Config>(args, walk.first_token(), walk.tile() * Sm90Tile<Config>::kRows, thread);
    product.Multiply(ring, count, mine);
    ptx::NamedBarrier<2, Sm90Tile<Config>::kMathThreads>();  // all have read the last stage
    if constexpr (Config::kSplitsK) {
      StoreParts<Config>(args, shared, walk, product, thread);
      return;
    } else {
      StoreTile<Config>(args, walk, product, warp, thread, count, ring);
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(Sm90Tile<Config>::kThreads, 1)
    GemmSm90Slab(const __grid_constant__ GemmArgs args) {
  using Tile = Sm90Tile<Config>;
  extern __shared__ __align__(1024) char shared[];
  const auto walk = TileWalkSm90<Config>::Of(args);
  const int thread = threadIdx.x;
  ptx::GridDependencyLaunch();

  StageRingSm90<Config> ring(shared);
  if (thread == 0) ring.Init(/*producers=*/0);
  __syncthreads();
  if constexpr (Tile::kPartners > 1) {  // others write into this block's stages
    ptx::ClusterArriveRelaxed();
    ptx::ClusterWait();
  }

  if (thread >= Tile::kMathThreads) {
    ptx::LowerRegisters<Tile::kProducerRegisters>();
    const int warp = __shfl_sync(0xffffffffu, (thread - Tile::kMathThreads) / 32, 0);
    if (warp == 0) {
      ProduceWeightSlabsSm90<Config>(args, ring, walk);
    } else if (warp == 1) {
      ptx::PrefetchTensorMap(&args.x_map);
      if constexpr (Config::kHasXScales) ptx::PrefetchTensorMap(&args.x_scale_map);
      ProduceXSlabsSm90<Config>(args, ring, walk);
    } else if (YStageSm90<Config>::kIsUsed && warp == 2) {
      StoreTilesSm90<Config>(args, ring, walk, thread % 32);
    }
  } else {
    ptx::RaiseRegisters<Tile::kMathRegisters>();
    ptx::GridDependencyWait();
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

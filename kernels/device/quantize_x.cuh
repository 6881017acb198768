// What    x -> 8-bit codes and float32 scales: fetch, activation function, factors of the columns, Hadamard
//         transform, largest magnitude, scale, round. Or, without quantization: the last step rounds to
//         codes of 16 or 32 bits.
// Shapes  kernels/contract/quantize_args.h. Grid: x rows of codes, y slices of a row; kThreads threads.
// Memory  Shared: kHadamardBlock > 32 * kWidth: kThreads * kWidth floats; then the table of
//         quantize_x_maxima.cuh.
// Sync    Block-wide.
// Keys    The bits of a row depend on that row only.
// Overlap device/README.md, "Kernels that overlap": every thread waits before anything else, as x is the
//         previous kernel's and codes are what it may still read.
#ifndef GEMMD_KERNELS_DEVICE_QUANTIZE_X_CUH_
#define GEMMD_KERNELS_DEVICE_QUANTIZE_X_CUH_

#include "kernels/device/quantize_x_factors.cuh"
#include "kernels/device/quantize_x_hadamard.cuh"
#include "kernels/device/quantize_x_input.cuh"
#include "kernels/device/quantize_x_maxima.cuh"
#include "kernels/device/quantize_x_rows.cuh"
#include "kernels/device/quantize_x_store.cuh"
#include "kernels/device/quantize_x_wide_store.cuh"

#ifdef __CUDACC__
#include "kernels/device/ptx/grid_dependency.cuh"
#endif

namespace gemmd::device {

#ifdef __CUDACC__

template <class Config>
struct QuantizeBlock {
  using Tile = QuantizeTile<Config>;
  using Hadamard = HadamardTransform<Config>;
  using Input = QuantizeInput<Config>;
  using Factors = QuantizeFactors<Config>;
  using Store = QuantizeStore<Config>;
  using WideStore = QuantizeWideStore<Config>;
  static constexpr int kWidth = Tile::kWidth;
  static constexpr bool kExchanges = Hadamard::kThreads > 32;
  using Raw = typename Input::Raw;
  using Piece = float[kWidth];

  const QuantizeArgs& args;
  const Tile tile;
  const QuantizeRow<Config> source;
  const bool is_aligned;
  float* const exchange;  // [kWidth, kThreads]
  QuantizeMaxima<Config> maxima;

  __device__ QuantizeBlock(const QuantizeArgs& arguments, float* shared)
      : args(arguments),
        tile(Tile::Of(arguments, blockIdx.x, blockIdx.y)),
        source(QuantizeRow<Config>::Of(arguments, blockIdx.x)),
        is_aligned(Input::IsAligned(arguments, source.x_row)),
        exchange(shared),
        maxima{shared + (kExchanges ? kWidth * Config::kThreads : 0)} {}

  __device__ Raw Fetch(int chunk) const {
    const int32_t column = Tile::Column(chunk, threadIdx.x);
    return Input::Fetch(args, source.x_row, tile.first + column, is_aligned);
  }

  // Raw -> h.
  __device__ void Prepare(int chunk, const Raw& raw, Piece& piece) const {
    Input::Widen(args, raw, piece);
    if constexpr (Config::kInputScale) {
      const int32_t column = tile.first + Tile::Column(chunk, threadIdx.x);
      Factors::Multiply(args, source.factors, column, piece);
    }
    if constexpr (Hadamard::kBlock > 0) {
      Hadamard::InThread(piece);
#pragma unroll
      for (int apart = 1; apart < Hadamard::kThreads; apart *= 2) Butterfly(apart, piece);
      Hadamard::Normalise(piece);
    }
  }

  __device__ void Measure(int chunk, const Piece& piece) {
    if constexpr (HasDynamicScales(Config::kMode)) {
      maxima.Add(tile, chunk, LargestMagnitude(piece));
    }
  }

  __device__ void Quantize(int chunk, const Piece& piece) const {
    const int32_t column = Tile::Column(chunk, threadIdx.x);
    if (column >= tile.columns) return;
    if constexpr (Config::kMode == QuantizeMode::kNone) {
      WideStore::Piece(args, tile, column, piece);
    } else {
      StoreCodes(column, piece);
    }
  }

 private:
  __device__ void StoreCodes(int32_t column, const Piece& piece) const {
    const int32_t group_column = Store::GroupColumn(args, column);
    const float scale = Store::Scale(args, maxima.At(args, tile, group_column));
    Store::Piece(args, tile, column, group_column, scale, piece);
  }

  __device__ void Butterfly(int apart, Piece& piece) const {
    const bool is_upper = (threadIdx.x & apart) != 0;
    if (apart < 32) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float partner = __shfl_xor_sync(0xffffffffu, piece[i], apart);
        piece[i] = Hadamard::Across(piece[i], partner, is_upper);
      }
      return;
    }
    __syncthreads();  // the last exchange has been read
#pragma unroll
    for (int i = 0; i < kWidth; ++i) exchange[i * Config::kThreads + threadIdx.x] = piece[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float partner = exchange[i * Config::kThreads + (threadIdx.x ^ apart)];
      piece[i] = Hadamard::Across(piece[i], partner, is_upper);
    }
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::kThreads)
    QuantizeX(const __grid_constant__ QuantizeArgs args) {
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  extern __shared__ float shared[];
  using Block = QuantizeBlock<Config>;
  constexpr int kHeld = Block::Tile::kHeld;
  constexpr bool kHolds = Config::kMode != QuantizeMode::kNone;  // pieces, until scales are known
  Block block(args, shared);
  if (block.source.is_absent) return;
  const int chunks = block.tile.chunks();
  typename Block::Raw raw[kHeld];
  typename Block::Piece held[kHeld];
  typename Block::Piece passing;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (i < chunks) raw[i] = block.Fetch(i);
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (i >= chunks) break;
    block.Prepare(i, raw[i], held[i]);
    block.Measure(i, held[i]);
    if (!kHolds) block.Quantize(i, held[i]);
  }
  constexpr bool kMeasures = HasDynamicScales(Config::kMode);
  for (int i = kHeld; kMeasures && i < chunks; ++i) {
    block.Prepare(i, block.Fetch(i), passing);
    block.Measure(i, passing);
  }
  block.maxima.Finish();
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (kHolds && i < chunks) block.Quantize(i, held[i]);
  }
  for (int i = kHeld; i < chunks; ++i) {
    block.Prepare(i, block.Fetch(i), passing);
    block.Quantize(i, passing);
  }
}

#endif  // __CUDACC__

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_QUANTIZE_X_CUH_

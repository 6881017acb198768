// What    The generic kernel on the CPU, block by block: the same parts as kernels/device/gemm.cuh,
// with a
//         scalar matrix instruction. Finds faults of indexing, masking, terms and row mapping
//         without a GPU.
// How     A matrix instruction needs the fragments of 32 lanes. Each lane runs TileProduct twice:
// the
//         first run records its fragments, the second one adds the products computed from all of
//         them.
#ifndef GEMMD_TESTS_KERNELS_DEVICE_HOST_GEMM_H_
#define GEMMD_TESTS_KERNELS_DEVICE_HOST_GEMM_H_

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/contract/code_order.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/device/activation_tile.cuh"
#include "kernels/device/epilogue.cuh"
#include "kernels/device/row_tile.cuh"
#include "kernels/device/tile_product.cuh"
#include "kernels/device/weight_tile.cuh"

namespace gemmd::testing {

template <NumberFormat kWeightFormat, NumberFormat kScaleFormat,
          ZeroPointKind kZeroPointKind = ZeroPointKind::kNone,
          RowMapping kRows = RowMapping::kDense, int kTerms = 2, CodeOrder kOrder = CodeOrder::kRows>
struct HostConfig {
  static constexpr NumberFormat kWeight = kWeightFormat;
  static constexpr NumberFormat kScale = kScaleFormat;
  static constexpr ZeroPointKind kZeroPoint = kZeroPointKind;
  static constexpr CodeOrder kCodes = kOrder;
  static constexpr RowMapping kRowMapping = kRows;
  static constexpr int kWeightTerms = kTerms;
  static constexpr int kBlockM = 64;
  static constexpr int kBlockN = 64;
  static constexpr int kBlockK = 32;
  static constexpr int kWarpsM = 2;
  static constexpr int kWarpsN = 2;
};

// mma.sync.m16n8k8 over the fragments of one warp.
class LaneMma {
 public:
  struct Operands {
    float a[4];
    float b[2];
  };
  using Product = std::array<std::array<float, 8>, 16>;

  static void StartRecording(int lane) { Begin(lane, true); }
  static void StartAdding(int lane) { Begin(lane, false); }

  static void Multiply(float (&d)[4], const float (&a)[4], const float (&b)[2]) {
    if (recording_) {
      Operands operands;
      std::copy(a, a + 4, operands.a);
      std::copy(b, b + 2, operands.b);
      operands_[lane_].push_back(operands);
      return;
    }
    const Product& product = products_[next_++];
    const int group = lane_ / 4;
    const int column = lane_ % 4 * 2;
    for (int i = 0; i < 4; ++i) d[i] += product[group + i / 2 * 8][column + i % 2];
  }

  static void ComputeProducts() {
    products_.resize(operands_[0].size());
    for (size_t i = 0; i < products_.size(); ++i) products_[i] = ProductOf(i);
  }

 private:
  static void Begin(int lane, bool recording) {
    lane_ = lane;
    recording_ = recording;
    next_ = 0;
    if (recording) operands_[lane].clear();
  }

  // What the unit reads of an operand.
  static double Seen(float value) {
    return device::FloatOf(device::BitsOf(value) & device::kTf32Mask);
  }

  static Product ProductOf(size_t index) {
    double a[16][8];
    double b[8][8];
    for (int lane = 0; lane < 32; ++lane) {
      const Operands& operands = operands_[lane][index];
      const int group = lane / 4;
      const int t = lane % 4;
      for (int i = 0; i < 4; ++i) a[group + i % 2 * 8][t + i / 2 * 4] = Seen(operands.a[i]);
      for (int i = 0; i < 2; ++i) b[t + i * 4][group] = Seen(operands.b[i]);
    }
    Product product;
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 8; ++n) {
        double sum = 0;
        for (int k = 0; k < 8; ++k) sum += a[m][k] * b[k][n];
        product[m][n] = static_cast<float>(sum);
      }
    }
    return product;
  }

  static inline int lane_ = 0;
  static inline bool recording_ = true;
  static inline size_t next_ = 0;
  static inline std::array<std::vector<Operands>, 32> operands_;
  static inline std::vector<Product> products_;
};

template <class Config>
class HostGemm {
 public:
  using Tile = device::BlockTile<Config>;
  using Rows = device::RowTile<Config::kRowMapping, Config::kBlockM>;
  using Warp = device::WarpTile<Config>;
  using Product = device::TileProduct<Config, LaneMma>;

  static void Run(const GemmArgs& args, int64_t row_tiles) {
    for (int64_t tile = 0; tile < row_tiles; ++tile) {
      const Rows rows = Rows::Find(args, tile);
      if (rows.count == 0) continue;
      for (int32_t n0 = 0; n0 < args.weights.n; n0 += Config::kBlockN) RunTile(args, rows, n0);
    }
  }

 private:
  static void RunTile(const GemmArgs& args, const Rows& rows, int32_t n0) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<typename Warp::Accumulators> acc(Tile::kThreads);
    for (auto& accumulators : acc) Product::Clear(accumulators);
    for (int32_t k0 = 0; k0 < args.weights.k; k0 += Config::kBlockK) {
      std::vector<float> x_tile(Tile::kActivationFloats, nan);
      std::vector<float> w_tile(Tile::kWeightFloats, nan);
      for (int thread = 0; thread < Tile::kThreads; ++thread) {
        device::ActivationTile<Config>::Fill(args, rows, k0, thread, x_tile.data());
        device::WeightTile<Config>::Fill(args.weights, rows.expert, n0, k0, thread, w_tile.data());
      }
      for (int first = 0; first < Tile::kThreads; first += 32) {
        RunWarp(args, first, x_tile.data(), w_tile.data(), acc.data());
      }
    }
    for (int thread = 0; thread < Tile::kThreads; ++thread) {
      device::Epilogue<Config>::Store(args, rows, Warp::Of(thread), n0, acc[thread]);
    }
  }

  static void RunWarp(const GemmArgs& args, int first_thread, const float* x_tile,
                      const float* w_tile, typename Warp::Accumulators* acc) {
    const bool split = args.split_activations != 0;
    for (int lane = 0; lane < 32; ++lane) {
      typename Warp::Accumulators unused;
      Product::Clear(unused);
      LaneMma::StartRecording(lane);
      Product::Accumulate(Warp::Of(first_thread + lane), x_tile, w_tile, split, unused);
    }
    LaneMma::ComputeProducts();
    for (int lane = 0; lane < 32; ++lane) {
      LaneMma::StartAdding(lane);
      Product::Accumulate(Warp::Of(first_thread + lane), x_tile, w_tile, split,
                          acc[first_thread + lane]);
    }
  }
};

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_KERNELS_DEVICE_HOST_GEMM_H_

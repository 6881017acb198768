// What    The kernel that quantizes x on the CPU, block by block: the parts of kernels/device/quantize_x.cuh
//         in its order, with loops over threads between its barriers in place of shuffles.
#ifndef GEMMD_TESTS_KERNELS_DEVICE_HOST_QUANTIZE_H_
#define GEMMD_TESTS_KERNELS_DEVICE_HOST_QUANTIZE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/device/quantize_x.cuh"

namespace gemmd::testing {

template <ElementType kX, ElementType kCode, QuantizeMode kQuantizeMode, int kUnitColumns = 128,
          InputActivation kInput = InputActivation::kNone, int kBlock = 0, int kThreadCount = 64,
          bool kHasFactors = false>
struct HostQuantizeConfig {
  static constexpr ElementType kXType = kX;
  static constexpr ElementType kCodeType = kCode;
  static constexpr QuantizeMode kMode = kQuantizeMode;
  static constexpr InputActivation kActivation = kInput;
  static constexpr bool kInputScale = kHasFactors;
  static constexpr int kHadamardBlock = kBlock;
  static constexpr int kUnit = kUnitColumns;
  static constexpr int kThreads = kThreadCount;
};

template <class Config>
class HostQuantize {
 public:
  static void Run(const QuantizeArgs& args) {
    const int64_t slices = (args.k + args.slice_columns - 1) / args.slice_columns;
    for (int64_t row = 0; row < args.m; ++row) {
      for (int64_t slice = 0; slice < slices; ++slice) {
        HostQuantize(args, Tile::Of(args, row, slice)).RunBlock();
      }
    }
  }

 private:
  using Tile = device::QuantizeTile<Config>;
  using Hadamard = device::HadamardTransform<Config>;
  using Input = device::QuantizeInput<Config>;
  using Factors = device::QuantizeFactors<Config>;
  using Store = device::QuantizeStore<Config>;
  using WideStore = device::QuantizeWideStore<Config>;
  using Units = device::GroupUnits<Config>;
  static constexpr int kWidth = Tile::kWidth;
  struct Piece {
    float values[kWidth];
  };
  using Chunk = std::array<Piece, Config::kThreads>;

  HostQuantize(const QuantizeArgs& args, const Tile& tile)
      : args_(args),
        tile_(tile),
        source_(device::QuantizeRow<Config>::Of(args, tile.row)),
        table_(static_cast<size_t>(tile.columns / std::max(Config::kUnit, 1) + 1)) {}

  void RunBlock() {
    if (source_.is_absent) return;
    const bool is_aligned = Input::IsAligned(args_, source_.x_row);
    std::vector<Chunk> chunks(static_cast<size_t>(tile_.chunks()));
    for (size_t c = 0; c < chunks.size(); ++c) {
      for (int thread = 0; thread < Config::kThreads; ++thread) {
        const int32_t column = tile_.first + Tile::Column(static_cast<int>(c), thread);
        Input::Widen(args_, Input::Fetch(args_, source_.x_row, column, is_aligned),
                     chunks[c][thread].values);
        if constexpr (Config::kInputScale) {
          Factors::Multiply(args_, source_.factors, column, chunks[c][thread].values);
        }
      }
      if constexpr (Config::kHadamardBlock > 0) Transform(chunks[c]);
      Measure(static_cast<int>(c), chunks[c]);
    }
    for (size_t c = 0; c < chunks.size(); ++c) Quantize(static_cast<int>(c), chunks[c]);
  }

  static void Transform(Chunk& chunk) {
    for (Piece& piece : chunk) Hadamard::InThread(piece.values);
    for (int apart = 1; apart < Hadamard::kThreads; apart *= 2) {
      const Chunk before = chunk;
      for (int thread = 0; thread < Config::kThreads; ++thread) {
        for (int i = 0; i < kWidth; ++i) {
          chunk[thread].values[i] = Hadamard::Across(
              before[thread].values[i], before[thread ^ apart].values[i], (thread & apart) != 0);
        }
      }
    }
    for (Piece& piece : chunk) Hadamard::Normalise(piece.values);
  }

  void Measure(int c, const Chunk& chunk) {
    for (int thread = 0; thread < Config::kThreads; ++thread) {
      const int32_t column = Tile::Column(c, thread);
      const float largest = device::LargestMagnitude(chunk[thread].values);
      row_ = device::ptx::MaxNan(row_, largest);
      if (Config::kMode != QuantizeMode::kDynamicGroup || column >= tile_.columns) continue;
      float& unit = table_[static_cast<size_t>(column / Config::kUnit)];
      unit = device::ptx::MaxNan(unit, largest);
    }
  }

  void Quantize(int c, const Chunk& chunk) {
    for (int thread = 0; thread < Config::kThreads; ++thread) {
      const int32_t column = Tile::Column(c, thread);
      if (column >= tile_.columns) continue;
      if constexpr (Config::kMode == QuantizeMode::kNone) {
        WideStore::Piece(args_, tile_, column, chunk[thread].values);
      } else {
        StoreCodes(column, chunk[thread]);
      }
    }
  }

  void StoreCodes(int32_t column, const Piece& piece) {
    const int32_t group_column = Store::GroupColumn(args_, column);
    float largest = row_;
    if constexpr (Config::kMode == QuantizeMode::kDynamicGroup) {
      largest = Units::Largest(table_.data(), group_column, args_.group, tile_.columns);
    }
    Store::Piece(args_, tile_, column, group_column, Store::Scale(args_, largest), piece.values);
  }

  const QuantizeArgs& args_;
  const Tile tile_;
  const device::QuantizeRow<Config> source_;
  std::vector<float> table_;
  float row_ = 0;
};

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_KERNELS_DEVICE_HOST_QUANTIZE_H_

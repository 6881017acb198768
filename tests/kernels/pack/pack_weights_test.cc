// Packed weights, read back the way the device parts read them: thread by thread, in wgmma's fragment order.
#include "kernels/pack/pack_weights.h"

#include <gtest/gtest.h>

#include "kernels/contract/packed_weights.h"
#include "kernels/device/decode_int4_sm90.cuh"
#include "kernels/select/sm90_config.h"
#include "tests/kernels/random_layer.h"

namespace gemmd::testing {
namespace {

QuantSpec Spec(const NumberFormat& scale, int64_t block_n, int64_t block_k, ZeroPointKind zero) {
  QuantSpec spec;
  spec.weight = IntegerFormat(4);
  spec.scale = scale;
  spec.scale_block_n = block_n;
  spec.scale_block_k = block_k;
  spec.zero_point = zero;
  return spec;
}

PackedWeights Pack(const StandardTensor& tensor) {
  return PackWeights(tensor.spec, tensor.shape,
                     {tensor.codes, tensor.scales, tensor.zero_points, tensor.secondary_scales});
}

template <typename T>
T ValueAt(const std::vector<std::byte>& bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

float PackedScaleAt(const NumberFormat& format, const std::vector<std::byte>& bytes,
                    int64_t offset) {
  if (format == kFloat32) return ValueAt<float>(bytes, offset);
  return static_cast<float>(DecodeNumber(format, ValueAt<uint16_t>(bytes, offset)));
}

// Weights of one layer as threads of a warpgroup see them.
class PackedReader {
 public:
  explicit PackedReader(const StandardTensor& tensor)
      : tensor_(tensor),
        packing_(Sm90PackingOf(tensor.spec, tensor.shape)),
        packed_(Pack(tensor)) {}

  // PTX ISA, wgmma fragment A: register i of thread t in step s, lower or upper half.
  struct Element {
    int row;     // of the unit
    int column;  // of the slab
  };
  static Element ElementOf(int thread, int step, int i, int half) {
    const int lane = thread % 32;
    return {thread / 32 * 16 + lane / 4 + i % 2 * 8, step * 16 + lane % 4 * 2 + half + i / 2 * 8};
  }

  double Weight(int64_t chunk, int64_t unit, int slab, int thread, int step, int i,
                int half) const {
    const auto [row, column] = ElementOf(thread, step, i, half);
    const PackedLayout& layout = packing_.layout;
    const int64_t base = layout.UnitOffset(chunk, unit, tensor_.shape.n, tensor_.shape.k);
    const auto word = ValueAt<uint32_t>(
        packed_.units, base + layout.code_offset() + ((slab * 128 + thread) * 4 + step) * 4);
    using Decode = device::DecodeInt4Sm90<ElementType::kBFloat16>;
    const uint32_t pair = Decode::Raised(word, i);
    const double raised = DecodeNumber(kBFloat16, half == 0 ? pair & 0xffffu : pair >> 16);
    const int set = (slab * PackedLayout::kSlabColumns + column) / layout.scale_step;
    const int place = set * PackedLayout::kUnitRows + PackedLayout::PairIndex(row);
    const uint32_t zero =
        layout.has_zero_points
            ? ValueAt<uint8_t>(packed_.units, base + layout.zero_point_offset() + place)
            : 8u;
    double scale = 1;
    if (layout.scale_bytes > 0) {
      scale = PackedScaleAt(packing_.group_scale, packed_.units, base + place * layout.scale_bytes);
    }
    if (!packed_.channel_factor.empty() && unit * 64 + row < tensor_.shape.n) {
      scale *= ValueAt<float>(packed_.channel_factor, (unit * 64 + row) * 4);
    }
    const double offset = DecodeNumber(kBFloat16, Decode::Offset(zero) & 0xffffu);
    return (raised - offset) * scale;
  }

  void ExpectEveryWeight() const {
    const auto& [experts, n, k] = tensor_.shape;
    std::vector<std::vector<double>> rows;
    for (int64_t row = 0; row < n; ++row) rows.push_back(WeightRow(tensor_, 0, row));
    for (int64_t chunk = 0; chunk < PackedLayout::Chunks(k); ++chunk) {
      for (int64_t unit = 0; unit < PackedLayout::Units(n); ++unit) {
        for (int slab = 0; slab < PackedLayout::SlabsOf(chunk, k); ++slab) {
          for (int at = 0; at < 128 * 4 * 8; ++at) {
            const int thread = at / 32, step = at / 8 % 4, i = at / 2 % 4, half = at % 2;
            const auto [r, c] = ElementOf(thread, step, i, half);
            const int64_t row = unit * 64 + r;
            const int64_t column = chunk * 128 + slab * 64 + c;
            if (row >= n || column >= k) continue;
            const double want = rows[static_cast<size_t>(row)][static_cast<size_t>(column)];
            // Exact but for the product of a row's scale and its secondary scale in float32.
            ASSERT_NEAR(Weight(chunk, unit, slab, thread, step, i, half), want,
                        std::abs(want) * 1e-7)
                << row << ", " << column;
          }
        }
      }
    }
  }

  const PackedWeights& packed() const { return packed_; }

 private:
  const StandardTensor& tensor_;
  const Sm90Packing packing_;
  const PackedWeights packed_;
};

TEST(PackWeightsTest, EveryWeightIsWhereItsThreadLooksForIt) {
  Random random(5);
  const std::vector<QuantSpec> specs = {
      Spec(kFloat16, 1, 128, ZeroPointKind::kNone),
      Spec(kBFloat16, 1, 64, ZeroPointKind::kInteger),
      Spec(kFloat32, 1, 32, ZeroPointKind::kInteger),
      Spec(kFloat16, 1, 16, ZeroPointKind::kNone),
      Spec(kBFloat16, 1, 48, ZeroPointKind::kInteger),
      Spec(kFloat8E8M0, 1, 32, ZeroPointKind::kNone),
      Spec(kFloat8E4M3, 1, 96, ZeroPointKind::kNone),
      Spec(kFloat8E5M2, 1, 256, ZeroPointKind::kNone),
      Spec(kFloat16, 1, 0, ZeroPointKind::kInteger),
      Spec(kFloat32, 0, 0, ZeroPointKind::kNone),
      Spec(kFloat32, 48, 128, ZeroPointKind::kNone),
      Spec(kNoFormat, 1, 0, ZeroPointKind::kNone),
  };
  for (size_t i = 0; i < specs.size(); ++i) {
    for (const LayerShape& shape : {LayerShape{1, 70, 300}, {1, 64, 128}, {1, 130, 61}}) {
      QuantSpec spec = specs[i];
      if (i % 4 == 1) spec.secondary_scale = SecondaryScaleKind::kChannel;
      if (i % 4 == 2) spec.secondary_scale = SecondaryScaleKind::kTensor;
      ASSERT_TRUE(SupportsSm90(spec, shape, "sm_90a").ok()) << i;
      const StandardTensor tensor = RandomTensor(spec, shape, random);
      PackedReader(tensor).ExpectEveryWeight();
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "spec " << i << ", K " << shape.k;
    }
  }
}

TEST(PackWeightsTest, TheLastChunkKeepsOnlyTheSlabsThatKReaches) {
  PackedLayout layout;
  layout.scale_bytes = 2;
  EXPECT_EQ(layout.UnitBytes(2), 64 * 2 + 4096);
  EXPECT_EQ(layout.Bytes(128, 256), 2 * 2 * (64 * 2 + 4096));
  EXPECT_EQ(layout.Bytes(128, 257), 2 * 2 * (64 * 2 + 4096) + 2 * (64 * 2 + 2048));
  EXPECT_EQ(layout.Bytes(65, 64), 2 * (64 * 2 + 2048));
}

TEST(PackWeightsTest, ScalesThatServeAWholeRowTakeNoPlaceBesideTheCodes) {
  Random random(6);
  const StandardTensor tensor =
      RandomTensor(Spec(kFloat16, 1, 0, ZeroPointKind::kNone), {1, 64, 128}, random);
  const PackedWeights packed = Pack(tensor);
  EXPECT_EQ(packed.units.size(), 4096u);
  EXPECT_EQ(packed.channel_factor.size(), 64u * 4);
  EXPECT_EQ(Pack(tensor).units, packed.units);
}

TEST(DecodeInt4Sm90Test, RaisesEveryCodeExactlyInBothTypes) {
  for (uint32_t code = 0; code < 16; ++code) {
    const uint32_t word = code * 0x11111111u;
    for (int i = 0; i < 4; ++i) {
      const uint32_t bf16 = device::DecodeInt4Sm90<ElementType::kBFloat16>::Raised(word, i);
      const uint32_t f16 = device::DecodeInt4Sm90<ElementType::kFloat16>::Raised(word, i);
      EXPECT_EQ(DecodeNumber(kBFloat16, bf16 & 0xffffu), 128 + code);
      EXPECT_EQ(DecodeNumber(kBFloat16, bf16 >> 16), 128 + code);
      EXPECT_EQ(DecodeNumber(kFloat16, f16 & 0xffffu), 1024 + code);
      EXPECT_EQ(DecodeNumber(kFloat16, f16 >> 16), 1024 + code);
    }
  }
}

}  // namespace
}  // namespace gemmd::testing

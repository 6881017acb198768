#include "core/quant/standard_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "kernels/base/status.h"
#include "tests/support/random_tensor.h"

namespace gemmd {
namespace {

using testing::AnyTensor;
using testing::Append;
using ::testing::HasSubstr;

QuantSpec FullSpec() {
  return {.weight = IntegerFormat(3),
          .scale = kFloat16,
          .scale_block_n = 1,
          .scale_block_k = 16,
          .zero_point = ZeroPointKind::kInteger,
          .secondary_scale = SecondaryScaleKind::kChannel,
          .has_group_index = true,
          .bias = kBFloat16,
          .activation = kFloat8E4M3,
          .activation_scale = ActivationScaleKind::kStaticTensor};
}

StandardTensor FullTensor() { return AnyTensor(FullSpec(), {2, 3, 37}, 1); }

struct Damage {
  const char* name;
  std::function<void(StandardTensor&)> apply;
  const char* reason;
  const char* message;
};

void Set(Buffer& buffer, int64_t byte, int value) { buffer[byte] = static_cast<std::byte>(value); }

const Damage kDamages[] = {
    {"NoWeight", [](auto& t) { t.spec.weight = kNoFormat; }, "BAD_SPEC", "weight"},
    {"NineBits", [](auto& t) { t.spec.weight = IntegerFormat(9); }, "BAD_SPEC", "weight (integer of 9 bits)"},
    {"ExponentWeight", [](auto& t) { t.spec.weight = kFloat8E8M0; }, "BAD_SPEC", "weight"},
    {"WidthsDisagree",
     [](auto& t) {
       t.spec.weight = {NumberKind::kFloat, 8, 4, 2};
     },
     "BAD_SPEC", "weight"},
    {"ScaleFormat", [](auto& t) { t.spec.scale = FloatFormat(3, 4); }, "BAD_SPEC",
     "scale (float of 8 bits, 3 of exponent, 4 of mantissa, with finite numbers only)"},
    {"NegativeBlock", [](auto& t) { t.spec.scale_block_k = -1; }, "BAD_SPEC", "scale_block"},
    {"ZeroPointOfFloats", [](auto& t) { t.spec.weight = FloatFormat(1, 1); }, "BAD_SPEC",
     "zero_point"},
    {"UnknownZeroPoint", [](auto& t) { t.spec.zero_point = ZeroPointKind{9}; }, "BAD_SPEC",
     "zero_point"},
    {"UnknownSecondary", [](auto& t) { t.spec.secondary_scale = SecondaryScaleKind{9}; },
     "BAD_SPEC", "secondary_scale"},
    {"BiasFormat", [](auto& t) { t.spec.bias = kFloat8E4M3; }, "BAD_SPEC", "bias"},
    {"ScaleOfNoActivation", [](auto& t) { t.spec.activation = kNoFormat; }, "BAD_SPEC",
     "activation_scale"},
    {"GroupOfStaticScale", [](auto& t) { t.spec.activation_group = 32; }, "BAD_SPEC",
     "activation_group"},
    {"NoRows", [](auto& t) { t.shape.n = 0; }, "SHAPE_MISMATCH", "n is 0"},
    {"NegativeK", [](auto& t) { t.shape.k = -37; }, "SHAPE_MISMATCH", "k is -37"},
    {"HugeShape",
     [](auto& t) {
       t.shape = {int64_t{1} << 40, int64_t{1} << 40, int64_t{1} << 40};
     },
     "SHAPE_MISMATCH", "more than 2^63"},
    {"WrapsTo0",
     [](auto& t) {
       t.shape = {int64_t{1} << 32, int64_t{1} << 32, 32};
       t.codes.clear();
     },
     "SHAPE_MISMATCH", "codes"},
    {"NoScaleColumn", [](auto& t) { t.scale_columns = 0; }, "SHAPE_MISMATCH", "scale_columns"},
    {"ShortCodes", [](auto& t) { t.codes.pop_back(); }, "SHAPE_MISMATCH",
     "codes has 95 bytes, expected 96"},
    {"LongScales", [](auto& t) { t.scales.push_back({}); }, "SHAPE_MISMATCH", "scales"},
    {"NoZeroPoints", [](auto& t) { t.zero_points.clear(); }, "SHAPE_MISMATCH", "zero_points"},
    {"NoSecondary", [](auto& t) { t.secondary_scales.clear(); }, "SHAPE_MISMATCH",
     "secondary_scales"},
    {"NoGroupIndex", [](auto& t) { t.group_index.clear(); }, "SHAPE_MISMATCH", "group_index"},
    {"UnwantedGroupIndex", [](auto& t) { t.spec.has_group_index = false; }, "SHAPE_MISMATCH",
     "group_index"},
    {"NoBias", [](auto& t) { t.bias.clear(); }, "SHAPE_MISMATCH", "bias"},
    {"NoActivationScale", [](auto& t) { t.activation_scale.clear(); }, "SHAPE_MISMATCH",
     "activation_scale"},
    {"GroupTooLarge", [](auto& t) { Set(t.group_index, 8, 3); }, "BAD_SPEC", "group_index[2] is 3"},
    {"NegativeGroup", [](auto& t) { Set(t.group_index, 3, 0xff); }, "BAD_SPEC",
     "group_index[0] is -"},
    {"ZeroPointTooLarge", [](auto& t) { Set(t.zero_points, 0, 9); }, "BAD_SPEC",
     "zero_points[0] is 9"},
    {"NegativeZeroPoint", [](auto& t) { Set(t.zero_points, 1, 0x80); }, "BAD_SPEC",
     "zero_points[0] is -"},
    {"SpareBits", [](auto& t) { Set(t.codes, 15, 0x80); }, "BAD_SPEC",
     "after the last code of row 0"},
};

class DamagedTensorTest : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedTensorTest, IsRefusedWithAReasonAndTheTensorsName) {
  StandardTensor tensor = FullTensor();
  ASSERT_TRUE(Validate(tensor).ok()) << Validate(tensor);
  GetParam().apply(tensor);
  const absl::Status status = Validate(tensor);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(ReasonOf(status), GetParam().reason) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(Damages, DamagedTensorTest, ::testing::ValuesIn(kDamages),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ValidateTest, WantsTheGroupCountThatFollowsFromTheGroupSize) {
  StandardTensor tensor = AnyTensor(
      {.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 16}, {1, 2, 33}, 1);
  EXPECT_EQ(tensor.scale_columns, 3);
  EXPECT_TRUE(Validate(tensor).ok()) << Validate(tensor);
  tensor.scale_columns = 2;
  EXPECT_EQ(ReasonOf(Validate(tensor)), "SHAPE_MISMATCH");
}

// The digest is part of the protocol between versions: this value was computed from README.md's
// description with another SHA-256.
TEST(DigestTest, MatchesTheDocumentedByteStream) {
  StandardTensor tensor{.spec = {.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 8},
                        .shape = {1, 1, 8}};
  Append(tensor.codes, uint32_t{0x76543210});
  Append(tensor.scales, uint16_t{0x3c00});
  EXPECT_EQ(Digest(tensor), "1e0da7728c9d9212a3bad0156c214c7adc08a18d55a30cd8127fb0fdd44e0aa1");
}

// The second stream, of layers that have what the first has no place for; computed the same way.
TEST(DigestTest, MatchesTheDocumentedSecondStream) {
  StandardTensor tensor{.spec = {.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 8},
                        .shape = {1, 1, 8}};
  Append(tensor.codes, uint32_t{0x76543210});
  Append(tensor.scales, uint16_t{0x3c00});
  StandardTensor scaled = tensor;
  scaled.has_input_scale = true;
  for (int i = 1; i <= 8; ++i) Append(scaled.input_scale, static_cast<float>(i));
  EXPECT_EQ(Digest(scaled), "9770da0c8f80c6e653ff4e630f5f1d17a63b4f9690b8e394cef262d4686bf6b0");
  tensor.encoding = {.format = kInt8,
                     .scale = ActivationScaleKind::kStaticTensor,
                     .group = 0,
                     .zero_points = true,
                     .group_scale = kNoFormat};
  Append(tensor.activation_scale, 0.5f);
  Append(tensor.activation_zero_point, int16_t{-3});
  EXPECT_EQ(Digest(tensor), "c3b9f0fab83987ff9f915d41392a972c8694e72e4e9c500d6cd5fd4f9b13d67a");
}

TEST(DigestTest, DependsOnEverything) {
  const StandardTensor tensor = FullTensor();
  const std::string digest = Digest(tensor);
  EXPECT_EQ(Digest(FullTensor()), digest);
  const std::function<void(StandardTensor&)> changes[] = {
      [](auto& t) { t.spec.weight.special = SpecialValues::kIeee; },
      [](auto& t) { t.spec.scale = kBFloat16; },
      [](auto& t) { t.spec.scale_block_n = 2; },
      [](auto& t) { t.spec.activation = kFloat8E5M2; },
      [](auto& t) {
        t.shape = {3, 2, 37};
      },
      [](auto& t) { t.scale_columns = 4; },
      [](auto& t) { t.gate_up_interleaved = true; },
      [](auto& t) { t.codes[0] ^= std::byte{1}; },
      [](auto& t) { t.bias.back() ^= std::byte{1}; },
      [](auto& t) { t.activation_scale.push_back({}); },
      // The same bytes under another name.
      [](auto& t) { std::swap(t.secondary_scales, t.activation_scale); },
  };
  for (const auto& change : changes) {
    StandardTensor other = FullTensor();
    change(other);
    EXPECT_NE(Digest(other), digest);
  }
}

TEST(TotalBytesTest, CountsEveryTensor) {
  EXPECT_EQ(FullTensor().total_bytes(), 96 + 36 + 36 + 24 + 296 + 12 + 8);
}

}  // namespace
}  // namespace gemmd

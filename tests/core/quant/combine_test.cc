// Layers made of layers keep every weight.
#include "core/quant/combine.h"

#include <gtest/gtest.h>

#include "core/quant/reference.h"
#include "kernels/base/status.h"
#include "tests/support/random_tensor.h"

namespace gemmd {
namespace {

using testing::AnyTensor;

std::vector<float> PartRowOf(const StandardTensor& tensor, int64_t expert, int64_t row) {
  std::vector<float> values(tensor.shape.k);
  DequantizeRowFloat32(tensor, expert, row, absl::MakeSpan(values));
  return values;
}

void ExpectRowsOf(const StandardTensor& whole, const std::vector<StandardTensor>& parts) {
  ASSERT_TRUE(Validate(whole).ok()) << Validate(whole);
  for (int64_t expert = 0; expert < whole.shape.experts; ++expert) {
    int64_t row = 0;
    for (const StandardTensor& part : parts) {
      for (int64_t i = 0; i < part.shape.n; ++i, ++row) {
        EXPECT_EQ(PartRowOf(whole, expert, row), PartRowOf(part, expert, i)) << row;
        EXPECT_EQ(Bias(whole, expert, row), Bias(part, expert, i)) << row;
      }
    }
    EXPECT_EQ(row, whole.shape.n);
  }
}

void ExpectExpertsOf(const StandardTensor& whole, const std::vector<StandardTensor>& parts) {
  ASSERT_TRUE(Validate(whole).ok()) << Validate(whole);
  ASSERT_EQ(whole.shape.experts, static_cast<int64_t>(parts.size()));
  for (int64_t expert = 0; expert < whole.shape.experts; ++expert) {
    for (int64_t row = 0; row < whole.shape.n; ++row) {
      EXPECT_EQ(PartRowOf(whole, expert, row), PartRowOf(parts[expert], 0, row))
          << expert << " " << row;
    }
  }
}

std::vector<QuantSpec> Specs() {
  const QuantSpec nvfp4{.weight = kFloat4E2M1,
                        .scale = kFloat8E4M3,
                        .scale_block_k = 16,
                        .secondary_scale = SecondaryScaleKind::kTensor};
  return {
      {.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 16},
      {.weight = IntegerFormat(3),
       .scale = kBFloat16,
       .scale_block_k = 32,
       .zero_point = ZeroPointKind::kInteger,
       .bias = kBFloat16},
      {.weight = kFloat8E4M3, .scale = kFloat32, .scale_block_n = 0},
      {.weight = kFloat8E4M3, .scale = kFloat32, .scale_block_n = 8, .scale_block_k = 32},
      {.weight = IntegerFormat(2),
       .scale = kBFloat16,
       .scale_block_n = 0,
       .zero_point = ZeroPointKind::kInteger},
      nvfp4,
      {.weight = kBFloat16},
  };
}

TEST(ConcatenateRowsTest, KeepsEveryRow) {
  for (const QuantSpec& spec : Specs()) {
    for (const int64_t experts : {1, 2}) {
      const std::vector<StandardTensor> parts = {AnyTensor(spec, {experts, 8, 64}, 1),
                                                 AnyTensor(spec, {experts, 12, 64}, 2),
                                                 AnyTensor(spec, {experts, 5, 64}, 3)};
      const auto whole = ConcatenateRows(parts);
      ASSERT_TRUE(whole.ok()) << whole.status();
      ExpectRowsOf(*whole, parts);
    }
  }
}

TEST(ConcatenateRowsTest, SplitsBlocksWhereAPartEndsInsideOne) {
  const QuantSpec spec{
      .weight = kFloat8E4M3, .scale = kFloat32, .scale_block_n = 8, .scale_block_k = 32};
  const auto whole =
      ConcatenateRows({AnyTensor(spec, {1, 16, 64}, 1), AnyTensor(spec, {1, 12, 64}, 2)});
  EXPECT_EQ(whole->spec.scale_block_n, 8);
  const auto split =
      ConcatenateRows({AnyTensor(spec, {1, 12, 64}, 1), AnyTensor(spec, {1, 16, 64}, 2)});
  EXPECT_EQ(split->spec.scale_block_n, 4);
}

TEST(ConcatenateRowsTest, KeepsOneScaleThatAllPartsShare) {
  const QuantSpec spec{.weight = kFloat8E4M3, .scale = kFloat32, .scale_block_n = 0};
  StandardTensor a = AnyTensor(spec, {1, 4, 64}, 1);
  StandardTensor b = AnyTensor(spec, {1, 4, 64}, 2);
  b.scales = a.scales;
  EXPECT_EQ(ConcatenateRows({a, b})->spec.scale_block_n, 0);
}

TEST(ConcatenateRowsTest, WritesOutWhatOnlySomePartsHave) {
  const QuantSpec plain{.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 16};
  QuantSpec full = plain;
  full.zero_point = ZeroPointKind::kInteger;
  full.bias = kFloat16;
  full.secondary_scale = SecondaryScaleKind::kTensor;
  const std::vector<StandardTensor> parts = {AnyTensor(plain, {1, 4, 64}, 1),
                                             AnyTensor(full, {1, 4, 64}, 2)};
  const auto whole = ConcatenateRows(parts);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->spec.secondary_scale, SecondaryScaleKind::kChannel);
  ExpectRowsOf(*whole, parts);
}

TEST(ConcatenateRowsTest, RefusesOtherGroupIndexes) {
  const QuantSpec spec{
      .weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 16, .has_group_index = true};
  StandardTensor a = AnyTensor(spec, {1, 4, 64}, 1);
  StandardTensor b = AnyTensor(spec, {1, 4, 64}, 2);
  EXPECT_EQ(ReasonOf(ConcatenateRows({a, b}).status()), "PARTS_DIFFER");
  b.group_index = a.group_index;
  const auto whole = ConcatenateRows({a, b});
  ASSERT_TRUE(whole.ok()) << whole.status();
  ExpectRowsOf(*whole, {a, b});
}

TEST(ConcatenateRowsTest, TakesTheLargestStaticActivationScale) {
  const QuantSpec spec{.weight = kFloat8E4M3,
                       .scale = kFloat32,
                       .activation = kFloat8E4M3,
                       .activation_scale = ActivationScaleKind::kStaticTensor};
  StandardTensor a = AnyTensor(spec, {1, 4, 64}, 1);
  StandardTensor b = AnyTensor(spec, {1, 4, 64}, 2);
  const auto set = [](StandardTensor& tensor, float scale) {
    std::memcpy(tensor.activation_scale.data(), &scale, sizeof(scale));
  };
  set(a, 0.25f);
  set(b, 0.75f);
  const auto whole = ConcatenateRows({a, b});
  EXPECT_EQ(whole->activation_scale, b.activation_scale);
}

TEST(ConcatenateRowsTest, RefusesWhatCannotBeOneLayer) {
  const QuantSpec spec{.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 16};
  const StandardTensor a = AnyTensor(spec, {1, 4, 64}, 1);
  QuantSpec other = spec;
  other.weight = IntegerFormat(8);
  EXPECT_EQ(ReasonOf(ConcatenateRows({a, AnyTensor(other, {1, 4, 64}, 2)}).status()),
            "PARTS_DIFFER");
  other = spec;
  other.scale_block_k = 32;
  EXPECT_EQ(ReasonOf(ConcatenateRows({a, AnyTensor(other, {1, 4, 64}, 2)}).status()),
            "PARTS_DIFFER");
  EXPECT_EQ(ReasonOf(ConcatenateRows({a, AnyTensor(spec, {1, 4, 32}, 2)}).status()),
            "PARTS_DIFFER");
}

// Of one group of all K: the size is 0, or K or more.
std::vector<StandardTensor> PartsOfOneGroup(QuantSpec spec, bool with_group_index) {
  std::vector<StandardTensor> parts;
  for (const int64_t group : {64, 0, 100}) {
    spec.scale_block_k = group;
    spec.has_group_index = with_group_index && group == 64;
    parts.push_back(AnyTensor(spec, {1, 8, 64}, static_cast<uint64_t>(group)));
  }
  return parts;
}

TEST(ConcatenateRowsTest, JoinsOneGroupOfAllColumnsHoweverItsSizeIsWritten) {
  const QuantSpec spec{.weight = IntegerFormat(4), .scale = kFloat16, .zero_point = ZeroPointKind::kInteger};
  for (const bool with_group_index : {false, true}) {
    const std::vector<StandardTensor> parts = PartsOfOneGroup(spec, with_group_index);
    const auto rows = ConcatenateRows(parts);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ(rows->spec.scale_block_k, 0);
    ExpectRowsOf(*rows, parts);
    const auto experts = StackExperts(parts);
    ASSERT_TRUE(experts.ok()) << experts.status();
    ExpectExpertsOf(*experts, parts);
  }
  const StandardTensor part = PartsOfOneGroup(spec, false)[0];
  EXPECT_EQ(ConcatenateRows({part, part})->spec.scale_block_k, 64) << "as all parts have it";
}

TEST(ConcatenateRowsTest, SaysGroupSizesAsConfigsDo) {
  QuantSpec spec{.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 16};
  const StandardTensor groups = AnyTensor(spec, {1, 4, 64}, 1);
  spec.scale_block_k = 0;
  EXPECT_EQ(ConcatenateRows({groups, AnyTensor(spec, {1, 4, 64}, 2)}).status().message(),
            "group size: part 1 has -1, part 0 has 16");
}

// What a list of layers says of them tells whether they will fit, and what is bridged is no difference.
TEST(CheckAlikeTest, NeedsNoBytes) {
  const QuantSpec plain{.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 16};
  QuantSpec full = plain;
  full.zero_point = ZeroPointKind::kInteger;
  full.bias = kFloat16;
  full.has_group_index = true;
  QuantSpec other = plain;
  other.bias = kFloat32;
  const auto facts = [](const QuantSpec& spec, int64_t k) {
    StandardTensor tensor;
    tensor.spec = spec;
    tensor.shape = {1, 4, k};
    tensor.scale_columns = k / 16;
    return tensor;
  };
  EXPECT_TRUE(CheckAlike({facts(plain, 64), facts(full, 64)}).ok());
  EXPECT_TRUE(CheckAlike({facts(full, 64), facts(plain, 64)}).ok());
  EXPECT_EQ(ReasonOf(CheckAlike({facts(plain, 64), facts(plain, 32)})), "PARTS_DIFFER");
  EXPECT_EQ(ReasonOf(CheckAlike({facts(full, 64), facts(other, 64)})), "PARTS_DIFFER");
}

TEST(StackExpertsTest, KeepsEveryExpert) {
  for (const QuantSpec& spec : Specs()) {
    const std::vector<StandardTensor> parts = {AnyTensor(spec, {1, 8, 64}, 1),
                                               AnyTensor(spec, {1, 8, 64}, 2),
                                               AnyTensor(spec, {1, 8, 64}, 3)};
    const auto whole = StackExperts(parts);
    ASSERT_TRUE(whole.ok()) << whole.status();
    ExpectExpertsOf(*whole, parts);
  }
}

TEST(StackExpertsTest, BringsScalesOfTensorAndChannelTogether) {
  QuantSpec tensor{.weight = kFloat8E4M3, .scale = kFloat32, .scale_block_n = 0};
  QuantSpec channel = tensor;
  channel.scale_block_n = 1;
  channel.has_group_index = true;
  const std::vector<StandardTensor> parts = {AnyTensor(tensor, {1, 8, 64}, 1),
                                             AnyTensor(channel, {1, 8, 64}, 2)};
  const auto whole = StackExperts(parts);
  ASSERT_TRUE(whole.ok()) << whole.status();
  ExpectExpertsOf(*whole, parts);
  EXPECT_EQ(ReasonOf(StackExperts({parts[0], AnyTensor(tensor, {1, 4, 64}, 2)}).status()),
            "PARTS_DIFFER");
}

}  // namespace
}  // namespace gemmd

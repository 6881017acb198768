// Sources of layers on the wire: slices of checkpoints, and what tensors say of activations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/status.h"
#include "server/convert.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

v1::CheckpointSource Source() {
  v1::CheckpointSource source;
  source.set_path("/models/a");
  source.set_module("m");
  return source;
}

TEST(ConvertLayersTest, WithoutASliceTheModuleIsWhole) {
  const auto source = FromProto(Source());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->path, "/models/a");
  EXPECT_TRUE(source->slice.whole());
  EXPECT_EQ(source->slice.Text(), "");
  v1::CheckpointSource empty = Source();
  empty.mutable_slice()->mutable_rows();  // an axis without a part
  EXPECT_TRUE(FromProto(empty)->slice.whole());
}

TEST(ConvertLayersTest, RanksRangesAndPartsArrive) {
  v1::CheckpointSource source = Source();
  v1::LayerSlice& slice = *source.mutable_slice();
  slice.mutable_rows()->mutable_rank()->set_rank(3);
  slice.mutable_rows()->mutable_rank()->set_size(8);
  slice.mutable_columns()->mutable_range()->set_begin(128);
  slice.mutable_experts()->mutable_range()->set_begin(2);
  slice.mutable_experts()->mutable_range()->set_end(4);
  slice.add_row_parts()->set_rows(64);
  slice.add_row_parts()->set_rows(16);
  slice.mutable_row_parts(1)->set_replicas(2);
  const auto converted = FromProto(source);
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_EQ(converted->slice.Text(), "experts 2:4, rows 3/8, columns 128:, 64x1, 16x2");
}

TEST(ConvertLayersTest, BadSlicesNameTheField) {
  const auto expect = [](const std::function<void(v1::LayerSlice&)>& change, const char* reason,
                         const char* message) {
    v1::CheckpointSource source = Source();
    change(*source.mutable_slice());
    const auto converted = FromProto(source);
    EXPECT_EQ(ReasonOf(converted.status()), reason) << converted.status();
    EXPECT_THAT(std::string(converted.status().message()), HasSubstr(message));
  };
  expect([](auto& s) { s.mutable_rows()->mutable_rank(); }, "OUT_OF_RANGE", "slice.rows.rank.size");
  expect(
      [](auto& s) {
        s.mutable_columns()->mutable_rank()->set_size(2);
        s.mutable_columns()->mutable_rank()->set_rank(2);
      },
      "OUT_OF_RANGE", "slice.columns.rank.rank");
  expect([](auto& s) { s.mutable_experts()->mutable_range()->set_begin(-1); }, "OUT_OF_RANGE",
         "slice.experts.range.begin");
  expect(
      [](auto& s) {
        s.mutable_experts()->mutable_range()->set_begin(3);
        s.mutable_experts()->mutable_range()->set_end(3);
      },
      "OUT_OF_RANGE", "slice.experts.range.end");
  expect([](auto& s) { s.add_row_parts()->set_rows(4); }, "MISSING_FIELD", "slice.rows.rank");
  expect(
      [](auto& s) {
        s.mutable_rows()->mutable_rank()->set_size(2);
        s.add_row_parts();
      },
      "OUT_OF_RANGE", "slice.row_parts.rows");
  expect(
      [](auto& s) {
        s.mutable_rows()->mutable_rank()->set_size(2);
        for (int i = 0; i < 65; ++i) s.add_row_parts()->set_rows(1);
      },
      "OUT_OF_RANGE", "at most 64");
}

TEST(ConvertLayersTest, EncodingsRoundTrip) {
  for (const ActivationEncoding& encoding : {ActivationEncoding{.format = kInt8,
                                            .scale = ActivationScaleKind::kStaticTensor,
                                            .group = 0,
                                            .zero_points = true,
                                            .group_scale = kNoFormat},
                                             ActivationEncoding{.format = kFloat4E2M1,
                                             .scale = ActivationScaleKind::kDynamicGroup,
                                             .group = 16,
                                             .zero_points = false,
                                             .group_scale = kFloat8E4M3}}) {
    const auto back = FromProto(ToProto(encoding), "tensors.encoding");
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, encoding);
  }
  v1::ActivationEncoding bad;
  EXPECT_EQ(ReasonOf(FromProto(bad, "e").status()), "MISSING_FIELD");
  *bad.mutable_format() = ToProto(kInt8);
  bad.set_scale(static_cast<v1::ActivationScaleKind>(9));
  const auto unknown = FromProto(bad, "e");
  EXPECT_EQ(ReasonOf(unknown.status()), "UNKNOWN_ENUM");
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("e.scale"));
}

TEST(ConvertLayersTest, TensorsBringScalesAndZeroPointsOfX) {
  v1::TensorSource source;
  *source.mutable_spec()->mutable_weight() = ToProto(kBFloat16);
  source.set_n(2);
  source.set_k(4);
  *source.mutable_encoding()->mutable_format() = ToProto(kInt8);
  source.mutable_encoding()->set_zero_points(true);
  for (v1::RawRef* ref : {source.mutable_input_scale(), source.mutable_activation_zero_point(),
                          source.mutable_activation_global_scale()}) {
    ref->mutable_region()->set_id(7);
    ref->set_byte_size(16);
  }
  const auto converted = FromProto(source);
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_TRUE(converted->encoding.zero_points);
  EXPECT_EQ(converted->input_scale->byte_size, 16u);
  EXPECT_TRUE(converted->activation_zero_point.has_value());
  EXPECT_TRUE(converted->activation_global_scale.has_value());
  EXPECT_FALSE(converted->scales.has_value());
  source.mutable_input_scale()->clear_region();
  const auto missing = FromProto(source);
  EXPECT_EQ(ReasonOf(missing.status()), "MISSING_FIELD");
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("input_scale.region"));
}

TEST(ConvertLayersTest, InfosShowWhatHappensToX) {
  LayerInfo layer;
  layer.spec.weight = kBFloat16;
  EXPECT_FALSE(ToProto(layer).has_encoding());
  EXPECT_FALSE(ToProto(layer).has_input_scale());
  layer.has_input_scale = true;
  layer.encoding = {.format = kInt8,
                    .scale = ActivationScaleKind::kDynamicToken,
                    .group = 0,
                    .zero_points = true,
                    .group_scale = kNoFormat};
  const v1::LayerInfo wire = ToProto(layer);
  EXPECT_TRUE(wire.has_input_scale());
  EXPECT_TRUE(wire.encoding().zero_points());
  EXPECT_EQ(wire.encoding().scale(), v1::ACTIVATION_SCALE_KIND_DYNAMIC_TOKEN);
}

TEST(ConvertLayersTest, TargetsOfQuantizationArriveAndBadOnesNameTheField) {
  v1::CheckpointSource source = Source();
  EXPECT_FALSE(FromProto(source)->quantize.has_value());
  v1::QuantizeTo& to = *source.mutable_quantize();
  EXPECT_THAT(std::string(FromProto(source).status().message()), HasSubstr("checkpoint.quantize.spec"));
  *to.mutable_spec() = ToProto(QuantSpec{.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 32});
  to.set_rule(v1::SCALE_RULE_OCP);
  const auto converted = FromProto(source);
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_EQ(converted->quantize->rule, ScaleRule::kOcp);
  EXPECT_EQ(converted->quantize->spec.scale_block_k, 32);
  EXPECT_FALSE(converted->quantize->encoding.present());
  to.mutable_spec()->clear_weight();
  const absl::Status no_weight = FromProto(source).status();
  EXPECT_EQ(ReasonOf(no_weight), "MISSING_FIELD");
  EXPECT_THAT(std::string(no_weight.message()), HasSubstr("checkpoint.quantize: spec.weight"));
  to.set_rule(static_cast<v1::ScaleRule>(77));
  *to.mutable_spec()->mutable_weight() = ToProto(kFloat8E4M3);
  EXPECT_EQ(ReasonOf(FromProto(source).status()), "UNKNOWN_ENUM");
}

TEST(ConvertLayersTest, InfoSaysWhatTheDaemonQuantized) {
  LayerInfo info;
  EXPECT_EQ(ToProto(info).quantized(), v1::SCALE_RULE_UNSPECIFIED);
  info.quantized = QuantizedHere{ScaleRule::kNearestPower, {4, 16}};
  EXPECT_EQ(ToProto(info).quantized(), v1::SCALE_RULE_NEAREST_POWER);
  EXPECT_EQ(ToProto(info).quantization_error(), 0.5);
  EXPECT_EQ(ToProto(LayerProgress{LayerState::kQuantizing, 1, 2}).stage(),
            v1::RegisterLayerProgress::STAGE_QUANTIZING);
}

}  // namespace
}  // namespace gemmd

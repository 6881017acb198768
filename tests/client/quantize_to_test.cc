// Targets of quantization as text: what each word says, and what a bad one is told.
#include "client/quantize_to.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"

namespace gemmd::client {
namespace {

using ::testing::HasSubstr;

v1::QuantizeTo Parsed(const std::string& text) {
  const auto target = ParseQuantizeTo(text);
  EXPECT_TRUE(target.ok()) << text << ": " << target.status();
  return target.ok() ? *target : v1::QuantizeTo();
}

TEST(QuantizeToTest, AWeightTypeAloneIsScaledByChannel) {
  const v1::QuantSpec integer = Parsed("int3").spec();
  EXPECT_EQ(integer.weight().kind(), v1::NUMBER_KIND_INTEGER);
  EXPECT_EQ(integer.weight().bits(), 3u);
  EXPECT_EQ(integer.scale().bits(), 16u);
  EXPECT_EQ(integer.scale().mantissa_bits(), 10u);
  EXPECT_EQ(integer.scale_block_n(), 1u);
  EXPECT_EQ(integer.scale_block_k(), 0u);
  EXPECT_FALSE(integer.has_activation());
  const v1::QuantSpec number = Parsed("e4m3").spec();
  EXPECT_EQ(number.weight().special(), v1::SPECIAL_VALUES_NAN_ONLY);
  EXPECT_EQ(number.scale().bits(), 32u);
  EXPECT_EQ(Parsed("e5m2").spec().weight().special(), v1::SPECIAL_VALUES_IEEE);
  EXPECT_EQ(Parsed("e2m1").spec().weight().special(), v1::SPECIAL_VALUES_NONE);
  EXPECT_EQ(Parsed("e0m3").spec().weight().bits(), 4u);
}

TEST(QuantizeToTest, WordsSayTheRest) {
  const v1::QuantizeTo target = Parsed(
      "int4,block=64x32,scale=e4m3,zero=int,secondary=channel,rule=full_range,x=int8,x_group=32");
  const v1::QuantSpec& spec = target.spec();
  EXPECT_EQ(spec.scale_block_n(), 64u);
  EXPECT_EQ(spec.scale_block_k(), 32u);
  EXPECT_EQ(spec.scale().exponent_bits(), 4u);
  EXPECT_EQ(spec.zero_point(), v1::ZERO_POINT_KIND_INTEGER);
  EXPECT_EQ(spec.secondary_scale(), v1::SECONDARY_SCALE_KIND_CHANNEL);
  EXPECT_EQ(target.rule(), v1::SCALE_RULE_FULL_RANGE);
  EXPECT_EQ(spec.activation().bits(), 8u);
  EXPECT_EQ(spec.activation_scale(), v1::ACTIVATION_SCALE_KIND_DYNAMIC_GROUP);
  EXPECT_EQ(spec.activation_group(), 32u);
  EXPECT_FALSE(target.has_encoding());
  EXPECT_FALSE(Parsed("int8,scale=none").spec().has_scale());
  EXPECT_EQ(Parsed("int8,tensor").spec().scale_block_n(), 0u);
}

TEST(QuantizeToTest, PresetsAreTextsThatLaterWordsReplace) {
  std::set<std::string> targets;
  for (const auto& [name, text] : QuantizePresets()) {
    EXPECT_EQ(Parsed(name).SerializeAsString(), Parsed(text).SerializeAsString()) << name;
    EXPECT_TRUE(targets.insert(Parsed(name).SerializeAsString()).second) << name;
  }
  EXPECT_EQ(Parsed("w4a16,group=64").spec().scale_block_k(), 64u);
  EXPECT_EQ(Parsed("fp8-block,x=none").SerializeAsString(),
            Parsed("e4m3,block=128x128,scale=f32").SerializeAsString());
  EXPECT_EQ(Parsed("mxfp8,x=none").SerializeAsString(),
            Parsed("e4m3,group=32,scale=e8m0,rule=ocp").SerializeAsString());
  EXPECT_EQ(Parsed("w4a16,scale=bf16").spec().scale_block_k(), 128u);
  const v1::QuantizeTo mxfp8 = Parsed("mxfp8,x=e4m3,x_group=32,x_scale=e8m0");
  EXPECT_EQ(mxfp8.encoding().group_scale().kind(), v1::NUMBER_KIND_EXPONENT);
  EXPECT_EQ(mxfp8.encoding().group(), 32u);
  EXPECT_EQ(mxfp8.rule(), v1::SCALE_RULE_OCP);
  EXPECT_FALSE(Parsed("mxfp8").has_encoding());
}

TEST(QuantizeToTest, WordsThatContradictEachOtherAreNamed) {
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"int4,group=32,channel", "'group=32' and 'channel' contradict each other"},
           {"int4,group=32,group=64", "'group=32' and 'group=64'"},
           {"int4,block=8x8,scale=f16,tensor", "'block=8x8' and 'tensor'"},
           {"int4,scale=none,group=32", "'scale=none' and 'group=32'"},
           {"int4,group=32,scale=none", "'scale=none' and 'group=32'"},
           {"int4,scale=f16,scale=none", "'scale=f16' and 'scale=none'"},
           {"int4,x=int8,x=none", "'x=int8' and 'x=none'"},
           {"w4a16,group=64,channel", "'group=64' and 'channel'"},
           {"w4a16,scale=none",
            "preset w4a16 has scales ('int4,scale=none' has none): 'scale=none' and 'group=128'"},
           {"w8a8,scale=none", "'scale=none' and 'channel'"},
           {"fp8-block,x=none,scale=none", "'scale=none' and 'block=128x128'"},
           {"w4a16,scale=none,channel", "'scale=none' and 'channel' contradict"}}) {
    const auto target = ParseQuantizeTo(text);
    EXPECT_EQ(ReasonOf(target.status()), "BAD_ARGUMENT") << text;
    EXPECT_THAT(std::string(target.status().message()), HasSubstr(message)) << text;
  }
  EXPECT_EQ(Parsed("int4,group=32,group=32").spec().scale_block_k(), 32u) << "said twice";
  EXPECT_EQ(Parsed("w4a16,channel,scale=bf16").spec().scale_block_k(), 0u) << "a preset's words are replaced";
}

TEST(QuantizeToTest, BadWordsAreNamedWithWhatIsPossible) {
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "'': expected int1 to int8"},
           {"int9", "'int9': expected int1 to int8, eXmY such as e4m3, or one of w4a16"},
           {"e4m4", "'e4m4'"},
           {"int4,", "'': expected one of channel, tensor, group="},
           {"int4,groups=32", "'groups=32': expected one of channel, tensor, group="},
           {"int4,group=0", "'group=0': expected columns"},
           {"int4,group=many", "'group=many'"},
           {"int4,block=128", "expected rows and columns"},
           {"int4,scale=int8", "expected one of f16"},
           {"int4,zero=yes", "expected one of none, int, float"},
           {"int4,rule=best", "nearest_power"},
           {"int4,x_group=32", "x=TYPE"},
           {"int4,x=int8,x_scale=e8m0", "x_group=COLUMNS"},
           {"mxfp8,x=none,x_group=32", "x=TYPE"},
           {"int4,x=f16", "'x=f16'"}}) {
    const auto target = ParseQuantizeTo(text);
    EXPECT_EQ(ReasonOf(target.status()), "BAD_ARGUMENT") << text;
    EXPECT_THAT(std::string(target.status().message()), HasSubstr(message)) << text;
  }
}

}  // namespace
}  // namespace gemmd::client

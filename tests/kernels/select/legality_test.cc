#include "kernels/select/legality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/status.h"
#include "kernels/select/heuristics.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

GemmConfig Config() {
  QuantSpec spec;
  spec.weight = IntegerFormat(4);
  spec.scale = kFloat16;
  return ChooseConfig(spec, RowMapping::kDense);
}

void ExpectRefused(const absl::Status& status, const std::string& text) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ReasonOf(status), "NO_KERNEL");
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST(LegalityTest, AcceptsAmpereAndNewer) {
  for (const char* architecture :
       {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a", "sm_120f"}) {
    EXPECT_TRUE(Supports(Config(), architecture).ok()) << architecture;
  }
}

TEST(LegalityTest, RefusesTuringWithTheReason) {
  ExpectRefused(Supports(Config(), "sm_75"), "sm_75 has no TF32 matrix unit");
}

TEST(LegalityTest, RefusesNamesThatAreNoArchitecture) {
  for (const char* name : {"", "sm_", "90", "sm_9x", "compute_90", "sm_a", "sm_-80"}) {
    EXPECT_EQ(Supports(Config(), name).code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST(LegalityTest, RefusesTilesThatDoNotFitTogether) {
  GemmConfig config = Config();
  config.tuning.block_k = 12;
  ExpectRefused(Supports(config, "sm_80"), "block_k 12 is not a positive multiple of 8");
  config = Config();
  config.tuning.block_m = 48;
  ExpectRefused(Supports(config, "sm_80"), "block_m 48 is not a positive multiple of 32");
  config = Config();
  config.tuning.block_n = 256;
  ExpectRefused(Supports(config, "sm_80"), "bytes of shared memory");
  config = Config();
  config.tuning.warps_m = 33;
  ExpectRefused(Supports(config, "sm_80"), "warps 33x2");
}

TEST(LegalityTest, RefusesFormatsWithoutADecodePart) {
  GemmConfig config = Config();
  config.layer.weight = IntegerFormat(9);
  ExpectRefused(Supports(config, "sm_80"), "int9");
  config = Config();
  config.layer.scale = FloatFormat(4, 7);
  ExpectRefused(Supports(config, "sm_80"), "scales of 12 bits");
  config = Config();
  config.layer.weight = kFloat8E4M3;
  config.layer.zero_point = ZeroPointKind::kInteger;
  ExpectRefused(Supports(config, "sm_80"), "zero points need integer weights");
}

TEST(LegalityTest, BoundsEveryExtent) {
  EXPECT_TRUE(SupportsShape({1, 1, 1}).ok());
  EXPECT_TRUE(SupportsShape({2048, kLargestExtent, kLargestExtent}).ok());
  ExpectRefused(SupportsShape({1, kLargestExtent + 1, 1}), "n is");
  ExpectRefused(SupportsShape({1, 1, int64_t{1} << 40}), "k is");
  ExpectRefused(SupportsShape({0, 1, 1}), "experts is 0");
}

}  // namespace
}  // namespace gemmd

#include "client/gemmctl/reference.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace gemmd::gemmctl {
namespace {

v1::ExecutionReport Used(v1::NumberKind kind, uint32_t bits, uint32_t exponent_bits,
                         uint32_t mantissa_bits, v1::SpecialValues special) {
  v1::ExecutionReport report;
  v1::NumberFormat& used = *report.mutable_activation_used();
  used.set_kind(kind);
  used.set_bits(bits);
  used.set_exponent_bits(exponent_bits);
  used.set_mantissa_bits(mantissa_bits);
  used.set_special(special);
  return report;
}

const v1::ExecutionReport kBf16Used =
    Used(v1::NUMBER_KIND_FLOAT, 16, 8, 7, v1::SPECIAL_VALUES_IEEE);
const v1::ExecutionReport kE4M3Used =
    Used(v1::NUMBER_KIND_FLOAT, 8, 4, 3, v1::SPECIAL_VALUES_NAN_ONLY);
const v1::ExecutionReport kInt8Used =
    Used(v1::NUMBER_KIND_INTEGER, 8, 0, 0, v1::SPECIAL_VALUES_UNSPECIFIED);

// Scales 1: 448 and 127 are the largest codes.
TEST(OperandTest, IsXItselfWhereNothingWasQuantized) {
  const std::vector<double> x = {1, 2.0625, 448};
  EXPECT_EQ(*OperandOf({}, kBf16Used, 3, x), x);
}

TEST(OperandTest, IsCodesTimesTheScaleOfTheirRow) {
  EXPECT_EQ(*OperandOf({}, kE4M3Used, 3, {1, 2.0625, 448, 2.0625, 2, -896}),
            (std::vector<double>{1, 2, 448, 2, 2, -896}));
  EXPECT_EQ(*OperandOf({}, kInt8Used, 3, {1, 2.5, -127, 3, 0, 254}),
            (std::vector<double>{1, 2, -127, 4, 0, 254}));
}

TEST(OperandTest, IsCodesTimesTheScaleOfTheirGroup) {
  v1::QuantSpec spec;
  spec.set_activation_scale(v1::ACTIVATION_SCALE_KIND_DYNAMIC_GROUP);
  spec.set_activation_group(2);
  EXPECT_EQ(*OperandOf(spec, kInt8Used, 3, {1.25, 127, 254}), (std::vector<double>{1, 127, 254}));
}

TEST(OperandTest, StaticScalesAreTheCallers) {
  v1::QuantSpec spec;
  spec.set_activation_scale(v1::ACTIVATION_SCALE_KIND_STATIC_TENSOR);
  EXPECT_TRUE(OperandOf(spec, kBf16Used, 1, {1}).ok());
  EXPECT_EQ(OperandOf(spec, kE4M3Used, 1, {1}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(NeedsStaticScale(spec, kBf16Used));
  EXPECT_TRUE(NeedsStaticScale(spec, kE4M3Used));
  ActivationScaling scaling;
  scaling.element = kInt8;
  scaling.static_scale = 0.5f;
  EXPECT_EQ(*OperandOf(spec, kInt8Used, 3, {1, 2.2, -127}, scaling),
            (std::vector<double>{1, 2, -63.5})) << "steps of a half, 127 of them at most";
  scaling.asymmetric = true;
  scaling.static_zero_point = -100;
  EXPECT_EQ(*OperandOf(spec, kInt8Used, 3, {1, 100, -20}, scaling),
            (std::vector<double>{1, 100, -14})) << "from -128 to 127 less the zero point";
}

TEST(CompareTest, CountsWhatIsNotFiniteAlsoWhereBothAgree) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const ErrorReport agree =
      Compare({1, nan, infinity, -infinity}, {1, nan, infinity, -infinity}, 4);
  EXPECT_EQ(agree.nan, 1);
  EXPECT_EQ(agree.infinite, 2);
  EXPECT_TRUE(agree.Within(0));
  EXPECT_EQ(agree.compared, 1);
  const ErrorReport differ = Compare({1, nan}, {nan, 1}, 2);
  EXPECT_EQ(differ.nan, 1) << "of what was computed";
  EXPECT_EQ(differ.compared, 2) << "and found to differ";
  EXPECT_FALSE(differ.Within(1e30));
  const ErrorReport behind = Compare({nan, 2, 1}, {nan, 2, 4}, 3);
  EXPECT_EQ(behind.worst_column, 2);
  EXPECT_EQ(behind.want, 4);
  EXPECT_EQ(Compare({nan}, {nan}, 1).Text(), "nothing was compared");
}

}  // namespace
}  // namespace gemmd::gemmctl

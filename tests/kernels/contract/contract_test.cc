#include <gtest/gtest.h>

#include <type_traits>

#include "kernels/contract/element_type.h"
#include "kernels/contract/gemm_args.h"
#include "kernels/contract/moe_args.h"
#include "kernels/contract/quant_spec.h"

namespace gemmd {
namespace {

TEST(QuantSpecTest, CountsPartialGroupsAndBlocks) {
  QuantSpec spec;
  spec.weight = IntegerFormat(3);
  spec.scale_block_n = 128;
  spec.scale_block_k = 100;
  EXPECT_EQ(spec.ScaleRows(130), 2);
  EXPECT_EQ(spec.ScaleColumns(250), 3);
  EXPECT_EQ(spec.RowWords(11), 2);  // 33 bits
  spec.scale_block_n = 0;
  spec.scale_block_k = 0;
  EXPECT_EQ(spec.ScaleRows(130), 1);
  EXPECT_EQ(spec.ScaleColumns(250), 1);
}

TEST(NumberFormatTest, BiasesAreThoseOfTheStandards) {
  EXPECT_EQ(kFloat32.bias(), 127);
  EXPECT_EQ(kFloat16.bias(), 15);
  EXPECT_EQ(kFloat8E4M3.bias(), 7);
  EXPECT_EQ(kFloat8E5M2.bias(), 15);
  EXPECT_EQ(kFloat4E2M1.bias(), 1);
  EXPECT_EQ(kFloat8E8M0.bias(), 127);
  EXPECT_EQ(FloatFormat(0, 7).bias(), 0);
}

TEST(ElementTypeTest, KnowsEverySize) {
  EXPECT_EQ(ElementBytes(ElementType::kFloat32), 4);
  EXPECT_EQ(ElementBytes(ElementType::kFloat16), 2);
  EXPECT_EQ(ElementBytes(ElementType::kBFloat16), 2);
  EXPECT_EQ(ElementBytes(ElementType::kFloat8E4M3), 1);
  EXPECT_EQ(ElementBytes(ElementType::kFloat8E5M2), 1);
  EXPECT_EQ(ElementBytes(ElementType::kInt8), 1);
}

// Arguments are copied byte by byte into the launch; a kernel takes at most 4 KiB of them.
template <typename Args>
constexpr bool kFitsALaunch =
    std::is_trivially_copyable_v<Args>&& std::is_standard_layout_v<Args> && sizeof(Args) <= 4096;

TEST(KernelArgsTest, FitALaunch) {
  EXPECT_TRUE(kFitsALaunch<GemmArgs>);
  EXPECT_TRUE(kFitsALaunch<RouteTopKArgs>);
  EXPECT_TRUE(kFitsALaunch<MoeSortArgs>);
  EXPECT_TRUE(kFitsALaunch<MoeActivateArgs>);
  EXPECT_TRUE(kFitsALaunch<MoeCombineArgs>);
}

}  // namespace
}  // namespace gemmd

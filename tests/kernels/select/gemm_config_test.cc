#include "kernels/select/gemm_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "kernels/select/heuristics.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

QuantSpec GptqSpec() {
  QuantSpec spec;
  spec.weight = IntegerFormat(4);
  spec.scale = kFloat16;
  spec.scale_block_k = 128;
  spec.zero_point = ZeroPointKind::kInteger;
  spec.has_group_index = true;
  return spec;
}

TEST(GemmConfigTest, RendersOneIncludeAndOneStruct) {
  EXPECT_EQ(RenderProgram(ChooseConfig(GptqSpec(), RowMapping::kDense)),
            "#include \"kernels/device/gemm.cuh\"\n"
            "namespace gemmd::device {\n"
            "struct Config {\n"
            "  static constexpr NumberFormat kWeight = {NumberKind::kInteger, 4, 0, 0, "
            "SpecialValues::kNone};\n"
            "  static constexpr NumberFormat kScale = {NumberKind::kFloat, 16, 5, 10, "
            "SpecialValues::kIeee};\n"
            "  static constexpr ZeroPointKind kZeroPoint = ZeroPointKind::kInteger;\n"
            "  static constexpr CodeOrder kCodes = CodeOrder::kRows;\n"
            "  static constexpr RowMapping kRowMapping = RowMapping::kDense;\n"
            "  static constexpr int kWeightTerms = 2;\n"
            "  static constexpr int kBlockM = 64;\n"
            "  static constexpr int kBlockN = 64;\n"
            "  static constexpr int kBlockK = 32;\n"
            "  static constexpr int kWarpsM = 2;\n"
            "  static constexpr int kWarpsN = 2;\n"
            "};\n"
            "}  // namespace gemmd::device\n");
}

TEST(GemmConfigTest, ChangingAnyFieldChangesTheProgram) {
  const GemmConfig base = ChooseConfig(GptqSpec(), RowMapping::kDense);
  std::vector<GemmConfig> changed(11, base);
  changed[0].layer.weight = IntegerFormat(8);
  changed[1].layer.scale = kBFloat16;
  changed[2].layer.zero_point = ZeroPointKind::kFloat;
  changed[3].compute.row_mapping = RowMapping::kIndexed;
  changed[4].compute.weight_terms = 1;
  changed[5].tuning.block_m = 32;
  changed[6].tuning.block_n = 32;
  changed[7].tuning.block_k = 16;
  changed[8].tuning.warps_m = 1;
  changed[9].tuning.warps_n = 1;
  changed[10].layer.codes = CodeOrder::kPackedForWide;
  std::set<std::string> programs = {RenderProgram(base)};
  for (const GemmConfig& config : changed) programs.insert(RenderProgram(config));
  EXPECT_EQ(programs.size(), changed.size() + 1);
}

TEST(GemmConfigTest, DoesNotDependOnExtentsGroupSizesOrWhetherThereIsAGroupIndex) {
  QuantSpec other = GptqSpec();
  other.has_group_index = false;
  other.secondary_scale = SecondaryScaleKind::kChannel;
  other.scale_block_k = 32;
  other.scale_block_n = 128;
  other.bias = kFloat16;
  EXPECT_EQ(RenderProgram(ChooseConfig(other, RowMapping::kDense)),
            RenderProgram(ChooseConfig(GptqSpec(), RowMapping::kDense)));
}

TEST(GemmConfigTest, DescribesEveryFieldItRenders) {
  const GemmConfig config = ChooseConfig(GptqSpec(), RowMapping::kIndexed);
  const std::string program = RenderProgram(config);
  const auto fields = DescribeFields(config);
  EXPECT_EQ(fields.size(), 11u);
  for (const auto& [name, value] : fields) {
    EXPECT_THAT(program, HasSubstr(name + " = " + value + ";"));
  }
}

TEST(GemmConfigTest, NamesTheKernelByWhatItDoes) {
  EXPECT_EQ(KernelName(ChooseConfig(GptqSpec(), RowMapping::kDense)),
            "gemm_tf32x2_int4_f16_dense_64x64x32");
  EXPECT_EQ(KernelName(ChooseConfig(GptqSpec(), RowMapping::kIndexed, CodeOrder::kPackedForInt8)),
            "gemm_tf32x2_int4_f16_packed_indexed_64x64x32");
  EXPECT_EQ(NumberFormatName(kFloat8E8M0), "e8m0");
  EXPECT_EQ(NumberFormatName(kNoFormat), "none");
}

TEST(HeuristicsTest, OneTermOnlyWhereEveryWeightIsATf32Number) {
  QuantSpec spec;
  spec.weight = IntegerFormat(8);
  EXPECT_EQ(WeightTerms(spec), 1);
  spec.scale = kFloat8E8M0;
  EXPECT_EQ(WeightTerms(spec), 1);
  spec.zero_point = ZeroPointKind::kInteger;
  EXPECT_EQ(WeightTerms(spec), 1);
  spec.zero_point = ZeroPointKind::kFloat;
  EXPECT_EQ(WeightTerms(spec), 2);
  spec.zero_point = ZeroPointKind::kNone;
  spec.scale = kFloat16;
  EXPECT_EQ(WeightTerms(spec), 2);
  spec.scale = kFloat8E8M0;
  spec.secondary_scale = SecondaryScaleKind::kTensor;
  EXPECT_EQ(WeightTerms(spec), 2);
  QuantSpec wide;
  wide.weight = kFloat16;
  EXPECT_EQ(WeightTerms(wide), 1);
  wide.weight = kFloat32;
  EXPECT_EQ(WeightTerms(wide), 2);
}

}  // namespace
}  // namespace gemmd

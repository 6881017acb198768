// A number of bits or a size of groups that is wrong in the config shows in the shapes of scales: the message names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/checkpoint/checkpoint.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

struct WrongSize {
  const char* checkpoint;
  const char* pointer;  // of the field, below quantization_config
  const char* value;    // JSON
  const char* tensor;   // whose shape is told
  const char* config_says;
};

class WrongSizesTest : public testing::TestWithParam<WrongSize> {};

TEST_P(WrongSizesTest, AreToldWithTheShape) {
  const WrongSize& wrong = GetParam();
  EditableCheckpoint checkpoint(wrong.checkpoint);
  checkpoint.modelopt_config = nullptr;
  checkpoint.config["quantization_config"][nlohmann::ordered_json::json_pointer(wrong.pointer)] =
      nlohmann::ordered_json::parse(wrong.value);
  const TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  const std::string module = ListModules(CaseDirectory(wrong.checkpoint))->front();
  const absl::Status status = ReadLayer(directory.path(), module).status();
  EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT");
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("tensor " + module + wrong.tensor + ": expected "));
  EXPECT_THAT(message, EndsWith(std::string(" (with ") + wrong.config_says + " of the config)"));
}

constexpr char kGroupOfGroup0[] = "/config_groups/group_0/weights/group_size";

INSTANTIATE_TEST_SUITE_P(
    Exporters, WrongSizesTest,
    testing::Values(
        WrongSize{"gptq_v1_autogptq_b4_g128_sym", "/bits", "8", ".scales", "bits 8, group_size 128"},
        WrongSize{"gptq_v1_autogptq_b4_g128_sym", "/group_size", "-1", ".scales", "bits 4, group_size -1"},
        WrongSize{"autoround_native_b4_g32_asym", "/bits", "2", ".scales", "bits 2, group_size 32"},
        WrongSize{"awq_gemm_g128", "/group_size", "64", ".scales", "bits 4, group_size 64"},
        WrongSize{"ct_pack_w4_g128_sym", kGroupOfGroup0, "64", ".weight_scale", "num_bits 4, strategy group, group_size 64"},
        WrongSize{"ct_naive_int8_group", kGroupOfGroup0, "48", ".weight_scale", "num_bits 8, strategy group, group_size 48"},
        WrongSize{"ct_fp8_block_nondiv", "/config_groups/group_0/weights/block_structure", "[64, 64]", ".weight_scale",
                  "num_bits 8, strategy block, block_structure [64, 64]"},
        WrongSize{"fp8_block128_nondiv", "/weight_block_size", "[64, 32]", ".weight_scale_inv",
                  "weight_block_size [64, 32]"},
        WrongSize{"fp8_block128_nondiv", "/weight_block_size", "null", ".weight_scale_inv", "weight_block_size null"},
        WrongSize{"modelopt_w4a16_awq", "/group_size", "32", ".weight_scale", "quant_algo w4a16_awq, group_size 32"},
        WrongSize{"encoded_quark_int4_group", "/global_quant_config/weight/group_size", "16", ".weight_scale",
                  "dtype int4, qscheme per_group, group_size 16"}),
    [](const auto& info) { return std::string(info.param.checkpoint) + "_" + std::to_string(info.index); });

}  // namespace
}  // namespace gemmd

#include "core/checkpoint/plain_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

// Of a checkpoint that is not quantized.
std::vector<std::string> Listed(const RawTensors& tensors, const std::string& config) {
  const TemporaryDirectory directory;
  WriteFile(directory.path() / "config.json", config);
  WriteTensors(directory.path() / "model.safetensors", tensors);
  return *ListModules(directory.path(), {});
}

TEST(PlainModulesTest, DamagedLinearsAndStacksOfExpertsDoNotGoMissing) {
  const std::string layers = "model.layers.";
  RawTensors tensors;
  tensors[layers + "0.self_attn.q_proj.weight"] = {"BF16", {32, 4}, std::string(256, '\0')};
  tensors[layers + "0.self_attn.q_norm.weight"] = {"BF16", {32}, std::string(64, '\0')};
  tensors[layers + "0.mixer.conv1d.weight"] = {"BF16", {4, 1, 2}, std::string(16, '\0')};
  tensors[layers + "1.self_attn.q_proj.bias"] = {"BF16", {32}, std::string(64, '\0')};
  tensors[layers + "2.self_attn.q_proj.weight"] = {"BF16", {32, 2, 1}, std::string(128, '\0')};
  tensors[layers + "0.mlp.experts.gate_up_proj"] = {"BF16", {4, 2, 2}, std::string(32, '\0')};
  tensors[layers + "0.moe.input_linear.weight"] = {"BF16", {4, 2, 2}, std::string(32, '\0')};
  EXPECT_THAT(Listed(tensors, R"({"num_local_experts": 4})"),
              ::testing::UnorderedElementsAre(
                  layers + "0.self_attn.q_proj", layers + "1.self_attn.q_proj",
                  layers + "2.self_attn.q_proj", layers + "0.mlp.experts.gate_up_proj",
                  layers + "0.moe.input_linear"));
}

// What a config says that names no quantization: nothing.
TEST(PlainModulesTest, AnEmptyOrNullQuantizationConfigIsNone) {
  for (const char* config : {R"({"quantization_config": {}})", R"({"quantization_config": null})",
                             R"({"compression_config": {}, "quantization_config": null})", "{}"}) {
    SCOPED_TRACE(config);
    const TemporaryDirectory directory;
    WriteFile(directory.path() / "config.json", config);
    WriteTensors(directory.path() / "model.safetensors", PlainLinears({"a"}, 0x3f));
    EXPECT_THAT(*ListModules(directory.path()), ::testing::ElementsAre("a"));
    const auto layer = ReadLayer(directory.path(), "a");
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_EQ(layer->format, "unquantized");
  }
}

// Another key, or the file of an older exporter.
TEST(PlainModulesTest, AnEmptyQuantizationConfigHidesNoOther) {
  EditableCheckpoint checkpoint("gptq_v1_autogptq_b4_g128_sym");
  const std::string module = "model.layers.0.mlp.down_proj";
  const auto quantization = checkpoint.config["quantization_config"];
  checkpoint.config["quantization_config"] = nlohmann::ordered_json::object();
  const TemporaryDirectory separate;
  checkpoint.Write(separate.path());
  WriteFile(separate.path() / "quantize_config.json", quantization.dump());
  EXPECT_EQ(ReadLayer(separate.path(), module)->format, "gptq");
  checkpoint.config["compression_config"] = quantization;
  const TemporaryDirectory other_key;
  checkpoint.Write(other_key.path());
  EXPECT_EQ(ReadLayer(other_key.path(), module)->format, "gptq");
}

TEST(PlainModulesTest, ExpertsThatNothingCountsAreListed) {
  const TemporaryDirectory directory;
  WriteFile(directory.path() / "config.json", R"({"num_local_experts": 8})");
  RawTensors tensors;
  const std::string dbrx = "transformer.blocks.0.ffn.experts.mlp.";
  for (const char* name : {"w1", "v1", "w2"}) tensors[dbrx + name] = {"BF16", {8, 4}, std::string(64, '\0')};
  const std::string jetmoe = "model.layers.0.mlp.";
  tensors[jetmoe + "input_linear.weight"] = {"BF16", {2, 4, 4}, std::string(64, '\0')};
  tensors[jetmoe + "output_linear.weight"] = {"BF16", {2, 4, 2}, std::string(32, '\0')};
  WriteTensors(directory.path() / "model.safetensors", tensors);
  EXPECT_THAT(*ListModules(directory.path()),
              ::testing::UnorderedElementsAre(dbrx + "w1", dbrx + "v1", dbrx + "w2", jetmoe + "input_linear",
                                              jetmoe + "output_linear"));
  EXPECT_FALSE(ReadLayer(directory.path(), dbrx + "w1").ok());
  EXPECT_FALSE(ReadLayer(directory.path(), jetmoe + "input_linear").ok());
}

// Codes of a quantized module tell that the config is not the one of these files.
TEST(PlainModulesTest, QuantizedModulesWithoutAConfigFailAndDoNotGoMissing) {
  for (const char* name : {"gptq_v1_autogptq_b4_g128_sym", "awq_gemm_g128", "ct_mxfp4_plain",
                           "gptoss_mxfp4_hf", "gptoss_mxfp4_original_names"}) {
    SCOPED_TRACE(name);
    EditableCheckpoint checkpoint(name);
    const TemporaryDirectory whole;
    checkpoint.Write(whole.path());
    const std::vector<std::string> quantized = *ListModules(whole.path());
    checkpoint.config["quantization_config"] = nlohmann::ordered_json::object();
    const TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    const std::vector<std::string> listed = *ListModules(directory.path());
    EXPECT_THAT(listed, ::testing::IsSupersetOf(quantized));
    const absl::Status status = ReadLayer(directory.path(), quantized.front()).status();
    EXPECT_EQ(ReasonOf(status), "UNSUPPORTED_FORMAT") << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("there is no quantization_config"));
  }
}

}  // namespace
}  // namespace gemmd

#include "core/checkpoint/plain_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
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

}  // namespace
}  // namespace gemmd

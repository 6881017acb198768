// Fused projections and stacks of experts that a checkpoint stores in parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/match.h"
#include "core/checkpoint/checkpoint.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

struct Composite {
  std::string name;                             // of the golden case
  std::string module;                           // that the checkpoint does not hold itself
  std::vector<std::vector<std::string>> parts;  // per expert
};

std::vector<Composite> Composites() {
  const std::string attention = "model.layers.0.self_attn.";
  const std::string mlp = "model.layers.0.mlp.";
  const std::string mixtral = "model.layers.0.block_sparse_moe.experts.";
  const std::vector<std::vector<std::string>> qkv = {
      {attention + "q_proj", attention + "k_proj", attention + "v_proj"}};
  std::vector<Composite> composites;
  for (const char* name :
       {"ct_nvfp4_qkv_different_global", "awq_gemm_g64_qkv", "fp8_per_tensor_static_qkv",
        "ct_model_w4a16_llama", "ct_model_mixed_nvfp4_fp8_llama", "modelopt_fp8_llama",
        "modelopt_fp8_pc_pt_llama", "modelopt_mxfp4_llama", "modelopt_mxfp8_llama",
        "modelopt_nvfp4_llama"}) {
    composites.push_back({name, attention + "qkv_proj", qkv});
  }
  for (const char* name : {"ct_model_mixed_nvfp4_fp8_llama", "modelopt_nvfp4_llama"}) {
    composites.push_back({name, mlp + "gate_up_proj", {{mlp + "gate_proj", mlp + "up_proj"}}});
  }
  for (const char* name : {"modelopt_nvfp4_qwen3moe", "modelopt_fp8_qwen3moe"}) {
    Composite gate_up{name, mlp + "experts.gate_up_proj", {}};
    Composite down{name, mlp + "experts.down_proj", {}};
    for (int expert = 0; expert < 3; ++expert) {
      const std::string prefix = mlp + "experts." + std::to_string(expert) + ".";
      gate_up.parts.push_back({prefix + "gate_proj", prefix + "up_proj"});
      down.parts.push_back({prefix + "down_proj"});
    }
    composites.push_back(gate_up);
    composites.push_back(down);
  }
  for (const char* stack : {"gate_up_proj", "w13", "down_proj", "w2"}) {
    Composite composite{"fp8_per_tensor_experts_w123", mixtral + stack, {}};
    const bool down = absl::StartsWith(stack, "down") || absl::StartsWith(stack, "w2");
    for (const char* expert : {"0.", "1."}) {
      const std::string prefix = mixtral + expert;
      composite.parts.push_back(down ? std::vector<std::string>{prefix + "w2"}
                                     : std::vector<std::string>{prefix + "w1", prefix + "w3"});
    }
    composites.push_back(composite);
  }
  return composites;
}

class CompositeTest : public testing::TestWithParam<Composite> {};

TEST_P(CompositeTest, HoldsTheRowsOfItsParts) {
  const auto& [name, module, experts] = GetParam();
  const auto whole = ReadLayer(CaseDirectory(name), module);
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_EQ(whole->tensor.shape.experts, static_cast<int64_t>(experts.size()));
  const int64_t k = whole->tensor.shape.k;
  std::vector<float> got(k);
  std::vector<float> expected(k);
  for (size_t expert = 0; expert < experts.size(); ++expert) {
    int64_t row = 0;
    for (const std::string& part_name : experts[expert]) {
      const auto part = ReadLayer(CaseDirectory(name), part_name);
      ASSERT_TRUE(part.ok()) << part.status();
      for (int64_t i = 0; i < part->tensor.shape.n; ++i, ++row) {
        DequantizeRowFloat32(whole->tensor, static_cast<int64_t>(expert), row, absl::MakeSpan(got));
        DequantizeRowFloat32(part->tensor, 0, i, absl::MakeSpan(expected));
        ASSERT_EQ(got, expected) << part_name << " row " << i;
      }
    }
    EXPECT_EQ(row, whole->tensor.shape.n);
  }
}

void PrintTo(const Composite& each, std::ostream* stream) {
  *stream << each.name << " " << each.module;
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, CompositeTest, testing::ValuesIn(Composites()));

TEST(CompositeProgressTest, CountsAllParts) {
  uint64_t last = 0;
  uint64_t total = 0;
  const auto layer =
      ReadLayer(CaseDirectory("modelopt_nvfp4_qwen3moe"), "model.layers.0.mlp.experts.gate_up_proj",
                [&](uint64_t done, uint64_t all) {
                  EXPECT_GT(done, last);
                  EXPECT_TRUE(total == 0 || total == all);
                  last = done;
                  total = all;
                  return true;
                });
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_GT(total, 0u);
  EXPECT_EQ(last, total);
}

TEST(CompositeProgressTest, TheBytesOfAModuleAreKnownBeforeItIsRead) {
  const auto checkpoint = Checkpoint::Open(CaseDirectory("modelopt_nvfp4_qwen3moe")).value();
  const std::string experts = "model.layers.0.mlp.experts.";
  const SliceRequest second{.experts = {.rank = 1, .size = 3}};
  struct Case {
    std::string module;
    SliceRequest slice;
  };
  for (const auto& [module, slice] :
       {Case{experts + "gate_up_proj"}, {experts + "gate_up_proj", second}, {experts + "0.down_proj"}}) {
    uint64_t total = 0;
    const auto progress = [&total](uint64_t, uint64_t all) {
      total = all;
      return true;
    };
    ASSERT_TRUE(checkpoint->ReadLayer(module, progress, slice).ok()) << module;
    EXPECT_EQ(checkpoint->BytesOf(module, slice), total) << module;
    EXPECT_GT(total, 0u);
  }
  EXPECT_EQ(checkpoint->BytesOf("model.layers.7.mlp.down_proj"), 0u);
}

// Golden case `name` without the tensors of modules that `is_missing` names.
absl::StatusOr<CheckpointLayer> ReadWithout(const std::string& name, const std::string& missing,
                                            const std::string& module) {
  EditableCheckpoint checkpoint(name);
  for (auto it = checkpoint.tensors.begin(); it != checkpoint.tensors.end();) {
    it = absl::StartsWith(it->first, missing) ? checkpoint.tensors.erase(it) : std::next(it);
  }
  TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  return ReadLayer(directory.path(), module);
}

TEST(CompositeErrorTest, NamesAMissingPartAndAMissingExpert) {
  const std::string experts = "model.layers.0.mlp.experts.";
  const auto expert =
      ReadWithout("modelopt_nvfp4_qwen3moe", experts + "1.", experts + "gate_up_proj");
  EXPECT_EQ(ReasonOf(expert.status()), "BAD_CHECKPOINT") << expert.status();
  EXPECT_THAT(std::string(expert.status().message()), HasSubstr("expert 1 of 3"));
  const auto up =
      ReadWithout("modelopt_nvfp4_qwen3moe", experts + "2.up_proj", experts + "gate_up_proj");
  EXPECT_EQ(ReasonOf(up.status()), "BAD_CHECKPOINT") << up.status();
  EXPECT_THAT(std::string(up.status().message()), HasSubstr("experts.2.up_proj"));
  const std::string attention = "model.layers.0.self_attn.";
  const auto value =
      ReadWithout("modelopt_nvfp4_llama", attention + "v_proj", attention + "qkv_proj");
  EXPECT_EQ(ReasonOf(value.status()), "BAD_CHECKPOINT") << value.status();
  EXPECT_THAT(std::string(value.status().message()), HasSubstr("v_proj"));
}

TEST(CompositeErrorTest, DoesNotInventModules) {
  for (const char* module :
       {"model.layers.0.mlp.experts", "model.layers.0.mlp", "model.layers.1.mlp.experts.down_proj",
        "model.layers.0.mlp.experts.lora_proj", "qkv_proj"}) {
    EXPECT_EQ(ReasonOf(ReadLayer(CaseDirectory("modelopt_nvfp4_qwen3moe"), module).status()),
              "MODULE_NOT_FOUND")
        << module;
  }
}

TEST(CompositeErrorTest, RefusesPartsOfDifferentSchemes) {
  EditableCheckpoint checkpoint("modelopt_nvfp4_llama");
  const std::string module = "model.layers.0.self_attn.v_proj";
  for (auto it = checkpoint.tensors.begin(); it != checkpoint.tensors.end();) {
    it = absl::StartsWith(it->first, module) ? checkpoint.tensors.erase(it) : std::next(it);
  }
  checkpoint.tensors[module + ".weight"] = {"BF16", {32, 64}, std::string(32 * 64 * 2, '\0')};
  checkpoint.config["quantization_config"]["ignore"].push_back(module);
  TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  const auto layer = ReadLayer(directory.path(), "model.layers.0.self_attn.qkv_proj");
  EXPECT_EQ(ReasonOf(layer.status()), "UNSUPPORTED_FORMAT") << layer.status();
  EXPECT_THAT(std::string(layer.status().message()),
              HasSubstr("its parts are modelopt (model.layers.0.self_attn.q_proj) and unquantized (" + module + ")"));
}

TEST(CompositeErrorTest, NamesPartsOfDifferentTypesAndBothTypes) {
  const TemporaryDirectory directory;
  WriteFile(directory.path() / "config.json", "{}");
  RawTensors tensors = PlainLinears({"a.q_proj", "a.k_proj", "a.v_proj"}, 0x3f);
  tensors.at("a.v_proj.weight") = {"F32", {2, 4}, std::string(32, 0x3f)};
  WriteTensors(directory.path() / "model.safetensors", tensors);
  const absl::Status status = ReadLayer(directory.path(), "a.qkv_proj").status();
  EXPECT_EQ(ReasonOf(status), "UNSUPPORTED_FORMAT") << status;
  EXPECT_EQ(std::string(status.message()), "module a.qkv_proj: its parts cannot be one layer: weight type: a.v_proj has "
                                           "F32, a.q_proj has BF16");
}

// Plain linears, `module` with K 2 instead of 4.
RawTensors OneIsShorter(const std::vector<std::string>& modules, const std::string& module) {
  RawTensors tensors = PlainLinears(modules, 0);
  tensors.at(module + ".weight") = {"BF16", {2, 2}, std::string(8, 0)};
  return tensors;
}

TEST(CompositeErrorTest, NamesPartsWhoseKDiffers) {
  struct Case {
    std::vector<std::string> modules;
    const char* shorter;
    const char* joined;
    const char* message;
  };
  for (const Case& one : {Case{{"a.q_proj", "a.k_proj", "a.v_proj"}, "a.v_proj", "a.qkv_proj",
                               "module a.qkv_proj: its part a.v_proj: expected K 4 as a.q_proj "
                               "has, got 2"},
                          Case{{"experts.0.w2", "experts.1.w2"}, "experts.1.w2", "experts.w2",
                               "module experts.w2: its expert 1: expected N x K 2 x 4 as its first "
                               "expert has, got 2 x 2"}}) {
    const TemporaryDirectory directory;
    WriteFile(directory.path() / "config.json", "{}");
    WriteTensors(directory.path() / "model.safetensors", OneIsShorter(one.modules, one.shorter));
    const absl::Status status = ReadLayer(directory.path(), one.joined).status();
    EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT") << status;
    EXPECT_EQ(std::string(status.message()), one.message);
  }
}

TEST(CompositeErrorTest, NoSliceHidesThatKDiffers) {
  const TemporaryDirectory directory;
  WriteFile(directory.path() / "config.json", "{}");
  WriteTensors(directory.path() / "model.safetensors",
               OneIsShorter({"a.gate_proj", "a.up_proj"}, "a.up_proj"));
  SliceRequest both;  // columns that both parts have
  both.columns.range = {0, 2};
  EXPECT_EQ(ReasonOf(ReadLayer(directory.path(), "a.gate_up_proj", nullptr, {}, both).status()),
            "BAD_CHECKPOINT");
}

// Gate and up are multiplied element by element; rows of q, k and v differ in number as they like.
// Two symmetric projections of K = 64; the second has groups of `group_size` columns and as many scales as `groups`.
absl::StatusOr<CheckpointLayer> ReadGateAndUp(int64_t group_size, int64_t groups) {
  const std::string mlp = "model.layers.0.mlp.";
  EditableCheckpoint checkpoint("gptq_v2_gptqmodel_b2_gm1_sym");
  const RawTensors stored = std::move(checkpoint.tensors);
  checkpoint.tensors.clear();
  for (const char* key : {".qweight", ".scales"}) {
    const RawTensor& tensor = stored.at(mlp + "down_proj" + key);
    checkpoint.tensors[mlp + "gate_proj" + key] = tensor;
    checkpoint.tensors[mlp + "up_proj" + key] = tensor;
  }
  RawTensor& scales = checkpoint.tensors[mlp + "up_proj.scales"];
  const std::string row = scales.bytes;
  for (; scales.shape[0] < groups; ++scales.shape[0]) scales.bytes += row;
  checkpoint.config["quantization_config"]["dynamic"] = {{"+:.*up_proj", {{"group_size", group_size}}}};
  const TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  return ReadLayer(directory.path(), mlp + "gate_up_proj");
}

TEST(CompositeTest, PartsOfOneGroupOfAllColumnsAreOneLayer) {
  const auto same = ReadGateAndUp(-1, 1);
  const auto layer = ReadGateAndUp(64, 1);
  ASSERT_TRUE(same.ok()) << same.status();
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(Digest(layer->tensor), Digest(same->tensor));
  const absl::Status other = ReadGateAndUp(32, 2).status();
  EXPECT_EQ(ReasonOf(other), "UNSUPPORTED_FORMAT");
  EXPECT_THAT(std::string(other.message()), HasSubstr("group size: model.layers.0.mlp.up_proj has 32, "
                                                      "model.layers.0.mlp.gate_proj has -1"));
}

TEST(CompositeTest, GateAndUpOfDifferentNAreRefused) {
  const TemporaryDirectory directory;
  WriteFile(directory.path() / "config.json", "{}");
  RawTensors tensors = PlainLinears({"a.gate_proj", "a.up_proj", "b.w1", "b.w3", "c.q_proj", "c.k_proj", "c.v_proj"}, 0);
  for (const char* shorter : {"a.up_proj.weight", "b.w3.weight", "c.k_proj.weight"}) {
    tensors[shorter] = {"BF16", {1, 4}, std::string(8, 0)};
  }
  WriteTensors(directory.path() / "model.safetensors", tensors);
  const absl::Status gate_up = ReadLayer(directory.path(), "a.gate_up_proj").status();
  EXPECT_EQ(ReasonOf(gate_up), "BAD_CHECKPOINT");
  EXPECT_EQ(std::string(gate_up.message()),
            "module a.gate_up_proj: its part a.up_proj: expected N 2 as a.gate_proj has, got 1");
  EXPECT_EQ(std::string(ReadLayer(directory.path(), "b.w13").status().message()),
            "module b.w13: its part b.w3: expected N 2 as b.w1 has, got 1");
  EXPECT_EQ(ReadLayer(directory.path(), "c.qkv_proj")->tensor.shape.n, 5);
}

}  // namespace
}  // namespace gemmd

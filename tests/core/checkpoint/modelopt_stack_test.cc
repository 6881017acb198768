// ModelOpt stacks of experts, made of golden experts that are stored one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "core/quant/input_scale.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

constexpr char kExperts[] = "model.layers.0.mlp.experts.";
constexpr int kCount = 3;

std::vector<double> StackRowOf(const StandardTensor& tensor, int64_t expert, int64_t row) {
  std::vector<double> values(static_cast<size_t>(tensor.shape.k));
  DequantizeRow(tensor, expert, row, absl::MakeSpan(values));
  return values;
}

void ExpectSameWeights(const StandardTensor& got, const StandardTensor& wanted) {
  ASSERT_EQ(got.shape, wanted.shape);
  for (int64_t expert = 0; expert < got.shape.experts; ++expert) {
    for (int64_t row = 0; row < got.shape.n; ++row) {
      ASSERT_EQ(StackRowOf(got, expert, row), StackRowOf(wanted, expert, row))
          << expert << " " << row;
    }
  }
}

// [1, ...] of all `tensors` below each other: a stack of experts, or rows of parts.
RawTensor Joined(const std::vector<RawTensor>& tensors, bool stack) {
  RawTensor out = tensors.front();
  if (stack) {
    out.shape.insert(out.shape.begin(), static_cast<int64_t>(tensors.size()));
  } else {
    out.shape[0] = 0;
    for (const RawTensor& tensor : tensors) out.shape[0] += tensor.shape[0];
  }
  out.bytes.clear();
  for (const RawTensor& tensor : tensors) out.bytes += tensor.bytes;
  return out;
}

// [E, A, B] of bytes to [E, B, A].
RawTensor Transposed(const RawTensor& tensor) {
  RawTensor out = tensor;
  std::swap(out.shape[1], out.shape[2]);
  const int64_t a = tensor.shape[1];
  const int64_t b = tensor.shape[2];
  for (int64_t e = 0; e < tensor.shape[0]; ++e) {
    for (int64_t i = 0; i < a; ++i) {
      for (int64_t j = 0; j < b; ++j)
        out.bytes[(e * b + j) * a + i] = tensor.bytes[(e * a + i) * b + j];
    }
  }
  return out;
}

// A golden Qwen3-MoE whose experts' tensors can be stacked.
struct StackModel {
  explicit StackModel(const std::string& name) : name(name), checkpoint(name) {}

  const RawTensor& Of(int expert, const std::string& tensor) const {
    return checkpoint.tensors.at(absl::StrCat(kExperts, expert, ".", tensor));
  }
  // One tensor of all experts.
  RawTensor Stack(const std::string& tensor) const {
    std::vector<RawTensor> all;
    for (int expert = 0; expert < kCount; ++expert) all.push_back(Of(expert, tensor));
    return Joined(all, true);
  }
  // Rows of gate and of up, of all experts.
  RawTensor StackGateUp(const std::string& tensor) const {
    std::vector<RawTensor> all;
    for (int expert = 0; expert < kCount; ++expert) {
      all.push_back(
          Joined({Of(expert, "gate_proj." + tensor), Of(expert, "up_proj." + tensor)}, false));
    }
    return Joined(all, true);
  }
  // The checkpoint as it is on disk.
  StandardTensor ReadComposite(const std::string& module) const {
    return Read(checkpoint, module).value().tensor;
  }
  // With `stacked` in place of the experts' own tensors.
  absl::StatusOr<CheckpointLayer> ReadStack(const RawTensors& stacked, const std::string& module,
                                            const std::string& model_type = "") const {
    EditableCheckpoint changed = checkpoint;
    if (!model_type.empty()) changed.config["model_type"] = model_type;
    for (auto it = changed.tensors.begin(); it != changed.tensors.end();) {
      it = it->first.rfind(kExperts, 0) == 0 ? changed.tensors.erase(it) : std::next(it);
    }
    for (const auto& [key, tensor] : stacked) changed.tensors[kExperts + key] = tensor;
    return Read(changed, module);
  }
  static absl::StatusOr<CheckpointLayer> Read(const EditableCheckpoint& checkpoint,
                                              const std::string& module) {
    TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    return ReadLayer(directory.path(), kExperts + module);
  }

  std::string name;
  EditableCheckpoint checkpoint;
};

void SetFloat(RawTensor& tensor, float value) {
  std::memcpy(tensor.bytes.data(), &value, sizeof(value));
}
float FloatAt(const RawTensor& tensor, int64_t index = 0) {
  float value;
  std::memcpy(&value, tensor.bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

RawTensors Nvfp4Down(const StackModel& model, bool transposed, const std::string& separator) {
  const RawTensor weight = model.Stack("down_proj.weight");
  const RawTensor scale = model.Stack("down_proj.weight_scale");
  const std::string prefix = "down_proj" + separator;
  return {{separator == "." ? "down_proj.weight" : "down_proj",
           transposed ? Transposed(weight) : weight},
          {prefix + "weight_scale", transposed ? Transposed(scale) : scale},
          {prefix + "weight_scale_2", model.Stack("down_proj.weight_scale_2")},
          {prefix + "input_scale", model.Stack("down_proj.input_scale")}};
}

TEST(ModelOptStackTest, ReadsNvfp4InEitherOrderOfAxesAndWithEitherNames) {
  const StackModel model("modelopt_nvfp4_qwen3moe");
  const StandardTensor wanted = model.ReadComposite("down_proj");
  for (const bool transposed : {false, true}) {
    for (const char* separator : {"_", "."}) {
      const auto layer = model.ReadStack(Nvfp4Down(model, transposed, separator), "down_proj");
      ASSERT_TRUE(layer.ok()) << layer.status();
      EXPECT_EQ(Digest(layer->tensor), Digest(wanted)) << transposed << separator;
    }
  }
}

TEST(ModelOptStackTest, KeepsTheFactorsOfGateAndUp) {
  StackModel model("modelopt_nvfp4_qwen3moe");
  for (int expert = 0; expert < kCount; ++expert) {
    RawTensor& factor =
        model.checkpoint.tensors.at(absl::StrCat(kExperts, expert, ".up_proj.weight_scale_2"));
    SetFloat(factor, FloatAt(factor) * 3);
  }
  std::vector<RawTensor> factors;
  for (int expert = 0; expert < kCount; ++expert) {
    RawTensor pair = model.Of(expert, "gate_proj.weight_scale_2");
    pair.shape = {2};
    pair.bytes += model.Of(expert, "up_proj.weight_scale_2").bytes;
    factors.push_back(pair);
  }
  const RawTensors stacked = {{"gate_up_proj", model.StackGateUp("weight")},
                              {"gate_up_proj_weight_scale", model.StackGateUp("weight_scale")},
                              {"gate_up_proj_weight_scale_2", Joined(factors, true)},
                              {"gate_up_proj_input_scale", model.Stack("gate_proj.input_scale")}};
  const auto layer = model.ReadStack(stacked, "gate_up_proj");
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_FALSE(layer->tensor.gate_up_interleaved);
  ExpectSameWeights(layer->tensor, model.ReadComposite("gate_up_proj"));
}

// One factor for all experts, as ModelOpt writes it for Llama-4; each expert's own scales are made to fit.
TEST(ModelOptStackTest, OneNumberServesAllExperts) {
  StackModel model("modelopt_nvfp4_qwen3moe");
  RawTensors stacked = Nvfp4Down(model, true, "_");
  for (const char* tensor : {"weight_scale_2", "input_scale"}) {
    for (int expert = 0; expert < kCount; ++expert) {
      RawTensor& own =
          model.checkpoint.tensors.at(absl::StrCat(kExperts, expert, ".down_proj.", tensor));
      SetFloat(own, 0.375f);
    }
    stacked[absl::StrCat("down_proj_", tensor)] = model.Of(0, absl::StrCat("down_proj.", tensor));
  }
  const auto layer = model.ReadStack(stacked, "down_proj", "llama4_text");
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(Digest(layer->tensor), Digest(model.ReadComposite("down_proj")));
}

// gpt-oss: rows alternate gate, up, and there is a bias.
TEST(ModelOptStackTest, GptOssAlternatesGateAndUp) {
  const StackModel model("modelopt_nvfp4_qwen3moe");
  const RawTensor weight = model.StackGateUp("weight");
  const int64_t n = weight.shape[1];
  RawTensor bias{"BF16", {kCount, n}, std::string(static_cast<size_t>(kCount * n * 2), '\0')};
  bias.bytes[2 * (n + 5) + 1] = '\x40';  // 2 in row 5 of expert 1
  const RawTensors stacked = {
      {"gate_up_proj", Transposed(weight)},
      {"gate_up_proj_weight_scale", Transposed(model.StackGateUp("weight_scale"))},
      {"gate_up_proj_weight_scale_2", model.Stack("gate_proj.weight_scale_2")},
      {"gate_up_proj_input_scale", model.Stack("gate_proj.input_scale")},
      {"gate_up_proj_bias", bias}};
  const auto layer = model.ReadStack(stacked, "gate_up_proj", "gpt_oss");
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_TRUE(layer->tensor.gate_up_interleaved);
  EXPECT_EQ(Bias(layer->tensor, 1, 5), 2);
  EXPECT_EQ(Bias(layer->tensor, 0, 5), 0);
}

TEST(ModelOptStackTest, ReadsFloat8WithAScaleForEachExpert) {
  const StackModel model("modelopt_fp8_qwen3moe");
  const StandardTensor wanted = model.ReadComposite("down_proj");
  const RawTensor weight = model.Stack("down_proj.weight");
  RawTensors stacked = {{"down_proj", weight},
                        {"down_proj_weight_scale", model.Stack("down_proj.weight_scale")},
                        {"down_proj_input_scale", model.Stack("down_proj.input_scale")}};
  const auto rows_first = model.ReadStack(stacked, "down_proj");
  ASSERT_TRUE(rows_first.ok()) << rows_first.status();
  EXPECT_EQ(Digest(rows_first->tensor), Digest(wanted));
  stacked["down_proj"] = Transposed(weight);  // nothing but the model tells
  stacked["down_proj_weight_scale"].shape = {kCount, 1, 1};
  const auto columns_first = model.ReadStack(stacked, "down_proj", "llama4");
  ASSERT_TRUE(columns_first.ok()) << columns_first.status();
  EXPECT_EQ(Digest(columns_first->tensor), Digest(wanted));
}

TEST(ModelOptStackTest, ReadsAwqWithAnInputScaleForEachExpert) {
  const std::string module = "model.layers.0.mlp.down_proj";
  const EditableCheckpoint one("modelopt_w4a16_awq");
  EditableCheckpoint stacked = one;
  stacked.tensors.clear();
  for (const auto& [name, tensor] : one.tensors) {
    RawTensor other = tensor;
    if (name == module + ".pre_quant_scale") other.bytes[1] = '\x41';  // another first factor
    stacked.tensors[kExperts + name.substr(std::string("model.layers.0.mlp.").size())] =
        Joined({tensor, other}, true);
  }
  const auto layer = StackModel::Read(stacked, "down_proj");
  ASSERT_TRUE(layer.ok()) << layer.status();
  const auto single = ReadLayer(CaseDirectory("modelopt_w4a16_awq"), module);
  ASSERT_TRUE(single.ok()) << single.status();
  ASSERT_EQ(layer->tensor.shape.experts, 2);
  EXPECT_EQ(StackRowOf(layer->tensor, 1, 7), StackRowOf(single->tensor, 0, 7));
  std::vector<double> first(static_cast<size_t>(layer->tensor.shape.k), 1);
  std::vector<double> second = first;
  std::vector<double> wanted = first;
  MultiplyInputScale(single->tensor, 0, absl::MakeSpan(wanted));
  MultiplyInputScale(layer->tensor, 0, absl::MakeSpan(first));
  MultiplyInputScale(layer->tensor, 1, absl::MakeSpan(second));
  EXPECT_EQ(first, wanted);
  EXPECT_NE(second[0], wanted[0]);
  second[0] = wanted[0];
  EXPECT_EQ(second, wanted);
}

TEST(ModelOptStackTest, ListsStacks) {
  const StackModel model("modelopt_nvfp4_qwen3moe");
  EditableCheckpoint changed = model.checkpoint;
  for (auto it = changed.tensors.begin(); it != changed.tensors.end();) {
    it = it->first.rfind(kExperts, 0) == 0 ? changed.tensors.erase(it) : std::next(it);
  }
  for (const auto& [key, tensor] : Nvfp4Down(model, true, "_")) {
    changed.tensors[kExperts + key] = tensor;
  }
  TemporaryDirectory directory;
  changed.Write(directory.path());
  const auto modules = ListModules(directory.path());
  ASSERT_TRUE(modules.ok()) << modules.status();
  EXPECT_THAT(*modules, testing::Contains(absl::StrCat(kExperts, "down_proj")));
}

TEST(ModelOptStackTest, RefusesWhatDoesNotFit) {
  const StackModel model("modelopt_nvfp4_qwen3moe");
  const auto reason = [&](const RawTensors& stacked, const char* message) {
    const auto layer = model.ReadStack(stacked, "down_proj");
    EXPECT_THAT(std::string(layer.status().message()), HasSubstr(message)) << layer.status();
    return ReasonOf(layer.status());
  };
  RawTensors good = Nvfp4Down(model, false, "_");
  RawTensors bad = good;
  bad["down_proj_weight_scale"] = Transposed(good["down_proj_weight_scale"]);
  EXPECT_EQ(reason(bad, "do not fit in blocks"), "BAD_CHECKPOINT");
  bad = good;
  bad["down_proj_weight_scale_2"].shape = {kCount - 1};
  bad["down_proj_weight_scale_2"].bytes.resize(4 * (kCount - 1));
  EXPECT_EQ(reason(bad, "expected one for each of 3 experts"), "BAD_CHECKPOINT");
  bad = good;
  bad["down_proj_lora_a"] = good["down_proj_weight_scale_2"];
  EXPECT_EQ(reason(bad, "expected no such tensor"), "BAD_CHECKPOINT");
  bad = good;
  bad.erase("down_proj_weight_scale_2");
  EXPECT_EQ(reason(bad, "expert 0: module"), "BAD_CHECKPOINT");
  bad = good;  // factors of x without an algorithm that has them
  bad["down_proj_pre_quant_scale"] = good["down_proj_weight_scale_2"];
  EXPECT_EQ(reason(bad, "pre_quant_scale"), "BAD_CHECKPOINT");
}

// The exporter takes the weights of such experts, [E, K, N], for [E, N, K].
TEST(ModelOptStackTest, RefusesGroupsAlongN) {
  const EditableCheckpoint one("modelopt_w4a16_awq");
  EditableCheckpoint stacked = one;
  stacked.config["model_type"] = "llama4";
  stacked.tensors.clear();
  for (const auto& [name, tensor] : one.tensors) {
    stacked.tensors[kExperts + name.substr(std::string("model.layers.0.mlp.").size())] =
        Joined({tensor, tensor}, true);
  }
  const auto layer = StackModel::Read(stacked, "down_proj");
  EXPECT_EQ(ReasonOf(layer.status()), "UNSUPPORTED_FORMAT") << layer.status();
  EXPECT_THAT(std::string(layer.status().message()), HasSubstr("groups run along N"));
}

}  // namespace
}  // namespace gemmd

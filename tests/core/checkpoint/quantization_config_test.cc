// Where config.json may hold its quantization, and configs that quantize nothing.
#include "core/checkpoint/model_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/layer_quantizer.h"
#include "core/checkpoint/model_plan.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

constexpr char kPackedCase[] = "ct_pack_w4_g128_sym";
constexpr char kQuantization[] = "quantization_config";

// A golden checkpoint whose config lies at the place `pointer`, "/text_config", and no longer at the top.
EditableCheckpoint Moved(const std::string& name, const std::string& pointer) {
  EditableCheckpoint checkpoint(name);
  const nlohmann::ordered_json quantization = checkpoint.config[kQuantization];
  checkpoint.config.erase(kQuantization);
  checkpoint.config[nlohmann::ordered_json::json_pointer(pointer)] = quantization;
  return checkpoint;
}

TEST(QuantizationConfigTest, OfThePartForTextIsReadLikeThatAtTheTop) {
  for (const char* pointer :
       {"/text_config/quantization_config", "/llm_config/quantization_config", "/language_config/quantization_config",
        "/thinker_config/text_config/quantization_config", "/text_config/compression_config"}) {
    SCOPED_TRACE(pointer);
    const TemporaryDirectory directory;
    Moved(kPackedCase, pointer).Write(directory.path());
    const auto checkpoint = Checkpoint::Open(directory.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const auto expected = ListModules(CaseDirectory(kPackedCase));
    EXPECT_EQ(*ListCandidates(**checkpoint), *expected);
    const auto layer = (*checkpoint)->ReadLayer(expected->front());
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_EQ(layer->format, "compressed-tensors");
  }
}

// `name` with its modules in the part for text, as Kimi-K2.5 has them: "language_model.model.layers.0. ...", and a plain lm_head.
EditableCheckpoint InTextPart(const std::string& name, const std::string& pointer, const std::string& prefix) {
  EditableCheckpoint checkpoint = Moved(name, pointer);
  RawTensors tensors;
  for (const auto& [tensor, data] : checkpoint.tensors) tensors[prefix + tensor] = data;
  tensors[prefix + "lm_head.weight"] = {"BF16", {2, 4}, std::string(16, 0)};
  checkpoint.tensors = tensors;
  return checkpoint;
}

std::string FormatOf(const EditableCheckpoint& checkpoint, const std::string& module) {
  const TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  const auto layer = ReadLayer(directory.path(), module);
  return layer.ok() ? layer->format : std::string(layer.status().message());
}

TEST(QuantizationConfigTest, OfThePartForTextMayCallModulesByTheirNamesInIt) {
  const std::string text = "/text_config/quantization_config";
  const std::string prefix = "language_model.";
  EditableCheckpoint packed = InTextPart(kPackedCase, text, prefix);
  packed.config["text_config"][kQuantization]["ignore"] = {"lm_head"};
  EXPECT_EQ(FormatOf(packed, "language_model.lm_head"), "unquantized");
  EXPECT_EQ(FormatOf(packed, "language_model.model.layers.0.mlp.down_proj"), "compressed-tensors");
  // Names as they are stored go first, and a config at the top has no others.
  packed.config["text_config"][kQuantization]["ignore"] = {"language_model.lm_head"};
  EXPECT_EQ(FormatOf(packed, "language_model.lm_head"), "unquantized");
  EditableCheckpoint at_top = InTextPart(kPackedCase, std::string("/") + kQuantization, prefix);
  at_top.config[kQuantization]["ignore"] = {"lm_head"};
  EXPECT_THAT(FormatOf(at_top, "language_model.lm_head"), HasSubstr("quantized by its config, but it has no"));

  for (const char* wrapped : {"language_model.model.", "model.language_model."}) {
    EditableCheckpoint gptq = Moved("gptq_v1_autogptq_b4_g128_sym", text);
    RawTensors tensors;
    for (const auto& [name, data] : gptq.tensors) {
      tensors[wrapped + name.substr(std::string("model.").size())] = data;
    }
    gptq.tensors = tensors;
    nlohmann::ordered_json& config = gptq.config["text_config"][kQuantization];
    config["bits"] = 8;
    const std::string module = wrapped + std::string("layers.0.mlp.down_proj");
    EXPECT_THAT(FormatOf(gptq, module), HasSubstr("scales: expected F16")) << "8 bits do not fit";
    config["dynamic"]["model\\.layers\\.0\\..*"] = {{"bits", 4}};
    EXPECT_EQ(FormatOf(gptq, module), "gptq");
  }
}

TEST(QuantizationConfigTest, OfModelOptIsMergedWithItsFile) {
  const TemporaryDirectory directory;
  const EditableCheckpoint checkpoint = Moved("modelopt_nvfp4_llama", "/text_config/quantization_config");
  checkpoint.Write(directory.path());
  const auto modules = ListModules(CaseDirectory("modelopt_nvfp4_llama"));
  const auto layer = ReadLayer(directory.path(), modules->front());
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->format, "modelopt");
}

// Of an image encoder, or deeper in another part: that is not the language model's.
TEST(QuantizationConfigTest, OfOtherPartsIsNone) {
  for (const char* pointer : {"/vision_config/quantization_config", "/vision_config/text_config/quantization_config"}) {
    const EditableCheckpoint checkpoint = Moved(kPackedCase, pointer);
    const auto found = FindQuantizationConfig(checkpoint.config);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, nullptr);
  }
}

TEST(QuantizationConfigTest, TheTopOneIsTakenWhereAllAreEqual) {
  const Json config = Json::parse(R"({"text_config": {"quantization_config": {"b": 1, "a": [2]}},
      "quantization_config": {"a": [2], "b": 1}})");
  const auto found = FindQuantizationConfig(config);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, &config[kQuantization]);
  // One without a field names none.
  const Json empty = Json::parse(R"({"quantization_config": {}, "text_config": {"quantization_config": {"a": 1}}})");
  EXPECT_EQ(*FindQuantizationConfig(empty).value(), Json::parse(R"({"a": 1})"));
}

TEST(QuantizationConfigTest, TwoThatDifferAreAnErrorWithBothKeys) {
  EditableCheckpoint checkpoint(kPackedCase);
  checkpoint.config["thinker_config"]["text_config"][kQuantization] = {{"quant_method", "awq"}};
  const TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  const absl::Status status = Checkpoint::Open(directory.path()).status();
  EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith((directory.path() / "config.json").string()),
                    HasSubstr(R"("thinker_config.text_config.quantization_config": expected the same as in)"),
                    HasSubstr(R"( "quantization_config", {"config_groups":)"),
                    EndsWith(R"(; got {"quant_method":"awq"})")))
      << status;
}

TEST(QuantizationConfigTest, OneThatIsNoObjectIsAnErrorWithItsKey) {
  const Json config = Json::parse(R"({"text_config": {"quantization_config": [4]}})");
  EXPECT_THAT(std::string(FindQuantizationConfig(config).status().message()),
              HasSubstr(R"("text_config.quantization_config": expected an object, got [4])"));
}

// What config.json and hf_quant_config.json say; the latter may be empty: there is none.
struct Configs {
  const char* config;
  const char* modelopt;
};

const std::vector<Configs>& QuantizingNothing() {
  static const auto* const kConfigs = new std::vector<Configs>{
      // The key-value cache alone.
      {"{}", R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": null, "kv_cache_quant_algo": "FP8"}})"},
      {"{}", R"({"quantization": {"kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}})"},
      {R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": null, "kv_cache_scheme": {"num_bits": 8}}})",
       ""},
      {R"({"text_config": {"quantization_config": {"quant_method": "modelopt", "quant_algo": null}}})", ""},
      {R"({"quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}})", ""},
      {R"({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {}, "ignore": []}})", ""},
      // All modules left out.
      {R"({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": ["Linear"],
           "weights": {"num_bits": 4}}}, "ignore": ["re:.*"]}})",
       ""},
      {R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["*"]}})", ""},
      {R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32, "dynamic": {"-:.*": {}}}})", ""},
      {R"({"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": [".*"]}})", ""}};
  return *kConfigs;
}

class QuantizingNothingTest : public ::testing::TestWithParam<Configs> {
 protected:
  void SetUp() override {
    WriteFile(directory_.path() / "config.json", GetParam().config);
    if (GetParam().modelopt[0] != 0) WriteFile(directory_.path() / "hf_quant_config.json", GetParam().modelopt);
    RawTensors tensors = PlainLinears({kUp, kDown}, 0x3f);
    tensors[std::string(kUp) + ".k_scale"] = {"F32", {1}, std::string(4, 0x3f)};  // of the cache
    tensors["model.norm.weight"] = {"BF16", {4}, std::string(8, 0x3f)};
    WriteTensors(directory_.path() / "model.safetensors", tensors);
    checkpoint_ = Checkpoint::Open(directory_.path()).value();
  }

  static constexpr char kUp[] = "model.layers.0.mlp.up_proj";
  static constexpr char kDown[] = "model.layers.0.mlp.down_proj";
  TemporaryDirectory directory_;
  std::shared_ptr<const Checkpoint> checkpoint_;
};

TEST_P(QuantizingNothingTest, AllLinearsAreListedAndReadUnquantized) {
  for (const bool fuse : {false, true}) {
    const auto plan = PlanModel(*checkpoint_, {.fuse = fuse});
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<std::string> modules;
    for (const PlannedModule& module : plan->modules) modules.push_back(module.module);
    EXPECT_THAT(modules, UnorderedElementsAre(kUp, kDown));
  }
  for (const char* module : {kUp, kDown}) {
    const auto layer = checkpoint_->ReadLayer(module);
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_EQ(layer->format, "unquantized");
    EXPECT_EQ(layer->tensor.spec.weight, kBFloat16);
  }
}

TEST_P(QuantizingNothingTest, TheyMayBeQuantized) {
  const QuantizeOnRead quantize{{.spec = {.weight = kFloat8E4M3, .scale = kFloat32}}, nullptr, nullptr};
  const auto layer = checkpoint_->ReadLayer(kUp, nullptr, {}, &quantize);
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->tensor.spec.weight, kFloat8E4M3);
}

INSTANTIATE_TEST_SUITE_P(Configs, QuantizingNothingTest, ::testing::ValuesIn(QuantizingNothing()));

// A config that says nothing of the modules while their tensors are quantized is damaged.
TEST(QuantizationConfigTest, QuantizedTensorsNeedWhatTheConfigLacks) {
  for (const auto& [name, key] : {std::pair("modelopt_fp8_llama", "quant_algo"),
                                  std::pair("ct_int8_channel_sym", "config_groups")}) {
    EditableCheckpoint checkpoint(name);
    checkpoint.config[kQuantization].erase(key);
    if (!checkpoint.modelopt_config.is_null()) checkpoint.modelopt_config["quantization"].erase(key);
    const TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    const absl::Status status = ReadLayer(directory.path(), ListModules(directory.path())->front()).status();
    EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT");
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(std::string("\"") + key + "\": expected"),
                                                     HasSubstr("module "), EndsWith("got none")));
  }
}

}  // namespace
}  // namespace gemmd

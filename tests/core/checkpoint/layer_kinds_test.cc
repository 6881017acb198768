#include "core/checkpoint/layer_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/quant/input_scale.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

bool NotCancelled() { return false; }

bool Same(const LayerKind& a, const LayerKind& b) {
  return a.spec == b.spec && a.shape == b.shape && a.traits == b.traits;
}

bool Has(const std::vector<LayerKind>& kinds, const LayerKind& kind) {
  return std::any_of(kinds.begin(), kinds.end(),
                     [&kind](const LayerKind& other) { return Same(other, kind); });
}

// By reading every module.
std::vector<LayerKind> ReadAll(const Checkpoint& checkpoint,
                               const std::vector<PlannedModule>& modules) {
  std::vector<LayerKind> kinds;
  for (const PlannedModule& module : modules) {
    const auto layer = checkpoint.ReadLayer(module.module, nullptr, module.slice);
    EXPECT_TRUE(layer.ok()) << layer.status();
    if (!layer.ok()) continue;
    kinds.push_back({1, layer->tensor.spec, layer->tensor.shape, TraitsOf(layer->tensor)});
  }
  return kinds;
}

// Compares with what reading every module gives.
void ExpectComplete(const Checkpoint& checkpoint, const ModelSelection& selection,
                    const std::string& what) {
  const auto plan = PlanModel(checkpoint, selection);
  if (!plan.ok()) return;  // a case without modules to join or cut so
  const std::vector<LayerKind> read = ReadAll(checkpoint, plan->modules);
  const auto kinds = LayerKindsOf(checkpoint, plan->modules, NotCancelled);
  ASSERT_TRUE(kinds.ok()) << what << ": " << kinds.status();
  int modules = 0;
  for (const LayerKind& kind : *kinds) {
    modules += kind.modules;
    EXPECT_TRUE(Has(read, kind)) << what << ": no module is of this kind";
  }
  EXPECT_EQ(modules, plan->modules.size()) << what;
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_TRUE(Has(*kinds, read[i])) << what << ": " << plan->modules[i].module;
  }
}

TEST(LayerKindsTest, OfEveryGoldenCheckpointAreThoseOfItsModules) {
  int checkpoints = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CaseDirectory("."))) {
    const std::string name = entry.path().filename();
    if (!entry.is_directory()) continue;
    const auto checkpoint = Checkpoint::Open(entry.path());
    ASSERT_TRUE(checkpoint.ok()) << name << ": " << checkpoint.status();
    const auto modules = (*checkpoint)->ListModules();
    if (!modules.ok() || modules->empty()) continue;
    if (!(*checkpoint)->ReadLayer(modules->front()).ok()) continue;  // refused, as other tests say
    ++checkpoints;
    for (const bool fuse : {false, true}) {
      ExpectComplete(**checkpoint, {.fuse = fuse}, absl::StrCat(name, fuse ? ", fused" : ""));
    }
  }
  EXPECT_GT(checkpoints, 80);
}

TEST(LayerKindsTest, OfARankAreThoseOfItsParts) {
  const auto checkpoint = *Checkpoint::Open(CaseDirectory("modelopt_fp8_qwen3moe"));
  ExpectComplete(*checkpoint, {.fuse = true, .tensor = {.rank = 1, .size = 2}}, "tensor");
  ExpectComplete(*checkpoint, {.fuse = true, .experts = {.rank = 0, .size = 3}}, "experts");
  ExpectComplete(*checkpoint, {.experts = {.rank = 1, .size = 3}}, "single experts");
}

// Two layers with q, k, v of [2, 4], whose numbers nobody may read twice.
class TwoLayersTest : public testing::Test {
 protected:
  static constexpr const char* kModules[] = {"l.0.q_proj", "l.0.k_proj", "l.0.v_proj",
                                             "l.1.q_proj", "l.1.k_proj", "l.1.v_proj"};
  void SetUp() override {
    WriteFile(directory_.path() / "config.json", "{}");
    tensors_ = PlainLinears({std::begin(kModules), std::end(kModules)}, '\x3f');
  }
  absl::StatusOr<std::vector<LayerKind>> Kinds(const ModelSelection& selection = {}) {
    WriteTensors(directory_.path() / "model.safetensors", tensors_);
    const auto checkpoint = *Checkpoint::Open(directory_.path());
    return LayerKindsOf(*checkpoint, PlanModel(*checkpoint, selection)->modules, NotCancelled);
  }
  TemporaryDirectory directory_;
  RawTensors tensors_;
};

TEST_F(TwoLayersTest, AreOneKindForEachRole) {
  const auto single = Kinds();
  ASSERT_TRUE(single.ok()) << single.status();
  ASSERT_EQ(single->size(), 3u);
  for (const LayerKind& kind : *single) EXPECT_EQ(kind.modules, 2);
  const auto fused = Kinds({.fuse = true});
  ASSERT_TRUE(fused.ok()) << fused.status();
  ASSERT_EQ(fused->size(), 1u);
  EXPECT_EQ(fused->front().modules, 2);
  EXPECT_EQ(fused->front().shape, (LayerShape{1, 6, 4}));
}

TEST_F(TwoLayersTest, AnotherShapeOrTypeIsAnotherKind) {
  tensors_["l.1.q_proj.weight"].shape = {4, 2};
  tensors_["l.1.k_proj.weight"].dtype = "F16";
  const auto kinds = Kinds();
  ASSERT_TRUE(kinds.ok()) << kinds.status();
  EXPECT_EQ(kinds->size(), 5u);
  EXPECT_TRUE(std::any_of(kinds->begin(), kinds->end(), [](const LayerKind& kind) {
    return kind.shape == LayerShape{1, 4, 2};
  }));
}

TEST_F(TwoLayersTest, OneOfAKindIsRead) {
  int reads = 0;
  WriteTensors(directory_.path() / "model.safetensors", tensors_);
  const auto checkpoint = *Checkpoint::Open(directory_.path());
  const auto counting = [&reads] {
    ++reads;
    return false;
  };
  const auto modules = PlanModel(*checkpoint, {})->modules;
  ASSERT_TRUE(LayerKindsOf(*checkpoint, modules, counting).ok());
  const int of_two_layers = reads - static_cast<int>(modules.size());  // once for each module
  reads = 0;
  const std::vector<PlannedModule> first = {modules[0], modules[1], modules[2]};
  ASSERT_TRUE(LayerKindsOf(*checkpoint, first, counting).ok());
  EXPECT_EQ(of_two_layers, reads - 3);
  EXPECT_TRUE(absl::IsCancelled(
      LayerKindsOf(*checkpoint, modules, [] { return true; }).status()));
}

TEST_F(TwoLayersTest, WhatCannotBeReadIsAnError) {
  tensors_["l.0.k_proj.extra"] = tensors_["l.0.k_proj.weight"];
  EXPECT_THAT(std::string(Kinds().status().message()), HasSubstr("l.0.k_proj"));
}

// Tensors look the same, and names decide on the scheme.
TEST(LayerKindsTest, WhatTheConfigTellsApartIsAnotherKind) {
  const TemporaryDirectory directory;
  const nlohmann::json weights = {
      {"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "channel"}};
  const nlohmann::json activations = {{"num_bits", 8},       {"type", "int"},   {"symmetric", true},
                                      {"strategy", "token"}, {"dynamic", true}};
  const auto group = [&weights](const std::string& target, const nlohmann::json& x) {
    return nlohmann::json{{"targets", {target}}, {"weights", weights}, {"input_activations", x}};
  };
  const nlohmann::json config = {
      {"quantization_config",
       {{"quant_method", "compressed-tensors"},
        {"format", "int-quantized"},
        {"quantization_status", "compressed"},
        {"ignore", nlohmann::json::array()},
        {"config_groups",
         {{"group_0", group("re:.*l\\.0\\..*", nullptr)},
          {"group_1", group("re:.*l\\.[12]\\..*", activations)}}}}}};
  WriteFile(directory.path() / "config.json", config.dump());
  RawTensors tensors;
  for (const std::string module : {"l.0.o_proj", "l.1.o_proj", "l.2.o_proj"}) {
    tensors[module + ".weight"] = {"I8", {2, 4}, std::string(8, '\x01')};
    tensors[module + ".weight_scale"] = {"F32", {2, 1}, std::string(8, '\x3f')};
  }
  WriteTensors(directory.path() / "model.safetensors", tensors);
  const auto checkpoint = *Checkpoint::Open(directory.path());
  const auto kinds = LayerKindsOf(*checkpoint, PlanModel(*checkpoint, {})->modules, NotCancelled);
  ASSERT_TRUE(kinds.ok()) << kinds.status();
  ASSERT_EQ(kinds->size(), 2u);
  EXPECT_FALSE(kinds->front().traits.declares_activations);
  EXPECT_TRUE(kinds->back().traits.declares_activations);
  EXPECT_EQ(kinds->back().modules, 2);
}

// The second layer's columns are in another order, which no shape tells.
TEST(LayerKindsTest, AReorderedGroupIndexIsAnotherKind) {
  EditableCheckpoint checkpoint("gptq_v1_autogptq_b4_g128_sym");
  RawTensors more;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    for (const char* layer : {"1", "2"}) {
      std::string other = name;
      more[other.replace(std::string("model.layers.").size(), 1, layer)] = tensor;
    }
  }
  checkpoint.tensors.merge(more);
  std::string& index = checkpoint.tensors.at("model.layers.1.mlp.down_proj.g_idx").bytes;
  std::swap_ranges(index.begin(), index.begin() + 4, index.end() - 4);
  const TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  const auto opened = *Checkpoint::Open(directory.path());
  const auto kinds = LayerKindsOf(*opened, PlanModel(*opened, {})->modules, NotCancelled);
  ASSERT_TRUE(kinds.ok()) << kinds.status();
  ASSERT_EQ(kinds->size(), 2u);
  EXPECT_FALSE(kinds->front().spec.has_group_index);
  EXPECT_EQ(kinds->front().modules, 2);
  EXPECT_TRUE(kinds->back().spec.has_group_index);
}

TEST(LayerKindsTest, ASliceThatCutsAGroupNamesItsModule) {
  const auto checkpoint = *Checkpoint::Open(CaseDirectory("gptq_v1_autogptq_b4_g128_sym"));
  const std::string module = "model.layers.0.mlp.down_proj";
  PlannedModule planned{module, {}, 0};
  planned.slice.columns = {.rank = 0, .size = 4};
  const absl::Status status = LayerKindsOf(*checkpoint, {planned}, NotCancelled).status();
  EXPECT_EQ(ReasonOf(status), "SLICE_CUTS_GROUP");
  EXPECT_THAT(std::string(status.message()), HasSubstr("module " + module + ": "));
}

// A stack of experts is known by its first.
TEST(LayerKindsTest, OfExpertsOneByOneCountThemAll) {
  const auto checkpoint = *Checkpoint::Open(CaseDirectory("modelopt_fp8_qwen3moe"));
  const auto plan = PlanModel(*checkpoint, {.modules = {"*experts.gate_up_proj"}, .fuse = true});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto kinds = LayerKindsOf(*checkpoint, plan->modules, NotCancelled);
  ASSERT_TRUE(kinds.ok()) << kinds.status();
  ASSERT_EQ(kinds->size(), 1u);
  EXPECT_GT(kinds->front().shape.experts, 1);
}

}  // namespace
}  // namespace gemmd

// Models of which one layer lacks its attention, its MLP or its experts, and models that are made so.
#include "core/checkpoint/model_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/plain_model.h"

namespace gemmd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Names kAttn = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"};
const Names kDenseMlp = {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"};
const Names kRouted = {"mlp.gate", "mlp.shared_experts.down_proj", "mlp.experts.0.gate_proj",
                       "mlp.experts.0.up_proj", "mlp.experts.0.down_proj"};
const Names kRouter = {"mlp.gate", "mlp.shared_experts.down_proj"};
const Names kMamba = {"mamba.in_proj", "mamba.out_proj"};
const Names kLinear = {"linear_attn.in_proj", "linear_attn.out_proj"};

Names Together(Names a, const Names& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// One list of parts for each layer.
Names Model(const std::vector<Names>& layers) {
  Names modules;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (const std::string& part : layers[layer]) modules.push_back(absl::StrCat("model.layers.", layer, ".", part));
  }
  return modules;
}

std::string Problems(const std::vector<Names>& layers, const std::string& config = "{}") {
  const auto plan = PlainModel(config, Model(layers)).Damaged();
  if (!plan.ok()) return std::string(plan.status().message());
  return absl::StrJoin(plan->problems, "\n", [](std::string* out, const absl::Status& problem) {
    absl::StrAppend(out, problem.message());
  });
}

const Names kDenseLayer = Together(kAttn, kDenseMlp);
const Names kMoeLayer = Together(kAttn, kRouted);

TEST(MissingBlocksTest, NameTheLayerAndAnotherThatHasThem) {
  EXPECT_EQ(Problems({kDenseLayer, kDenseLayer, kAttn, kDenseLayer}),
            "module model.layers.2.mlp: expected, as all 3 other layers like this one have it "
            "(model.layers.0.mlp); found no tensors for it");
  EXPECT_THAT(Problems({kDenseMlp, kDenseLayer, kDenseLayer}),
              AllOf(HasSubstr("module model.layers.0.self_attn: expected"), HasSubstr("(model.layers.1.self_attn)")));
  EXPECT_THAT(Problems({kMoeLayer, kMoeLayer, Together(kAttn, kRouter)}),
              HasSubstr("module model.layers.2.mlp.experts: expected"));
  const PlainModel damaged("{}", Model({kDenseLayer, kAttn, kDenseLayer}));
  EXPECT_EQ(ReasonOf(damaged.Fused().status()), "BAD_CHECKPOINT");
}

TEST(MissingBlocksTest, AreFoundAmongLayersOfOneKind) {
  EXPECT_THAT(Problems({kDenseLayer, kMoeLayer, kMoeLayer, Together(kAttn, kRouter)}),
              HasSubstr("model.layers.3.mlp.experts"))
      << "the first layer is dense";
  const Names hybrid = Together(kMamba, kDenseMlp);
  EXPECT_THAT(Problems({hybrid, kDenseLayer, hybrid, kMamba, hybrid}), HasSubstr("module model.layers.3.mlp"));
  const Names linear = Together(kLinear, kDenseMlp);
  const std::string types = R"({"layer_types": ["linear", "full", "linear", "full", "linear", "full"]})";
  EXPECT_THAT(Problems({linear, kDenseLayer, linear, kDenseLayer, linear, kDenseMlp}, types),
              HasSubstr("module model.layers.5.self_attn"));
}

TEST(MissingBlocksTest, AcceptModelsThatAreMadeSo) {
  const Names hybrid = Together(kMamba, kDenseMlp);
  const Names linear = Together(kLinear, kDenseMlp);
  const std::map<std::string, std::vector<Names>> models = {
      {"Jamba: one attention among mamba", {hybrid, hybrid, kDenseLayer, hybrid}},
      {"Jamba: experts in every second layer",
       {hybrid, Together(kMamba, kRouted), kDenseLayer, Together(kMamba, kRouted)}},
      {"Nemotron-H: one mixer or MLP a layer, under one name",
       {{"mixer.in_proj"}, {"mixer.up_proj"}, {"mixer.in_proj"}, {"mixer.q_proj"}}},
      {"Qwen3-Next: three linear, one full", {linear, linear, linear, kDenseLayer}},
      {"DeepSeek: the first layers are dense", {kDenseLayer, kMoeLayer, kMoeLayer, kMoeLayer}},
      {"Llama4: experts in every second layer", {kDenseLayer, kMoeLayer, kDenseLayer, kMoeLayer}},
      {"one MoE layer among dense ones", {kDenseLayer, kDenseLayer, kMoeLayer, kDenseLayer}},
      {"the last layers are for predicting more tokens",
       {kDenseLayer, kDenseLayer, Together(kDenseLayer, {"eh_proj"})}},
      {"two layers without a MLP", {kDenseLayer, kAttn, kDenseLayer, kAttn, kDenseLayer}},
      {"two layers only", {kDenseLayer, kAttn}}};
  for (const auto& [name, layers] : models) EXPECT_EQ(Problems(layers), "") << name;
  const std::string without_ffn = R"({"block_configs": [{}, {"ffn": {"no_op": true}}, {}]})";
  EXPECT_EQ(Problems({kDenseLayer, kAttn, kDenseLayer}, without_ffn), "");
}

TEST(MissingBlocksTest, LookAtWhatIsWanted) {
  const PlainModel model("{}", Model({kDenseLayer, kAttn, kDenseLayer}));
  EXPECT_TRUE(model.Plan({.modules = {"*self_attn*"}, .fuse = true}).ok());
  EXPECT_TRUE(model.Plan({.exclude = {"*mlp*"}, .fuse = true}).ok());
  EXPECT_FALSE(model.Plan({.fuse = true}).ok());
  EXPECT_TRUE(model.Plan({}).ok()) << "each for itself is asked for";
}

}  // namespace
}  // namespace gemmd

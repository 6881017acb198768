// Models that lack whole layers, or one end of an attention or MLP, and models that only look so.
#include "core/checkpoint/model_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/plain_model.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Names kAttention = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                          "self_attn.o_proj"};
const Names kMlp = {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"};

Names operator+(Names a, const Names& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Without those that hold `text`.
Names operator-(const Names& names, const std::string& text) {
  Names left;
  for (const std::string& name : names) {
    if (name.find(text) == std::string::npos) left.push_back(name);
  }
  return left;
}

// `parts` in each of the layers.
Names Layers(const std::vector<int>& layers, const Names& parts = kAttention + kMlp,
             const std::string& stack = "model.layers.") {
  Names modules;
  for (const int layer : layers) {
    for (const std::string& part : parts) modules.push_back(absl::StrCat(stack, layer, ".", part));
  }
  return modules;
}

std::string Message(const PlainModel& model) {
  return std::string(model.Fused().status().message());
}

// ---- layers ----

TEST(MissingLayersTest, NameKeyExpectedAndGot) {
  const std::string config = R"({"num_hidden_layers": 4})";
  EXPECT_TRUE(PlainModel(config, Layers({0, 1, 2, 3})).Fused().ok());
  for (const auto& [layers, missing] : {std::pair(std::vector<int>{0, 2, 3}, "model.layers.1"),
                                        std::pair(std::vector<int>{0, 1, 2}, "model.layers.3"),
                                        std::pair(std::vector<int>{1, 2, 3}, "model.layers.0")}) {
    const PlainModel damaged(config, Layers(layers) + Names{"lm_head"});
    EXPECT_EQ(ReasonOf(damaged.Fused().status()), "BAD_CHECKPOINT");
    EXPECT_THAT(Message(damaged),
                AllOf(HasSubstr("/config.json: \"num_hidden_layers\": expected linears in the 4 "
                                "layers model.layers.0 to 3, got them in 3"),
                      HasSubstr(absl::StrCat("there are none in ", missing))));
    EXPECT_TRUE(damaged.Plan({}).ok()) << "each for itself is asked for";
  }
}

TEST(MissingLayersTest, CountTheConfigOfTheTextOnly) {
  const Names vision = Layers({0, 1, 2, 3, 4, 5}, {"attn.qkv", "attn.proj"}, "visual.blocks.");
  const std::string config =
      R"({"text_config": {"num_hidden_layers": 3}, "vision_config": {"num_hidden_layers": 9}})";
  EXPECT_TRUE(PlainModel(config, Layers({0, 1, 2}) + vision).Fused().ok());
  EXPECT_TRUE(PlainModel(config, vision).Fused().ok()) << "a file of another part of the model";
  EXPECT_THAT(Message(PlainModel(config, Layers({0, 1}) + vision)),
              AllOf(HasSubstr("\"text_config.num_hidden_layers\""), HasSubstr("model.layers.2")));
}

TEST(MissingLayersTest, OneOfSeveralCountsMustFit) {
  const std::string config =
      R"({"num_hidden_layers": 12, "text_config": {"num_hidden_layers": 2}})";
  EXPECT_TRUE(PlainModel(config, Layers({0, 1})).Fused().ok());
  EXPECT_THAT(Message(PlainModel(config, Layers({0}))), HasSubstr("num_hidden_layers"));
  const std::string two_attentions = R"({"num_hidden_layers": 4, "num_layers": 2})";
  EXPECT_TRUE(
      PlainModel(two_attentions, Layers({0, 1}, {"self_attn.0.o_proj", "self_attn.1.o_proj"}))
          .Fused()
          .ok());
  EXPECT_FALSE(PlainModel(two_attentions, Layers({0})).Fused().ok());
}

TEST(MissingLayersTest, AcceptModelsThatAreMadeSo) {
  const std::string config = R"({"num_hidden_layers": 2, "first_k_dense_replace": 1})";
  const Names experts = {"mlp.experts.0.gate_proj", "mlp.experts.0.up_proj",
                         "mlp.experts.0.down_proj"};
  // Dense layers first, one more for the next token, layers of other kinds.
  EXPECT_TRUE(PlainModel(config, Layers({0}) + Layers({1, 2}, kAttention + experts)).Fused().ok());
  EXPECT_TRUE(PlainModel(config, Layers({0}, {"mixer.in_proj", "mixer.out_proj"}) +
                                     Layers({1}, {"mixer.up_proj", "mixer.down_proj"}))
                  .Fused()
                  .ok());
  EXPECT_TRUE(PlainModel(config, {"lm_head", "merger.mlp.0", "merger.mlp.2"}).Fused().ok());
  const std::string empty =
      R"({"num_hidden_layers": 2, "block_configs": [
          {"attention": {"no_op": false}, "ffn": {"no_op": true}},
          {"attention": {"no_op": true}, "ffn": {"no_op": true}}]})";
  EXPECT_TRUE(PlainModel(empty, Layers({0}, kAttention)).Fused().ok());
  EXPECT_FALSE(PlainModel(empty, Layers({1}, kAttention)).Fused().ok());
  const std::string shared = R"({"num_hidden_layers": 12, "num_hidden_groups": 1})";
  EXPECT_TRUE(PlainModel(shared, Layers({0}, kAttention)).Fused().ok());
  for (const char* none : {"{}", R"({"num_hidden_layers": null})", R"({"num_hidden_layers": 0})"}) {
    EXPECT_TRUE(PlainModel(none, Layers({0, 2})).Fused().ok()) << none;
  }
}

TEST(MissingLayersTest, LookAtWhatIsWanted) {
  const PlainModel damaged(R"({"num_hidden_layers": 3})", Layers({0, 2}));
  EXPECT_TRUE(damaged.Plan({.exclude = {"model.layers.1.*"}, .fuse = true}).ok());
  EXPECT_TRUE(damaged.Plan({.modules = {"model.layers.2.*"}, .fuse = true}).ok());
  EXPECT_TRUE(damaged.Plan({.modules = {"model.layers.0.mlp.down_proj"}, .fuse = true}).ok());
  EXPECT_FALSE(damaged.Plan({.modules = {"*.qkv_proj"}, .fuse = true}).ok());
}

TEST(MissingLayersTest, ALayerOfNormsOnlyHoldsNoLinear) {
  RawTensors tensors = PlainLinears(Layers({0, 1}), 0x3f);
  tensors["model.layers.2.input_layernorm.weight"] = {"BF16", {4}, std::string(8, 0x3f)};
  const TemporaryDirectory directory;
  WriteFile(directory.path() / "config.json", R"({"num_hidden_layers": 3})");
  WriteTensors(directory.path() / "model.safetensors", tensors);
  const auto checkpoint = Checkpoint::Open(directory.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(std::string(PlanModel(**checkpoint, {.fuse = true}).status().message()),
              HasSubstr("there are none in model.layers.2"));
}

TEST(MissingLayersTest, RefuseCountsThatAreNone) {
  for (const char* count : {"\"4\"", "1000000000000000000", "-1", "9223372036854775808", "[4]"}) {
    const TemporaryDirectory directory;
    WriteFile(directory.path() / "config.json",
              absl::StrCat("{\"num_hidden_layers\": ", count, "}"));
    WriteTensors(directory.path() / "model.safetensors", PlainLinears(Layers({0}), 0x3f));
    const absl::Status status = Checkpoint::Open(directory.path()).status();
    EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT") << count;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("config.json: \"num_hidden_layers\": expected"), HasSubstr(count)));
  }
}

// ---- projections ----

TEST(MissingProjectionsTest, NameWhatStandsBesideThem) {
  struct Case {
    Names parts;
    const char* gone;
    const char* message;
  };
  const std::vector<Case> cases = {
      {kAttention + kMlp, "o_proj",
       "module model.layers.1.self_attn.o_proj: expected beside k_proj"},
      {kAttention + kMlp, "down_proj",
       "module model.layers.1.mlp.down_proj: expected beside gate_proj"},
      {{"ffn.w1", "ffn.w2", "ffn.w3"}, "w2", "module model.layers.1.ffn.w2: expected beside w1"},
      {{"mlp.fc1", "mlp.fc2"}, "fc1", "module model.layers.1.mlp.fc1: expected beside fc2"},
  };
  for (const Case& one : cases) {
    const PlainModel damaged("{}", Layers({0, 2}, one.parts) + Layers({1}, one.parts - one.gone));
    EXPECT_EQ(ReasonOf(damaged.Fused().status()), "BAD_CHECKPOINT") << one.gone;
    EXPECT_THAT(Message(damaged), AllOf(HasSubstr(one.message), HasSubstr("2 other places"),
                                        HasSubstr("found no tensors")));
    EXPECT_TRUE(damaged.Plan({}).ok()) << "each for itself is asked for";
    EXPECT_TRUE(damaged.Plan({.exclude = {"model.layers.1.*"}, .fuse = true}).ok());
  }
}

TEST(MissingProjectionsTest, HoldTheOtherWayRound) {
  const PlainModel damaged("{}", Layers({0}, kMlp) + Layers({1}, {"mlp.down_proj"}));
  const auto plan = damaged.Damaged();
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->problems.size(), 2u);
  EXPECT_THAT(std::string(plan->problems[0].message()),
              HasSubstr("module model.layers.1.mlp.gate_proj: expected beside down_proj"));
  EXPECT_THAT(std::string(plan->problems[1].message()),
              HasSubstr("module model.layers.1.mlp.up_proj: expected beside down_proj"));
  EXPECT_TRUE(damaged.Plan({.exclude = {"*.gate_up_proj"}, .fuse = true}).ok());
}

TEST(MissingProjectionsTest, OfAStackOfExpertsAreToldOnce) {
  const Names experts = {"mlp.experts.0.w1", "mlp.experts.0.w2", "mlp.experts.0.w3",
                         "mlp.experts.1.w1", "mlp.experts.1.w2", "mlp.experts.1.w3"};
  const auto plan = PlainModel("{}", Layers({0}, experts) + Layers({1}, experts - "w2")).Damaged();
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->problems.size(), 1u);
  EXPECT_THAT(std::string(plan->problems[0].message()),
              AllOf(HasSubstr("module model.layers.1.mlp.experts.0.w2"),
                    HasSubstr("nor for 1 of the other experts")));
}

TEST(MissingProjectionsTest, AcceptLayersOfOtherKinds) {
  const Names linear = {"self_attn.qkv_proj", "self_attn.output_gate", "self_attn.out_proj"};
  const Names other = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                       "self_attn.dense"};
  for (const Names& second : {linear, other, kMlp, Names{"mixer.up_proj"}}) {
    const auto plan = PlainModel("{}", Layers({0, 2}) + Layers({1, 3}, second)).Fused();
    EXPECT_TRUE(plan.ok()) << plan.status();
  }
  EXPECT_TRUE(PlainModel("{}", Layers({0, 1}, kAttention - "o_proj")).Fused().ok())
      << "the model has none anywhere";
}

}  // namespace
}  // namespace gemmd

// Groups of projections and stacks of experts that a checkpoint holds in parts, whole or not.
#include "core/checkpoint/model_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/plain_model.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Names Experts(int count) {
  Names modules;
  for (int expert = 0; expert < count; ++expert) {
    modules.push_back(absl::StrCat("model.layers.0.mlp.experts.", expert, ".down_proj"));
  }
  return modules;
}

const Names kQk = {"q_proj", "k_proj"};
const Names kQ = {"q_proj"};
const Names kLatent = {"q_proj", "kv_a_proj_with_mqa", "kv_b_proj"};

TEST(FuseModulesTest, JoinsWholeGroupsOnly) {
  EXPECT_THAT(
      FuseModules({"a.q_proj", "a.k_proj", "a.v_proj", "a.o_proj", "b.gate_proj", "b.up_proj",
                   "b.down_proj", "c.q_proj", "c.k_proj", "d.w1", "d.w2", "d.w3", "lm_head"}),
      ElementsAre("a.o_proj", "a.qkv_proj", "b.down_proj", "b.gate_up_proj", "c.k_proj", "c.q_proj",
                  "d.w13", "d.w2", "lm_head"));
}

TEST(FuseModulesTest, JoinsExpertsOfWhichNoneIsMissing) {
  EXPECT_THAT(FuseModules({"m.experts.0.w1", "m.experts.0.w2", "m.experts.0.w3", "m.experts.1.w1",
                           "m.experts.1.w2", "m.experts.1.w3"}),
              ElementsAre("m.experts.w13", "m.experts.w2"));
  // Expert 1 of three is not there, one lacks a part, a number is none.
  EXPECT_THAT(FuseModules({"m.experts.0.w2", "m.experts.2.w2"}),
              ElementsAre("m.experts.0.w2", "m.experts.2.w2"));
  EXPECT_THAT(FuseModules({"m.experts.0.w1", "m.experts.0.w2", "m.experts.1.w2"}),
              ElementsAre("m.experts.0.w1", "m.experts.0.w2", "m.experts.1.w2"));
  EXPECT_THAT(FuseModules({"m.experts.00.w2"}), ElementsAre("m.experts.00.w2"));
}

// ---- stacks ----

TEST(ExpertCountTest, RefusesAStackWithoutTheLastOfTheConfigsExperts) {
  for (const char* config :
       {R"({"num_experts": 4})", R"({"num_local_experts": 4})", R"({"n_routed_experts": 4})",
        R"({"moe_num_experts": [2, 2]})", R"({"text_config": {"num_experts": 4}})",
        R"({"thinker_config": {"text_config": {"n_routed_experts": 4}}})"}) {
    const PlainModel damaged(config, Experts(3));
    for (const absl::Status& status :
         {damaged.Fused().status(), damaged.Read("model.layers.0.mlp.experts.down_proj"),
          damaged.Plan({.experts = {.rank = 0, .size = 3, .range = {}}}).status()}) {
      EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT") << config;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("module model.layers.0.mlp.experts"), HasSubstr("expected"),
                        HasSubstr("4 ("), HasSubstr("got 3")));
    }
    EXPECT_TRUE(damaged.Plan({}).ok()) << "each for itself is asked for";
    const PlainModel whole(config, Experts(4));
    EXPECT_TRUE(whole.Fused().ok()) << whole.Fused().status();
    EXPECT_TRUE(whole.Read("model.layers.0.mlp.experts.down_proj").ok());
  }
}

TEST(ExpertCountTest, NamesTheKeyByItsPath) {
  const PlainModel damaged(R"({"text_config": {"num_experts": 4}})", Experts(3));
  EXPECT_THAT(std::string(damaged.Fused().status().message()),
              HasSubstr("4 (text_config.num_experts)"));
}

TEST(ExpertCountTest, RefusesCountsThatAreNone) {
  for (const char* count : {"\"4\"", "4.0", "-4", "100000", "[4, true]", "{}"}) {
    TemporaryDirectory directory;
    WriteFile(directory.path() / "config.json", absl::StrCat("{\"num_experts\": ", count, "}"));
    WriteTensors(directory.path() / "model.safetensors", PlainLinears(Experts(3), 0x3f));
    const absl::Status status = Checkpoint::Open(directory.path()).status();
    EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT") << count;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("config.json"), HasSubstr("\"num_experts\": expected an integer from 0 to 65536, got ")));
  }
}

TEST(ExpertCountTest, LeavesAloneWhatTheConfigDoesNotCount) {
  for (const char* config :
       {"{}", R"({"num_experts": 0})", R"({"num_experts": null})", R"({"num_experts_per_tok": 4})", R"({"quantization_config": null})"}) {
    EXPECT_TRUE(PlainModel(config, Experts(3)).Fused().ok()) << config;
  }
  const PlainModel shared(R"({"num_experts": 4})",
                     {"mlp.shared_experts.0.w2", "mlp.shared_experts.1.w2"});
  EXPECT_TRUE(shared.Fused().ok()) << "every token goes through these";
}

// As in DeepSeek-V3: one dense layer beside the stack, which no rank of expert parallelism cuts.
TEST(SharedExpertsTest, AreADenseLayerOfEveryRank) {
  Names modules = Experts(4);
  for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
    modules.push_back(absl::StrCat("model.layers.0.mlp.shared_experts.", name));
  }
  const PlainModel model(R"({"num_experts": 4, "n_shared_experts": 1})", modules);
  const auto plan = model.Plan({.fuse = true, .experts = {.rank = 1, .size = 2, .range = {}}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  int shared = 0;
  for (const PlannedModule& planned : plan->modules) {
    if (absl::StrContains(planned.module, "shared_experts")) {
      ++shared;
      EXPECT_TRUE(planned.slice.whole()) << planned.module;
    }
    const absl::Status read = model.Read(planned.module, planned.slice);
    EXPECT_TRUE(read.ok()) << planned.module << ": " << read;
  }
  EXPECT_EQ(shared, 2) << "gate_up_proj and down_proj";
}

TEST(ExpertCountTest, CountsWholeStacksAlsoForARank) {
  const PlainModel whole(R"({"num_experts": 4})", Experts(4));
  const SliceRequest slice{.experts = {.rank = 1, .size = 2, .range = {}}};
  EXPECT_TRUE(whole.Read("model.layers.0.mlp.experts.down_proj", slice).ok());
  for (const bool fuse : {false, true}) {
    const auto plan = whole.Plan({.fuse = fuse, .experts = slice.experts});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->modules.size(), fuse ? 1u : 2u);
  }
}

TEST(ExpertCountTest, HoldsForStacksThatAreStoredAsOne) {
  EditableCheckpoint stack("gptoss_mxfp4_hf");
  for (const int64_t experts : {3, 4}) {
    stack.config["num_local_experts"] = experts;
    const TemporaryDirectory directory;
    stack.Write(directory.path());
    const absl::Status status =
        ReadLayer(directory.path(), "model.layers.0.mlp.experts.down_proj").status();
    EXPECT_EQ(ReasonOf(status), experts == 3 ? "" : "BAD_CHECKPOINT") << status;
  }
}

// ---- groups ----

TEST(PartsTest, RefusesALayerWithoutAPartThatOthersHave) {
  for (const Names& left : {kQk, kQ, Names{"k_proj"}, Names{"q_proj", "v_proj"}}) {
    const auto plan = PlainModel("{}", Attention({kQkv, kQkv, left})).Fused();
    EXPECT_EQ(ReasonOf(plan.status()), "BAD_CHECKPOINT");
    EXPECT_THAT(std::string(plan.status().message()),
                AllOf(HasSubstr("module model.layers.2.self_attn."), HasSubstr("expected"),
                      HasSubstr("2 other layers"), HasSubstr("no tensors")));
  }
  const auto gate =
      PlainModel("{}", {"l.0.mlp.gate_proj", "l.0.mlp.up_proj", "l.1.mlp.up_proj"}).Fused();
  EXPECT_THAT(std::string(gate.status().message()), HasSubstr("module l.1.mlp.gate_proj"));
  const auto latent =
      PlainModel("{}", {"l.0.a.q_a_proj", "l.0.a.kv_a_proj_with_mqa", "l.1.a.kv_a_proj_with_mqa"})
          .Fused();
  EXPECT_THAT(std::string(latent.status().message()), HasSubstr("module l.1.a.q_a_proj"));
}

TEST(PartsTest, RefusesAStackWhoseExpertsAllLackAPart) {
  Names modules;
  for (const char* expert :
       {"0.mlp.experts.0.", "0.mlp.experts.1.", "1.mlp.experts.0.", "1.mlp.experts.1."}) {
    modules.push_back(absl::StrCat("l.", expert, "w1"));
    if (expert[0] == '0') modules.push_back(absl::StrCat("l.", expert, "w3"));
  }
  EXPECT_THAT(std::string(PlainModel("{}", modules).Fused().status().message()),
              HasSubstr("module l.1.mlp.experts.0.w3: expected beside w1"));
}

TEST(PartsTest, AcceptsWhatTheConfigExplains) {
  struct Case {
    const char* config;
    Names layer;
    const char* note;
  };
  const std::vector<Case> cases = {
      {R"({"text_config": {"attention_k_eq_v": true}})", kQk, "attention_k_eq_v"},
      {R"({"num_hidden_layers": 3, "num_kv_shared_layers": 1})", kQ, "num_kv_shared_layers"},
      {R"({"use_cla": true, "cla_share_factor": 2})", kQ, "use_cla"},
  };
  for (const Case& one : cases) {
    const auto plan = PlainModel(one.config, Attention({kQkv, kQkv, one.layer})).Fused();
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_THAT(plan->notes,
                ElementsAre(AllOf(HasSubstr("model.layers.2.self_attn"), HasSubstr(one.note))));
    EXPECT_EQ(plan->modules.size(), 2 + one.layer.size());
    // It explains this and nothing else.
    const auto other = PlainModel(one.config, Attention({kQkv, {"k_proj", "v_proj"}, kQkv})).Fused();
    EXPECT_EQ(ReasonOf(other.status()), "BAD_CHECKPOINT") << one.config;
  }
  const PlainModel too_early(cases[1].config, Attention({kQkv, kQ, kQ}));
  EXPECT_THAT(std::string(too_early.Fused().status().message()),
              HasSubstr("model.layers.1.self_attn.k_proj"));
}

TEST(PartsTest, SaysNothingOfModelsThatAreMadeSo) {
  for (const Names& modules :
       {Attention({kQkv, kLatent, kQkv}), Attention({kLatent, kLatent}), Attention({kQ, kQ}),
        Names{"l.0.mixer.up_proj", "l.1.mixer.up_proj"}, Names{"l.0.mlp.w1", "l.0.mlp.w2"},
        Names{"l.0.cross_attn.q_proj", "l.0.self_attn.q_proj", "l.0.self_attn.k_proj",
              "l.0.self_attn.v_proj"}}) {
    const auto plan = PlainModel("{}", modules).Fused();
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_THAT(plan->notes, IsEmpty()) << modules.front();
  }
}

TEST(PartsTest, SaysWhichPartsStaySingleEverywhere) {
  const auto plan = PlainModel("{}", Attention({kQk, kQk, kQk})).Fused();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(
      plan->notes,
      ElementsAre(
          "module model.layers.0.self_attn and 2 more: q_proj, k_proj stay single, there is no "
          "qkv_proj: the model has no v_proj"));
  const auto gate = PlainModel("{}", {"l.0.mlp.gate_proj", "l.1.mlp.gate_proj"}).Fused();
  ASSERT_TRUE(gate.ok()) << gate.status();
  EXPECT_EQ(gate->notes.size(), 1u) << "a gate without what it gates";
}

TEST(PartsTest, SaysWhichPartIsNotQuantized) {
  EditableCheckpoint mixed("modelopt_fp8_llama");
  const std::string part = "model.layers.0.self_attn.v_proj";
  mixed.modelopt_config["quantization"]["exclude_modules"].push_back(part);
  if (mixed.config.contains("quantization_config"))
    mixed.config["quantization_config"]["ignore"].push_back(part);
  for (auto it = mixed.tensors.begin(); it != mixed.tensors.end();) {
    it = it->first.rfind(part, 0) == 0 ? mixed.tensors.erase(it) : std::next(it);
  }
  mixed.tensors[part + ".weight"] = {"BF16", {2, 4}, std::string(16, 0)};
  const TemporaryDirectory directory;
  mixed.Write(directory.path());
  const auto checkpoint = Checkpoint::Open(directory.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto plan = PlanModel(**checkpoint, {.fuse = true});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->notes, ElementsAre(HasSubstr("v_proj is not quantized")));
}

TEST(PartsTest, LooksAtWhatIsChosen) {
  const PlainModel damaged("{}", Attention({kQkv, kQk}));
  EXPECT_TRUE(damaged.Plan({.exclude = {"model.layers.1.*"}, .fuse = true}).ok());
  EXPECT_TRUE(damaged.Plan({.modules = {"model.layers.1.self_attn.q_proj"}, .fuse = true}).ok())
      << "asked for by its own name";
  EXPECT_FALSE(damaged.Plan({.modules = {"*.q_proj"}, .fuse = true}).ok());
  EXPECT_TRUE(damaged.Plan({}).ok());
}

}  // namespace
}  // namespace gemmd

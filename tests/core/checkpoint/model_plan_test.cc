// Which modules of a checkpoint one call registers, and which part of each a rank holds.
#include "core/checkpoint/model_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "absl/strings/match.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kLayer[] = "model.layers.0.";

std::vector<std::string> WithLayer(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const std::string& name : names) out.push_back(kLayer + name);
  return out;
}

absl::StatusOr<ModelPlan> Plan(const std::string& name, const ModelSelection& selection) {
  const auto checkpoint = Checkpoint::Open(CaseDirectory(name));
  if (!checkpoint.ok()) return checkpoint.status();
  return PlanModel(**checkpoint, selection);
}

std::map<std::string, PlannedModule> PlanByName(const std::string& name,
                                                const ModelSelection& selection) {
  std::map<std::string, PlannedModule> plan;
  const auto planned = Plan(name, selection);
  EXPECT_TRUE(planned.ok()) << planned.status();
  if (!planned.ok()) return plan;
  for (const PlannedModule& module : planned->modules) plan[module.module] = module;
  return plan;
}

std::vector<std::string> NamesOf(const std::map<std::string, PlannedModule>& plan) {
  std::vector<std::string> names;
  for (const auto& [name, module] : plan) names.push_back(name);
  return names;
}

// Without the tensors whose names `is_gone` holds for.
template <typename Predicate>
void Drop(EditableCheckpoint& checkpoint, const Predicate& is_gone) {
  for (auto it = checkpoint.tensors.begin(); it != checkpoint.tensors.end();) {
    it = is_gone(it->first) ? checkpoint.tensors.erase(it) : std::next(it);
  }
}

// Of a checkpoint in two equal files, whose index has all tensors in the first, and `name` in `file`.
absl::Status PlanWithIndex(const std::string& name, const std::string& file) {
  const EditableCheckpoint whole("gptq_v1_autogptq_b4_g128_sym");
  const TemporaryDirectory directory;
  whole.Write(directory.path());
  std::filesystem::copy_file(directory.path() / "model.safetensors", directory.path() / "other.safetensors");
  nlohmann::json weight_map;
  for (const auto& [tensor, data] : whole.tensors) weight_map[tensor] = "model.safetensors";
  weight_map[name] = file;
  std::ofstream(directory.path() / "model.safetensors.index.json") << nlohmann::json{{"weight_map", weight_map}};
  const auto checkpoint = Checkpoint::Open(directory.path());
  return checkpoint.ok() ? PlanModel(**checkpoint, {}).status() : checkpoint.status();
}

TEST(PlanModelTest, TakesAllModulesWithTheirBytes) {
  const auto plan = PlanByName("modelopt_fp8_llama", {});
  EXPECT_EQ(plan.size(), 7u);
  const RawTensors stored = LoadTensors(CaseDirectory("modelopt_fp8_llama") / "model.safetensors");
  for (const auto& [module, planned] : plan) {
    uint64_t bytes = 0;
    for (const auto& [name, tensor] : stored) {
      if (name.rfind(module + ".", 0) == 0) bytes += tensor.bytes.size();
    }
    EXPECT_EQ(planned.bytes, bytes) << module;
    EXPECT_TRUE(planned.slice.whole()) << module;
  }
}

TEST(PlanModelTest, ChoosesByPatternAndName) {
  const std::string name = "modelopt_fp8_llama";
  EXPECT_EQ(NamesOf(PlanByName(name, {.modules = {"*.mlp.*"}, .exclude = {"*.up_proj"}})),
            WithLayer({"mlp.down_proj", "mlp.gate_proj"}));
  // A module of parts may be named beside the parts.
  EXPECT_EQ(NamesOf(PlanByName(
                name, {.modules = {"model.layers.0.self_attn.qkv_proj", "*.?_proj"}})),
            WithLayer({"self_attn.k_proj", "self_attn.o_proj", "self_attn.q_proj",
                       "self_attn.qkv_proj", "self_attn.v_proj"}));
  const auto none = Plan(name, {.modules = {"*.mlp.*", "*.nothing"}});
  EXPECT_EQ(ReasonOf(none.status()), "MODULE_NOT_FOUND");
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("*.nothing"));
  EXPECT_EQ(ReasonOf(Plan(name, {.exclude = {"*"}}).status()), "MODULE_NOT_FOUND");
}

// Only its scale says that a module of 8-bit weights is quantized. Without it, it fails; it does not go missing.
TEST(PlanModelTest, NamesPatternsThatLeaveNothingOut) {
  const auto plan = Plan("modelopt_fp8_llama", {.modules = {"*mlp*"}, .exclude = {"*up_proj", "*o_proj", "lm_hed"}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->unmatched_exclude, ElementsAre("*o_proj", "lm_hed")) << "o_proj is there, and not chosen";
  const auto fused = Plan("modelopt_fp8_llama", {.exclude = {"*.up_proj"}, .fuse = true});
  ASSERT_TRUE(fused.ok()) << fused.status();
  EXPECT_THAT(fused->unmatched_exclude, ElementsAre("*.up_proj"));
}

TEST(PlanModelTest, HasModulesWhoseScalesAreMissing) {
  for (const char* name : {"modelopt_fp8_llama", "modelopt_nvfp4_odd", "encoded_fp8_experts_tensor"}) {
    EditableCheckpoint damaged(name);
    Drop(damaged, [](const std::string& tensor) { return absl::StrContains(tensor, "weight_scale"); });
    TemporaryDirectory directory;
    damaged.Write(directory.path());
    const auto checkpoint = Checkpoint::Open(directory.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const auto plan = PlanModel(**checkpoint, {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->modules.size(), PlanByName(name, {}).size()) << name;
    EXPECT_EQ(ReasonOf((*checkpoint)->ReadLayer(plan->modules.front().module).status()), "BAD_CHECKPOINT");
  }
}

TEST(PlanModelTest, HasModulesWhoseCodesAreMissing) {
  for (const char* name : {"gptq_v1_autogptq_b4_g128_sym", "awq_gemm_g64_qkv", "autoround_autogptq_b4_g64_sym",
                           "autoround_native_b4_g32_asym"}) {
    EditableCheckpoint damaged(name);
    Drop(damaged, [](const std::string& tensor) { return absl::EndsWith(tensor, ".qweight"); });
    TemporaryDirectory directory;
    damaged.Write(directory.path());
    const auto checkpoint = Checkpoint::Open(directory.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const auto plan = PlanModel(**checkpoint, {});
    ASSERT_TRUE(plan.ok()) << name << ": " << plan.status();
    EXPECT_EQ(plan->modules.size(), PlanByName(name, {}).size()) << name;
    EXPECT_EQ(ReasonOf((*checkpoint)->ReadLayer(plan->modules.front().module).status()), "BAD_CHECKPOINT");
  }
}

TEST(PlanModelTest, RefusesStacksWithAGap) {
  for (const char* gone : {"experts.1.", "experts.2.up_proj"}) {
    EditableCheckpoint damaged("modelopt_fp8_qwen3moe");
    Drop(damaged, [&](const std::string& tensor) { return absl::StrContains(tensor, gone); });
    TemporaryDirectory directory;
    damaged.Write(directory.path());
    const auto checkpoint = Checkpoint::Open(directory.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const absl::Status status = PlanModel(**checkpoint, {.fuse = true}).status();
    EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT") << gone;
    EXPECT_THAT(std::string(status.message()), HasSubstr(gone));
    EXPECT_TRUE(PlanModel(**checkpoint, {}).ok()) << "each for itself is asked for";
  }
}

TEST(PlanModelTest, SaysThatNothingIsThereToChoose) {
  EditableCheckpoint without("gptq_v1_autogptq_b4_g128_sym");
  without.config.erase("quantization_config");
  without.tensors = {{"model.norm.weight", {"BF16", {4}, std::string(8, 0x3f)}}};
  EditableCheckpoint empty("gptq_v1_autogptq_b4_g128_sym");
  empty.tensors.clear();
  for (const auto& [checkpoint, text] :
       {std::pair(without,
                  "names no quantization, and none of the files' 1 tensors belongs to a linear"),
        std::pair(empty,
                  "names a quantization, and none of the files' 0 tensors belongs to a quantized "
                  "module or to a linear")}) {
    const TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    const auto opened = Checkpoint::Open(directory.path());
    ASSERT_TRUE(opened.ok()) << opened.status();
    const absl::Status status = PlanModel(**opened, {}).status();
    EXPECT_EQ(ReasonOf(status), "MODULE_NOT_FOUND");
    EXPECT_THAT(std::string(status.message()),
                HasSubstr((directory.path() / "config.json").string() + ": it " + text));
  }
}

TEST(PlanModelTest, RefusesAnIndexThatPromisesMore) {
  const absl::Status status = PlanWithIndex("model.layers.1.mlp.up_proj.qweight", "model.safetensors");
  EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.layers.1.mlp.up_proj.qweight"));
}

TEST(PlanModelTest, RefusesATensorInTwoFiles) {
  const absl::Status status = PlanWithIndex("model.layers.0.mlp.down_proj.scales", "other.safetensors");
  EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(status.message()), HasSubstr("by the index"));
}

TEST(PlanModelTest, FusesBeforePatternsAreMatched) {
  const auto plan = PlanByName("modelopt_fp8_llama", {.fuse = true});
  EXPECT_EQ(NamesOf(plan), WithLayer({"mlp.down_proj", "mlp.gate_up_proj", "self_attn.o_proj",
                                      "self_attn.qkv_proj"}));
  uint64_t bytes = 0;
  for (const auto& [module, planned] : PlanByName("modelopt_fp8_llama", {})) bytes += planned.bytes;
  for (const auto& [module, planned] : plan) bytes -= planned.bytes;
  EXPECT_EQ(bytes, 0u) << "parts count as the whole";
  EXPECT_EQ(PlanByName("modelopt_fp8_llama", {.modules = {"*.q*_proj"}, .fuse = true}).size(), 1u);
}

TEST(PlanModelTest, CutsModulesByTheirNames) {
  ModelSelection selection;
  selection.tensor = {.rank = 1, .size = 2, .range = {}};
  for (const auto& [module, planned] : PlanByName("modelopt_fp8_llama", selection)) {
    const bool columns = module == "model.layers.0.self_attn.o_proj" ||
                         module == "model.layers.0.mlp.down_proj";
    EXPECT_EQ(planned.slice.columns.size, columns ? 2 : 0) << module;
    EXPECT_EQ(planned.slice.rows.size, columns ? 0 : 2) << module;
  }
  selection.column_modules = {"*.q_proj"};
  for (const auto& [module, planned] : PlanByName("modelopt_fp8_llama", selection)) {
    EXPECT_EQ(planned.slice.whole(), module != "model.layers.0.self_attn.q_proj") << module;
  }
}

TEST(PlanModelTest, GivesARankItsExperts) {
  ModelSelection selection;
  selection.modules = {"*.experts.*"};
  selection.experts.range = {1, 3};
  const auto single = PlanByName("modelopt_fp8_qwen3moe", selection);
  EXPECT_EQ(single.size(), 6u) << "three projections of two of the experts";
  EXPECT_EQ(single.count("model.layers.0.mlp.experts.0.up_proj"), 0u);
  for (const auto& [module, planned] : single) EXPECT_TRUE(planned.slice.whole()) << module;
  selection.fuse = true;
  const auto stacks = PlanByName("modelopt_fp8_qwen3moe", selection);
  EXPECT_EQ(NamesOf(stacks), WithLayer({"mlp.experts.down_proj", "mlp.experts.gate_up_proj"}));
  uint64_t bytes = 0;
  for (const auto& [module, planned] : single) bytes += planned.bytes;
  for (const auto& [module, planned] : stacks) {
    EXPECT_EQ(planned.slice.experts.range.begin, 1) << module;
    bytes -= planned.bytes;
  }
  EXPECT_EQ(bytes, 0u) << "of the rank's experts only";
  selection.fuse = false;
  selection.experts = {.rank = 0, .size = 2, .range = {}};
  EXPECT_EQ(ReasonOf(Plan("modelopt_fp8_qwen3moe", selection).status()), "SHAPE_MISMATCH")
      << "two ranks of three experts";
}

}  // namespace
}  // namespace gemmd

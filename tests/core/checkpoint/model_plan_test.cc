// Which modules of a checkpoint one call registers, and which part of each a rank holds.
#include "core/checkpoint/model_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

// ---- parts that cannot be one layer ----

// What a plan with `fuse` of these tensors holds.
absl::StatusOr<ModelPlan> FusedPlan(const RawTensors& tensors, const std::string& config = "{}") {
  const TemporaryDirectory directory;
  WriteFile(directory.path() / "config.json", config);
  WriteTensors(directory.path() / "model.safetensors", tensors);
  const auto checkpoint = Checkpoint::Open(directory.path());
  if (!checkpoint.ok()) return checkpoint.status();
  return PlanModel(**checkpoint, {.fuse = true});
}

std::vector<std::string> ModulesOf(const ModelPlan& plan) {
  std::vector<std::string> names;
  for (const PlannedModule& module : plan.modules) names.push_back(module.module);
  return names;
}

TEST(PlanModelTest, LeavesPartsOfDifferentTypesSingle) {
  RawTensors tensors = PlainLinears({"l.0.a.q_proj", "l.0.a.k_proj", "l.0.a.v_proj", "l.1.a.q_proj", "l.1.a.k_proj",
                                     "l.1.a.v_proj", "l.2.a.q_proj", "l.2.a.k_proj", "l.2.a.v_proj"},
                                    0x3f);
  tensors["l.0.a.v_proj.weight"] = {"F32", {2, 4}, std::string(32, 0x3f)};
  tensors["l.2.a.v_proj.weight"] = {"F32", {2, 4}, std::string(32, 0x3f)};
  const auto plan = FusedPlan(tensors);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(ModulesOf(*plan), testing::ElementsAre("l.0.a.k_proj", "l.0.a.q_proj", "l.0.a.v_proj", "l.1.a.qkv_proj",
                                                     "l.2.a.k_proj", "l.2.a.q_proj", "l.2.a.v_proj"));
  EXPECT_THAT(plan->notes,
              testing::ElementsAre("module l.0.a.qkv_proj and 1 more: left in its parts: its parts cannot be one layer: "
                                   "weight type: v_proj has F32, q_proj has BF16"));
}

TEST(PlanModelTest, JoinsPartsThatDifferInWhatIsBridged) {
  RawTensors tensors = PlainLinears({"l.0.a.q_proj", "l.0.a.k_proj", "l.0.a.v_proj"}, 0x3f);
  tensors["l.0.a.q_proj.weight"] = {"BF16", {6, 4}, std::string(48, 0x3f)};
  tensors["l.0.a.q_proj.bias"] = {"BF16", {6}, std::string(12, 0x3f)};
  const auto plan = FusedPlan(tensors);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(ModulesOf(*plan), testing::ElementsAre("l.0.a.qkv_proj"));
  EXPECT_TRUE(plan->notes.empty());
  tensors["l.0.a.v_proj.bias"] = {"F32", {2}, std::string(8, 0x3f)};
  const auto apart = FusedPlan(tensors);
  ASSERT_TRUE(apart.ok()) << apart.status();
  EXPECT_EQ(apart->modules.size(), 3u);
  EXPECT_THAT(apart->notes, testing::ElementsAre(testing::HasSubstr("bias type: v_proj has F32, q_proj has BF16")));
}

// gate of 4 bits and up of 8, by GPTQ's dynamic; then both of 4 bits with another order of columns.
TEST(PlanModelTest, LeavesPartsOfOtherBitsOrOrdersSingle) {
  constexpr int kBits = 4;
  const auto gptq = [](RawTensors& tensors, const std::string& module, int64_t bits, const std::vector<int32_t>& order) {
    constexpr int64_t n = 32;
    const auto k = static_cast<int64_t>(order.size());
    const auto zeros = [](int64_t count) { return std::string(static_cast<size_t>(count), 0); };
    tensors[module + ".qweight"] = {"I32", {k * bits / 32, n}, zeros(k * bits / 8 * n)};
    tensors[module + ".qzeros"] = {"I32", {2, n * bits / 32}, zeros(2 * n * bits / 8)};
    tensors[module + ".scales"] = {"F16", {2, n}, std::string(2 * 2 * n, 0x3c)};
    tensors[module + ".g_idx"] = {"I32", {k}, std::string(reinterpret_cast<const char*>(order.data()), order.size() * 4)};
  };
  std::vector<int32_t> plain(64);
  for (size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<int32_t>(i / 32);
  std::vector<int32_t> other = plain;
  std::swap(other[3], other[40]);
  const char* const config = R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": false,
      "desc_act": true, "checkpoint_format": "gptq_v2", "dynamic": {".*wide.*up_proj": {"bits": 8}}}})";
  struct Case {
    const char* prefix;
    int64_t up_bits;
    const std::vector<int32_t>& up_order;
    const char* note;
  };
  for (const Case& one : {Case{"l.0.wide.", 8, plain, "weight type: up_proj has int8, gate_proj has int4"},
                          Case{"l.0.mlp.", kBits, other, "group of column 3 (g_idx): up_proj has 1, gate_proj has 0"}}) {
    const std::string prefix = one.prefix;
    RawTensors tensors;
    gptq(tensors, prefix + "gate_proj", kBits, plain);
    gptq(tensors, prefix + "up_proj", one.up_bits, one.up_order);
    const auto plan = FusedPlan(tensors, config);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_THAT(ModulesOf(*plan), testing::ElementsAre(prefix + "gate_proj", prefix + "up_proj"));
    EXPECT_THAT(plan->notes, testing::ElementsAre("module " + prefix + "gate_up_proj: left in its parts: its parts cannot "
                                                  "be one layer: " + one.note));
  }
}

// ---- what is not read ----

TEST(PlanModelTest, NotesFilesAndTensorsThatTheIndexDoesNotName) {
  const TemporaryDirectory directory;
  WriteFile(directory.path() / "config.json", "{}");
  WriteTensors(directory.path() / "one.safetensors", PlainLinears({"a", "b"}, 0x3f));
  WriteTensors(directory.path() / "two.safetensors", PlainLinears({"c"}, 0x3f));
  WriteFile(directory.path() / "model.safetensors.index.json", R"({"weight_map": {"a.weight": "one.safetensors"}})");
  const auto checkpoint = Checkpoint::Open(directory.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto plan = PlanModel(**checkpoint, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::string why = "that are not read, model.safetensors.index.json does not name them: ";
  EXPECT_THAT(plan->notes, testing::ElementsAre("files " + why + "two.safetensors",
                                                "tensors " + why + "b.weight in one.safetensors"));
  for (const auto& [module, file] : {std::pair("b", "one.safetensors"), std::pair("c", "two.safetensors")}) {
    const absl::Status status = (*checkpoint)->ReadLayer(module).status();
    EXPECT_EQ(ReasonOf(status), "MODULE_NOT_FOUND");
    EXPECT_EQ(std::string(status.message()),
              absl::StrCat("the checkpoint has no tensor of a module \"", module, "\"; ", (directory.path() / file).string(),
                           " holds some, and is not read for them: add them to \"weight_map\" of "
                           "model.safetensors.index.json"));
  }
  EXPECT_EQ(std::string((*checkpoint)->ReadLayer("d").status().message()),
            "the checkpoint has no tensor of a module \"d\"");
}

}  // namespace
}  // namespace gemmd

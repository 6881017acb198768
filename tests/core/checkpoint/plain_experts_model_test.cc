// Whole models whose experts lie in one tensor that is not quantized: what is planned for a rank, and what is missed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/layer_kinds.h"
#include "core/checkpoint/model_plan.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/plain_stack.h"

namespace gemmd::plain_stack {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr int64_t kLayers = 4;

std::string Of(int64_t layer, const std::string& name) {
  return absl::StrCat("model.layers.", layer, ".", name);
}

class PlainExpertsModelTest : public PlainExpertsTest {
 protected:
  // A model as gpt-oss is made, of four layers.
  void MakeGptOss() {
    config_ = Config("gpt_oss", R"(, "num_hidden_layers": 4)");
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
        tensors_[Of(layer, absl::StrCat("self_attn.", name, ".weight"))] =
            Random({kHidden, kHidden});
      }
      tensors_[Of(layer, "mlp.router.weight")] = Random({kExperts, kHidden});
      for (const auto& [name, tensor] : GptOss())
        tensors_[Of(layer, "mlp.experts." + name)] = tensor;
    }
  }
  void MakeGranite() {
    config_ =
        Config("granitemoeshared", R"(, "num_hidden_layers": 2, "shared_intermediate_size": 20)");
    for (int64_t layer = 0; layer < 2; ++layer) {
      tensors_[Of(layer, "block_sparse_moe.input_linear.weight")] =
          Random({kExperts, 2 * kInner, kHidden});
      tensors_[Of(layer, "block_sparse_moe.output_linear.weight")] =
          Random({kExperts, kHidden, kInner});
      tensors_[Of(layer, "shared_mlp.input_linear.weight")] = Random({40, kHidden});
      tensors_[Of(layer, "shared_mlp.output_linear.weight")] = Random({kHidden, 20});
    }
  }
  std::shared_ptr<const Checkpoint> Write() {
    WriteFile(directory_.path() / "config.json", config_);
    WriteTensors(directory_.path() / "model.safetensors", tensors_);
    return *Checkpoint::Open(directory_.path());
  }
  std::vector<std::string> Problems() {
    const auto plan = PlanDamagedModel(*Write(), {.fuse = true});
    EXPECT_TRUE(plan.ok()) << plan.status();
    std::vector<std::string> problems;
    for (const absl::Status& problem : plan->problems) problems.emplace_back(problem.message());
    return problems;
  }

  TemporaryDirectory directory_;
  std::string config_;
  RawTensors tensors_;
};

constexpr AxisSlice kSecondHalf{.rank = 1, .size = 2, .range = {}};

TEST_F(PlainExpertsModelTest, ARankHasItsExpertsAndItsPartOfEach) {
  MakeGptOss();
  const auto checkpoint = Write();
  const auto plan = PlanModel(
      *checkpoint,
      {.exclude = {"*router"}, .fuse = true, .tensor = kSecondHalf, .experts = kSecondHalf});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->modules.size(), 4u * kLayers);
  for (const PlannedModule& planned : plan->modules) {
    const auto layer = checkpoint->ReadLayer(planned.module, nullptr, planned.slice);
    ASSERT_TRUE(layer.ok()) << layer.status();
    const LayerShape& shape = layer->tensor.shape;
    if (planned.module.ends_with("experts.gate_up_proj")) {
      EXPECT_EQ(shape, (LayerShape{2, kInner, kHidden}));
      EXPECT_TRUE(layer->tensor.gate_up_interleaved);
    } else if (planned.module.ends_with("experts.down_proj")) {
      EXPECT_EQ(shape, (LayerShape{2, kHidden, kInner / 2}));
      EXPECT_FALSE(layer->tensor.spec.bias.present()) << "the first rank of the columns has it";
    } else {
      EXPECT_EQ(shape.experts, 1);
    }
  }
}

TEST_F(PlainExpertsModelTest, LayersAlikeAreOneKind) {
  MakeGptOss();
  const auto checkpoint = Write();
  const auto plan = PlanModel(*checkpoint, {.modules = {"*experts.*"}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto kinds = LayerKindsOf(
      *checkpoint, plan->modules, [] { return false; }, nullptr);
  ASSERT_TRUE(kinds.ok()) << kinds.status();
  ASSERT_EQ(kinds->size(), 2u);
  EXPECT_EQ((*kinds)[0].modules, kLayers);
  EXPECT_EQ((*kinds)[0].shape, (LayerShape{kExperts, kHidden, kInner}));
  EXPECT_EQ((*kinds)[1].shape, (LayerShape{kExperts, 2 * kInner, kHidden}));
}

// Of the experts by their number, of the MLP that every token goes through whole; both have halves of gate and up.
TEST_F(PlainExpertsModelTest, GraniteIsCutByItsNames) {
  MakeGranite();
  const auto checkpoint = Write();
  const auto plan =
      PlanModel(*checkpoint, {.modules = {"*.0.*"}, .tensor = kSecondHalf, .experts = kSecondHalf});
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> shapes;
  for (const PlannedModule& planned : plan->modules) {
    const auto layer = checkpoint->ReadLayer(planned.module, nullptr, planned.slice);
    ASSERT_TRUE(layer.ok()) << layer.status();
    const auto& [experts, n, k] = layer->tensor.shape;
    shapes.push_back(absl::StrCat(planned.module.substr(15), " ", experts, " ", n, " ", k));
  }
  EXPECT_THAT(
      shapes,
      ElementsAre("block_sparse_moe.input_linear 2 12 40", "block_sparse_moe.output_linear 2 40 6",
                  "shared_mlp.input_linear 1 20 40", "shared_mlp.output_linear 1 40 10"));
  const SliceRequest half{.rows = kSecondHalf};
  const std::string shared = Of(0, "shared_mlp.input_linear");
  const auto layer = checkpoint->ReadLayer(shared, nullptr, half);
  ASSERT_TRUE(layer.ok()) << layer.status();
  const Place all = Rows(40, kHidden);
  ExpectWeights(layer->tensor, {1, 20, kHidden}, tensors_.at(shared + ".weight"),
                [&](int64_t, int64_t n, int64_t k) { return all(0, n < 10 ? 10 + n : 20 + n, k); });
}

TEST_F(PlainExpertsModelTest, AWholeModelLacksNothing) {
  MakeGptOss();
  EXPECT_THAT(Problems(), ElementsAre());
}

TEST_F(PlainExpertsModelTest, MissingStacksAreNamed) {
  MakeGptOss();
  tensors_.erase(Of(1, "mlp.experts.down_proj"));
  tensors_.erase(Of(1, "mlp.experts.down_proj_bias"));
  for (const char* name : {"gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias"}) {
    tensors_.erase(Of(2, absl::StrCat("mlp.experts.", name)));
  }
  EXPECT_THAT(Problems(),
              UnorderedElementsAre(
                  HasSubstr("module model.layers.1.mlp.experts.down_proj: expected beside"),
                  HasSubstr("module model.layers.2.mlp.experts: expected, as all")));
  tensors_.clear();
  MakeGranite();
  tensors_.erase(Of(1, "block_sparse_moe.output_linear.weight"));
  EXPECT_THAT(Problems(),
              ElementsAre(HasSubstr(
                  "module model.layers.1.block_sparse_moe.output_linear: expected beside")));
}

// The bias is there, the weights are not.
TEST_F(PlainExpertsModelTest, AStackOfBiasesAloneIsListedAndFails) {
  MakeGptOss();
  tensors_.erase(Of(3, "mlp.experts.down_proj"));
  const auto checkpoint = Write();
  EXPECT_THAT(*ListCandidates(*checkpoint), ::testing::Contains(Of(3, "mlp.experts.down_proj")));
  const absl::Status status = checkpoint->ReadLayer(Of(3, "mlp.experts.down_proj")).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tensor model.layers.3.mlp.experts.down_proj: missing"));
}

TEST_F(PlainExpertsModelTest, AStackWithoutTheBiasOfItsSiblingsIsRefused) {
  for (const char* type : {"gpt_oss", "of_the_future"}) {
    tensors_.clear();
    MakeGptOss();
    config_ = Config(type, R"(, "num_hidden_layers": 4)");
    tensors_.erase(Of(2, "mlp.experts.down_proj_bias"));
    const auto checkpoint = Write();
    const absl::Status status = checkpoint->ReadLayer(Of(2, "mlp.experts.down_proj")).status();
    EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT");
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("module model.layers.2.mlp.experts.down_proj: tensor "
                          "model.layers.2.mlp.experts.down_proj_bias: missing, expected as 3 other layers "
                          "have it (model.layers.0.mlp.experts.down_proj_bias)"));
    EXPECT_TRUE(checkpoint->ReadLayer(Of(1, "mlp.experts.down_proj")).ok());
  }
}

TEST_F(PlainExpertsModelTest, AStackOfOriginalNamesWithoutTheBiasOfItsSiblingsIsRefused) {
  config_ = absl::StrCat("{", kSizes, "}");
  for (const char* block : {"block.0.mlp.", "block.1.mlp."}) {
    tensors_[absl::StrCat(block, "mlp1_weight")] = Random({kExperts, 2 * kInner, kHidden});
    tensors_[absl::StrCat(block, "mlp1_bias")] = Random({kExperts, 2 * kInner});
  }
  tensors_.erase("block.1.mlp.mlp1_bias");
  const absl::Status status = Write()->ReadLayer("block.1.mlp.mlp1_weight").status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tensor block.1.mlp.mlp1_bias: missing, expected as 1 other layers have it"));
}

// No other layer has one, but gpt-oss has.
TEST_F(PlainExpertsModelTest, AModelOfBiasesWithoutAnyIsRefused) {
  MakeGptOss();
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    tensors_.erase(Of(layer, "mlp.experts.gate_up_proj_bias"));
  }
  const absl::Status status = Write()->ReadLayer(Of(0, "mlp.experts.gate_up_proj")).status();
  EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("gate_up_proj_bias: missing: all projections of experts have a bias as "
                        "model_type gpt_oss says"));
}

// What lies in a file that cannot be read is listed by its name.
TEST_F(PlainExpertsModelTest, StacksInAnUnreadableFileAreListed) {
  const std::string module = Of(0, "mlp.experts.gate_up_proj");
  WriteFile(directory_.path() / "config.json", Config("gpt_oss"));
  WriteFile(directory_.path() / "model.safetensors.index.json",
            absl::StrCat(R"({"weight_map": {")", module, R"(": "a.safetensors"}})"));
  WriteFile(directory_.path() / "a.safetensors", "no safetensors file");
  const auto checkpoint = Checkpoint::Open(directory_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(*ListCandidates(**checkpoint), ElementsAre(module));
  EXPECT_EQ(ReasonOf((*checkpoint)->ReadLayer(module).status()), "BAD_CHECKPOINT");
}

}  // namespace
}  // namespace gemmd::plain_stack

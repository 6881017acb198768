// Stacks of experts with gate and up in two tensors: joined, they are the layer of experts that are stored one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/layer_kinds.h"
#include "core/checkpoint/model_plan.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/plain_stack.h"

namespace gemmd::plain_stack {
namespace {

using ::testing::HasSubstr;

struct Names {
  const char* gate;
  const char* up;
  const char* down;
  const char* joined;
};
constexpr Names kSpelled{"gate_proj", "up_proj", "down_proj", "gate_up_proj"};
constexpr Names kNumbered{"w1", "w3", "w2", "w13"};

constexpr AxisSlice kUpperHalf{.rank = 1, .size = 2, .range = {}};

class PlainExpertsPartsTest : public PlainExpertsTest {
 protected:
  // The same experts twice: in stacks, and one by one.
  void MakeTwins(const Names& names, const std::string& suffix = "") {
    RawTensors stacked;
    RawTensors single;
    for (const auto& [name, n, k] : {std::tuple(names.gate, kInner, kHidden), {names.up, kInner, kHidden},
                                     {names.down, kHidden, kInner}}) {
      const RawTensor stack = Random({kExperts, n, k});
      const auto bytes = static_cast<size_t>(2 * n * k);
      for (int64_t expert = 0; expert < kExperts; ++expert) {
        single[absl::StrCat(kLayer, expert, ".", name, ".weight")] = {
            "BF16", {n, k}, stack.bytes.substr(static_cast<size_t>(expert) * bytes, bytes)};
      }
      stacked[kLayer + (name + suffix)] = stack;
    }
    stacked_ = Write(stacked_directory_.emplace(), stacked);
    single_ = Write(single_directory_.emplace(), single);
  }
  static std::shared_ptr<const Checkpoint> Write(const TemporaryDirectory& directory,
                                                 const RawTensors& tensors) {
    WriteFile(directory.path() / "config.json", Config("qwen3_moe"));
    WriteTensors(directory.path() / "model.safetensors", tensors);
    return *Checkpoint::Open(directory.path());
  }

  void ExpectTwins(const std::string& module, const SliceRequest& slice) const {
    const auto stacked = stacked_->ReadLayer(module, nullptr, slice);
    const auto single = single_->ReadLayer(module, nullptr, slice);
    ASSERT_TRUE(stacked.ok() && single.ok()) << module << stacked.status() << single.status();
    EXPECT_EQ(stacked->tensor.shape, single->tensor.shape);
    EXPECT_EQ(Digest(stacked->tensor), Digest(single->tensor));
  }

  std::optional<TemporaryDirectory> stacked_directory_;
  std::optional<TemporaryDirectory> single_directory_;
  std::shared_ptr<const Checkpoint> stacked_;
  std::shared_ptr<const Checkpoint> single_;
};

TEST_F(PlainExpertsPartsTest, JoinedTheyAreTheLayersOfSingleExperts) {
  for (const Names& names : {kSpelled, kNumbered}) {
    for (const char* suffix : {"", ".weight"}) {
      MakeTwins(names, suffix);
      for (const SliceRequest& slice :
           {SliceRequest{}, SliceRequest{.experts = kUpperHalf}, SliceRequest{.rows = kUpperHalf},
            SliceRequest{.experts = {.range = {1, 3}}, .columns = kUpperHalf},
            SliceRequest{.experts = kUpperHalf, .rows = {.range = {8, 20}}}}) {
        SCOPED_TRACE(absl::StrCat(names.joined, suffix, " ", slice.Text()));
        for (const char* module : {"gate_up_proj", "w13", "down_proj"}) {
          ExpectTwins(absl::StrCat(kLayer, module), slice);
        }
      }
    }
  }
}

TEST_F(PlainExpertsPartsTest, APlanThatJoinsPartsIsReadAndHasItsKinds) {
  for (const Names& names : {kSpelled, kNumbered}) {
    MakeTwins(names);
    const auto plan = PlanModel(
        *stacked_, {.fuse = true, .tensor = kUpperHalf, .experts = kUpperHalf});
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<std::string> modules;
    for (const PlannedModule& planned : plan->modules) {
      modules.push_back(planned.module);
      ExpectTwins(planned.module, planned.slice);
      EXPECT_GT(planned.bytes, 0u);
    }
    EXPECT_THAT(modules, ::testing::UnorderedElementsAre(absl::StrCat(kLayer, names.joined),
                                                         absl::StrCat(kLayer, names.down)));
    const auto kinds = LayerKindsOf(*stacked_, plan->modules, [] { return false; });
    ASSERT_TRUE(kinds.ok()) << kinds.status();
    std::vector<LayerShape> shapes;
    for (const LayerKind& kind : *kinds) shapes.push_back(kind.shape);
    EXPECT_THAT(shapes, ::testing::UnorderedElementsAre(LayerShape{kExperts / 2, kInner, kHidden},
                                                        LayerShape{kExperts / 2, kHidden, kInner / 2}));
  }
}

TEST_F(PlainExpertsPartsTest, ADamagedOrMissingPartIsNamed) {
  const RawTensor gate = Random({kExperts, kInner, kHidden});
  const absl::Status missing = Refused(Config("qwen3_moe"), {{"gate_proj", gate}}, "gate_up_proj");
  EXPECT_EQ(ReasonOf(missing), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(missing.message()), HasSubstr("its part model.layers.0.mlp.experts.up_proj is missing"));
  const RawTensors counts = {{"gate_proj", gate}, {"up_proj", Random({3, kInner, kHidden})}};
  const absl::Status fewer = Refused(Config("qwen3_moe"), counts, "gate_up_proj");
  EXPECT_EQ(ReasonOf(fewer), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(fewer.message()), HasSubstr("(num_local_experts); got 3, 0 to 2"));
  const RawTensors layouts = {{"gate_proj", gate}, {"up_proj", Random({kExperts, kHidden, kInner})}};
  EXPECT_THAT(std::string(Refused(Config("qwen3_moe"), layouts, "gate_up_proj").message()),
              HasSubstr("expected one layout for the experts of a layer"));
}

}  // namespace
}  // namespace gemmd::plain_stack

// What    Models of plain linears for tests of what belongs to a whole model.
#ifndef GEMMD_TESTS_CORE_CHECKPOINT_PLAIN_MODEL_H_
#define GEMMD_TESTS_CORE_CHECKPOINT_PLAIN_MODEL_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/model_plan.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {

using Names = std::vector<std::string>;

inline const Names kQkv = {"q_proj", "k_proj", "v_proj"};

// A model of plain linears, opened.
class PlainModel {
 public:
  PlainModel(const std::string& config, const Names& modules) {
    WriteFile(directory_.path() / "config.json", config);
    WriteTensors(directory_.path() / "model.safetensors", PlainLinears(modules, 0x3f));
    const auto checkpoint = Checkpoint::Open(directory_.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    if (checkpoint.ok()) checkpoint_ = *checkpoint;
  }
  absl::StatusOr<ModelPlan> Plan(ModelSelection selection) const {
    return PlanModel(*checkpoint_, selection);
  }
  absl::StatusOr<ModelPlan> Fused() const { return Plan({.fuse = true}); }
  absl::StatusOr<ModelPlan> Damaged() const {
    return PlanDamagedModel(*checkpoint_, {.fuse = true});
  }
  absl::Status Read(const std::string& module, const SliceRequest& slice = {}) const {
    return checkpoint_->ReadLayer(module, nullptr, slice).status();
  }

 private:
  TemporaryDirectory directory_;
  std::shared_ptr<const Checkpoint> checkpoint_;
};

// The names of each layer in its attention.
inline Names Attention(const std::vector<Names>& layers) {
  Names modules;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (const std::string& name : layers[layer]) {
      modules.push_back(absl::StrCat("model.layers.", layer, ".self_attn.", name));
    }
  }
  return modules;
}

}  // namespace gemmd

#endif  // GEMMD_TESTS_CORE_CHECKPOINT_PLAIN_MODEL_H_

// Experts in one tensor that is not quantized: what is damaged, and what no fact tells, is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/plain_stack.h"

namespace gemmd::plain_stack {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Damage {
  const char* config_type;
  RawTensors tensors;
  const char* name;
  const char* message;
};

TEST_F(PlainExpertsTest, DamagedStacksAreRefusedWithWhatIsExpectedAndFound) {
  const RawTensor gate_up = Random({kExperts, kHidden, 2 * kInner});
  const RawTensor rows = Random({kExperts, 2 * kInner, kHidden});
  const RawTensor bias = Random({kExperts, 2 * kInner});
  RawTensor not_finite = bias;
  not_finite.bytes.replace(2, 2, "\x80\x7f");
  RawTensor bytes = rows;
  bytes.dtype = "I16";
  const std::vector<Damage> damages = {
      {"llama4",
       {{"gate_up_proj", rows}},
       "gate_up_proj",
       "expected [4, 40, 24] (experts, K, N) as model_type llama4 and the sizes of config.json "
       "say, got BF16 [4, 24, 40]"},
      {"llama4",
       {{"gate_up_proj", Random({kExperts, kHidden, 25})}},
       "gate_up_proj",
       "got BF16 [4, 40, 25]"},
      {"qwen3_moe",
       {{"gate_up_proj", Random({kExperts, 24, 39})}},
       "gate_up_proj",
       "expected [4, 24, 40] (experts, N, K) or [4, 40, 24] (experts, K, N) by the sizes of "
       "config.json, got BF16 [4, 24, 39]"},
      {"qwen3_moe",
       {{"down_proj", Random({kExperts, kHidden, 24})}},
       "down_proj",
       "got BF16 [4, 40, 24]"},
      {"qwen3_moe",
       {{"down_proj", Random({kExperts, kHidden})}},
       "down_proj",
       "expected 3 extents, got BF16 [4, 40]"},
      {"qwen3_moe",
       {{"gate_up_proj", bytes}},
       "gate_up_proj",
       "expected F16 or BF16 or F32 [4, 24, 40], got I16"},
      {"qwen3_moe",
       {{"gate_up_proj", Random({3, 24, kHidden})}},
       "gate_up_proj",
       "(num_local_experts); got 3, 0 to 2"},
      {"qwen3_moe",
       {{"gate_up_proj", rows}, {"gate_up_proj_scale", bias}},
       "gate_up_proj",
       "expected no such tensor"},
      {"gpt_oss", {{"gate_up_proj_bias", bias}}, "gate_up_proj", "gate_up_proj: missing"},
      {"gpt_oss",
       {{"gate_up_proj", gate_up}, {"gate_up_proj_bias", Random({kExperts, kInner})}},
       "gate_up_proj",
       "expected F16 or BF16 or F32 [4, 24], got BF16 [4, 12]"},
      {"gpt_oss",
       {{"gate_up_proj", gate_up}, {"gate_up_proj_bias", not_finite}},
       "gate_up_proj",
       "element 1: expected a finite number"},
  };
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.message);
    const Stack stack(Config(damage.config_type), damage.tensors);
    const std::string module = absl::StrCat(kLayer, damage.name);
    EXPECT_THAT(stack.List(), ::testing::Contains(module));
    const absl::Status status = stack.Read(module).status();
    EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT") << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("model.layers.0.mlp.experts"), HasSubstr(damage.message)));
  }
}

TEST_F(PlainExpertsTest, WhatTheConfigDoesNotTellIsRefusedNotGuessed) {
  const RawTensor rows = Random({kExperts, 2 * kInner, kHidden});
  const RawTensors with_bias = {{"gate_up_proj", rows},
                                {"gate_up_proj_bias", Random({kExperts, 2 * kInner})}};
  const std::string no_type = absl::StrCat("{", kSizes, "}");
  for (const auto& [config, tensors, name, message] :
       {std::tuple(no_type, RawTensors{{"gate_up_proj", rows}}, "gate_up_proj",
                   "may follow each other or alternate, and no model_type in config.json"),
        std::tuple(Config("qwen3_moe"), with_bias, "gate_up_proj",
                   "model_type qwen3_moe with a bias"),
        std::tuple(std::string(R"({"model_type": "new"})"), RawTensors{{"down_proj", rows}},
                   "down_proj", "model_type new, no hidden_size"),
        std::tuple(Config("new"), RawTensors{{"other_proj", rows}}, "other_proj",
                   "named other_proj has a layout that is not known")}) {
    const absl::Status status = Refused(config, tensors, name);
    EXPECT_EQ(ReasonOf(status), "UNSUPPORTED_FORMAT") << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(absl::StrCat("module ", kLayer, name)), HasSubstr(message)));
  }
}

TEST_F(PlainExpertsTest, SizesOfTheConfigAreNumbers) {
  const RawTensors tensors = {{"down_proj", Random({kExperts, kHidden, kInner})}};
  const Stack stack(R"({"model_type": "qwen3_moe", "text_config": {"hidden_size": "40"}})",
                    tensors);
  const absl::Status status = stack.Read(absl::StrCat(kLayer, "down_proj")).status();
  EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(R"(config.json: "text_config.hidden_size": expected an integer from 0 to 2^30)"));
}

}  // namespace
}  // namespace gemmd::plain_stack

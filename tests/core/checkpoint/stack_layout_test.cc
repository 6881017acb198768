// The layout of experts in one tensor is one for all projections of a layer: what one tells counts for the others, and
// sizes that config.json does not give are those that fit each other.
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

class StackLayoutTest : public PlainExpertsTest {
 protected:
  static std::string Sized(const std::string& type, int64_t hidden, int64_t inner) {
    return absl::StrCat(R"({"model_type": ")", type, R"(", "hidden_size": )", hidden,
                        R"(, "moe_intermediate_size": )", inner, "}");
  }
  static std::string Unsized(const std::string& type) {
    return absl::StrCat(R"({"model_type": ")", type, R"("})");
  }

  // gate_up_proj [2I, H] and down_proj [H, I] of each expert, by rows or by columns.
  RawTensors Pair(int64_t hidden, int64_t inner, bool rows, const std::string& suffix = "") {
    const auto shape = [rows](int64_t n, int64_t k) {
      return rows ? std::vector<int64_t>{kExperts, n, k} : std::vector<int64_t>{kExperts, k, n};
    };
    return {{"gate_up_proj" + suffix, Random(shape(2 * inner, hidden))},
            {"down_proj" + suffix, Random(shape(hidden, inner))}};
  }

  static void ExpectProjection(const Stack& stack, const std::string& name, const RawTensor& stored,
                               int64_t n, int64_t k, bool rows) {
    SCOPED_TRACE(absl::StrCat(name, rows ? " by rows" : " by columns"));
    const auto layer = stack.Read(absl::StrCat(kLayer, name));
    ASSERT_TRUE(layer.ok()) << layer.status();
    ExpectWeights(layer->tensor, {kExperts, n, k}, stored, rows ? Rows(n, k) : Columns(n, k));
  }
  static void ExpectBoth(const std::string& config, const RawTensors& tensors, int64_t hidden,
                         int64_t inner, bool rows) {
    const Stack stack(config, tensors);
    for (const auto& [name, stored] : tensors) {
      if (name.starts_with("down")) {
        ExpectProjection(stack, "down_proj", stored, hidden, inner, rows);
      } else {
        ExpectProjection(stack, "gate_up_proj", stored, 2 * inner, hidden, rows);
      }
    }
  }
};

// H == I makes down_proj square, 2I == H gate_up_proj (olmoe 2048 and 1024, minimax_m2 3072 and 1536).
TEST_F(StackLayoutTest, ASquareProjectionLiesAsTheOtherDoes) {
  for (const auto& [type, hidden, inner] : {std::tuple("qwen3_moe", 24, 24), {"olmoe", 32, 16},
                                            {"minimax_m2", 24, 12}, {"of_the_future", 32, 16}}) {
    for (const bool rows : {true, false}) {
      for (const char* suffix : {"", ".weight"}) {
        SCOPED_TRACE(absl::StrCat(type, suffix));
        ExpectBoth(Sized(type, hidden, inner), Pair(hidden, inner, rows, suffix), hidden, inner, rows);
      }
    }
  }
}

TEST_F(StackLayoutTest, ProjectionsThatContradictEachOtherAreRefusedWithBothNames) {
  const RawTensors tensors = {{"gate_up_proj", Random({kExperts, 40, 24})},
                              {"down_proj", Random({kExperts, 40, 12})}};
  for (const char* name : {"gate_up_proj", "down_proj"}) {
    const absl::Status status = Refused(Config("qwen3_moe"), tensors, name);
    EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT") << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(absl::StrCat("module ", kLayer, name)),
                      HasSubstr(absl::StrCat(kLayer, "gate_up_proj BF16 [4, 40, 24] is (experts, K, N)")),
                      HasSubstr(absl::StrCat(kLayer, "down_proj BF16 [4, 40, 12] is (experts, N, K)"))));
  }
}

TEST_F(StackLayoutTest, AProjectionThatContradictsAModelOfOneLayoutIsRefusedWithItsSibling) {
  const RawTensors rows = Pair(24, 24, true);
  const absl::Status status = Refused(Sized("gpt_oss", 24, 24), rows, "down_proj");
  EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT") << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("as model_type gpt_oss, got BF16 [4, 24, 24] beside"),
                    HasSubstr("gate_up_proj BF16 [4, 48, 24], which can only be (experts, N, K)")));
}

// What a sibling tells does not go unheard where it cannot be read.
TEST_F(StackLayoutTest, ASquareProjectionWhoseSiblingCannotBeReadIsRefused) {
  TemporaryDirectory directory;
  const std::string module = absl::StrCat(kLayer, "down_proj");
  WriteFile(directory.path() / "config.json", Sized("qwen3_moe", 24, 24));
  WriteFile(directory.path() / "model.safetensors.index.json",
            absl::StrCat(R"({"weight_map": {")", module, R"(": "a.safetensors", ")", kLayer,
                         R"(gate_up_proj": "b.safetensors"}})"));
  WriteTensors(directory.path() / "a.safetensors", {{module, Random({kExperts, 24, 24})}});
  WriteFile(directory.path() / "b.safetensors", "no safetensors file");
  const absl::Status status = ReadLayer(directory.path(), module).status();
  EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT") << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("b.safetensors"), HasSubstr(module)));
}

// A projection that tells its own layout does not need another.
TEST_F(StackLayoutTest, ADamagedSiblingDoesNotHinder) {
  RawTensors tensors = Pair(40, 12, true);
  tensors.at("gate_up_proj") = Random({kExperts, 7, 9});
  ExpectProjection(Stack(Config("qwen3_moe"), tensors), "down_proj", tensors.at("down_proj"), 40, 12, true);
}

TEST_F(StackLayoutTest, WithoutSizesInTheConfigTheProjectionsConfirmEachOther) {
  for (const bool rows : {true, false}) {
    for (const char* type : {"qwen3_moe", "of_the_future"}) {
      ExpectBoth(Unsized(type), Pair(40, 12, rows), 40, 12, rows);
      ExpectBoth(Unsized(type), Pair(24, 24, rows), 24, 24, rows);
      ExpectBoth(Unsized(type), Pair(32, 16, rows), 32, 16, rows);
    }
  }
  ExpectBoth(Unsized("llama4"), Pair(40, 12, false), 40, 12, false);
}

TEST_F(StackLayoutTest, WhatNeitherTheConfigNorAProjectionConfirmsIsRefused) {
  for (const char* type : {"qwen3_moe", "gpt_oss", "llama4"}) {
    for (const char* name : {"gate_up_proj", "down_proj"}) {
      const RawTensors alone = {{name, Random({kExperts, 40, 24})}};
      const absl::Status status = Refused(Unsized(type), alone, name);
      EXPECT_EQ(ReasonOf(status), "UNSUPPORTED_FORMAT") << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr(absl::StrCat("tensor ", kLayer, name, ": BF16 [4, 40, 24]")),
                        HasSubstr(absl::StrCat("model_type ", type, ", no hidden_size, no moe_intermediate")),
                        HasSubstr("no other end of these experts beside it")));
    }
  }
}

TEST_F(StackLayoutTest, ProjectionsThatDoNotFitEachOtherAreRefusedWithTheirShapes) {
  const RawTensors tensors = {{"gate_up_proj", Random({kExperts, 24, 40})},
                              {"down_proj", Random({kExperts, 40, 14})}};
  for (const auto& [name, other] : {std::tuple("gate_up_proj", "down_proj BF16 [4, 40, 14]"),
                                    {"down_proj", "gate_up_proj BF16 [4, 24, 40]"}}) {
    for (const char* more : {"", R"(, "hidden_size": 40)"}) {
      const std::string config = absl::StrCat(R"({"model_type": "qwen3_moe")", more, "}");
      const absl::Status status = Refused(config, tensors, name);
      EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT") << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr(absl::StrCat("module ", kLayer, name)), HasSubstr(other)));
    }
  }
}

TEST_F(StackLayoutTest, ATransposedModelOfOneLayoutWithoutSizesIsRefused) {
  const RawTensors rows = Pair(40, 12, true);
  for (const char* name : {"gate_up_proj", "down_proj"}) {
    const absl::Status status = Refused(Unsized("gpt_oss"), rows, name);
    EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT") << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("BF16 [4, 24, 40]"), HasSubstr("BF16 [4, 40, 12]")));
  }
}

// gate_proj and up_proj fit down_proj in both layouts.
TEST_F(StackLayoutTest, GateAndUpApartConfirmNothing) {
  const RawTensors tensors = {{"gate_proj", Random({kExperts, 12, 40})},
                              {"up_proj", Random({kExperts, 12, 40})},
                              {"down_proj", Random({kExperts, 40, 12})}};
  for (const auto& [name, stored] : tensors) {
    const absl::Status status = Refused(Unsized("qwen3_moe"), tensors, name);
    EXPECT_EQ(ReasonOf(status), "UNSUPPORTED_FORMAT") << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("; both fit model.layers.0.mlp.experts."));
    EXPECT_TRUE(Stack(Config("qwen3_moe"), tensors).Read(absl::StrCat(kLayer, name)).ok());
  }
}

// Of original gpt-oss and granite, whose names tell the layout, the sizes are confirmed too.
TEST_F(StackLayoutTest, NamesOfOneLayoutNeedTheirSizesConfirmed) {
  const std::string prefix = "block.0.mlp.";
  const std::string module = prefix + "mlp1_weight";
  RawTensors tensors = {{"mlp1_weight", Random({kExperts, 24, 40})}};
  EXPECT_EQ(ReasonOf(Stack("{}", tensors, prefix).Read(module).status()), "UNSUPPORTED_FORMAT");
  tensors["mlp2_weight"] = Random({kExperts, 40, 12});
  const auto layer = Stack("{}", tensors, prefix).Read(module);
  ASSERT_TRUE(layer.ok()) << layer.status();
  ExpectWeights(layer->tensor, {kExperts, 24, 40}, tensors.at("mlp1_weight"), Rows(24, 40));
  const RawTensors transposed = {{"mlp1_weight", Random({kExperts, 40, 24})},
                                 {"mlp2_weight", Random({kExperts, 12, 40})}};
  EXPECT_EQ(ReasonOf(Stack("{}", transposed, prefix).Read(module).status()), "BAD_CHECKPOINT");
}

}  // namespace
}  // namespace gemmd::plain_stack

// Experts in one tensor that is not quantized, of random weights: every element is compared with the place in the file
// that it must come from.
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

TEST_F(PlainExpertsTest, GptOssMultipliesFromTheRightAndAlternatesGateAndUp) {
  const RawTensors tensors = GptOss();
  const Stack stack(Config("gpt_oss"), tensors);
  const auto in = stack.Read(absl::StrCat(kLayer, "gate_up_proj"));
  ASSERT_TRUE(in.ok()) << in.status();
  EXPECT_EQ(in->format, "unquantized");
  EXPECT_TRUE(in->tensor.gate_up_interleaved);
  EXPECT_EQ(in->tensor.spec.bias, kBFloat16);
  EXPECT_EQ(BytesOf(in->tensor.bias), tensors.at("gate_up_proj_bias").bytes);
  ExpectWeights(in->tensor, {kExperts, 2 * kInner, kHidden}, tensors.at("gate_up_proj"),
                Columns(2 * kInner, kHidden));
  const auto out = stack.Read(absl::StrCat(kLayer, "down_proj"));
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_FALSE(out->tensor.gate_up_interleaved);
  EXPECT_EQ(BytesOf(out->tensor.bias), tensors.at("down_proj_bias").bytes);
  ExpectWeights(out->tensor, {kExperts, kHidden, kInner}, tensors.at("down_proj"),
                Columns(kHidden, kInner));
}

// gpt-oss-20b and -120b have a hidden size that is their experts' size.
TEST_F(PlainExpertsTest, SquareMatricesLieAsTheModelSays) {
  const RawTensors tensors = {{"down_proj", Random({2, kHidden, kHidden})},
                              {"down_proj_bias", Random({2, kHidden})}};
  const auto config = [](const std::string& model) {
    return absl::StrCat("{", model, R"("hidden_size": 40, "intermediate_size": 40})");
  };
  const LayerShape shape{2, kHidden, kHidden};
  for (const char* model :
       {R"("model_type": "gpt_oss", )", R"("architectures": ["Llama4ForCausalLM"], )"}) {
    const auto layer = Stack(config(model), tensors).Read(absl::StrCat(kLayer, "down_proj"));
    ASSERT_TRUE(layer.ok()) << layer.status();
    ExpectWeights(layer->tensor, shape, tensors.at("down_proj"), Columns(kHidden, kHidden));
  }
  const auto rows = Stack(config(R"("model_type": "qwen3_moe", )"), tensors)
                        .Read(absl::StrCat(kLayer, "down_proj"));
  ASSERT_TRUE(rows.ok()) << rows.status();
  ExpectWeights(rows->tensor, shape, tensors.at("down_proj"), Rows(kHidden, kHidden));
  const absl::Status unknown =
      Refused(config(R"("model_type": "qwen3_vl_moe", )"), tensors, "down_proj");
  EXPECT_EQ(ReasonOf(unknown), "UNSUPPORTED_FORMAT");
  EXPECT_THAT(
      std::string(unknown.message()),
      AllOf(HasSubstr("model.safetensors: module model.layers.0.mlp.experts.down_proj: tensor"),
            HasSubstr(
                "BF16 [2, 40, 40] fits [2, 40, 40] (experts, N, K) or [2, 40, 40] (experts, K, N)"),
            HasSubstr("model_type qwen3_vl_moe")));
}

TEST_F(PlainExpertsTest, Llama4HasItsSizesInAPartOfTheConfig) {
  const std::string config =
      R"({"model_type": "llama4", "vision_config": {"hidden_size": 7, "intermediate_size": 9}, "text_config":
          {"model_type": "llama4_text", "num_local_experts": 4, "hidden_size": 40, "intermediate_size": 12,
           "intermediate_size_mlp": 80}})";
  const std::string prefix = "language_model.model.layers.1.feed_forward.experts.";
  const RawTensors tensors = {{"gate_up_proj", Random({kExperts, kHidden, 2 * kInner})}};
  const Stack stack(config, tensors, prefix);
  EXPECT_THAT(stack.List(), ::testing::ElementsAre(prefix + "gate_up_proj"));
  const auto layer = stack.Read(prefix + "gate_up_proj");
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_FALSE(layer->tensor.gate_up_interleaved);
  EXPECT_FALSE(layer->tensor.spec.bias.present());
  ExpectWeights(layer->tensor, {kExperts, 2 * kInner, kHidden}, tensors.at("gate_up_proj"),
                Columns(2 * kInner, kHidden));
}

// Files of one model are found in both layouts.
TEST_F(PlainExpertsTest, SizesTellTheLayoutWhereTheModelDoesNot) {
  for (const char* type : {"qwen3_vl_moe", "qwen3_moe", "of_the_future"}) {
    const std::string config = Config(type, R"(, "moe_intermediate_size": 16)");
    const RawTensors rows = {{"gate_up_proj", Random({kExperts, 32, kHidden})}};
    const auto by_rows = Stack(config, rows).Read(absl::StrCat(kLayer, "gate_up_proj"));
    ASSERT_TRUE(by_rows.ok()) << type << by_rows.status();
    ExpectWeights(by_rows->tensor, {kExperts, 32, kHidden}, rows.at("gate_up_proj"),
                  Rows(32, kHidden));
    const RawTensors columns = {{"down_proj", Random({kExperts, 16, kHidden})}};
    const auto by_columns = Stack(config, columns).Read(absl::StrCat(kLayer, "down_proj"));
    ASSERT_TRUE(by_columns.ok()) << type << by_columns.status();
    ExpectWeights(by_columns->tensor, {kExperts, kHidden, 16}, columns.at("down_proj"),
                  Columns(kHidden, 16));
  }
}

TEST_F(PlainExpertsTest, GraniteAndOriginalGptOssHaveRowsByTheirNames) {
  const RawTensors granite = {
      {"input_linear.weight", Random({kExperts, 2 * kInner, kHidden}, "F16")},
      {"output_linear.weight", Random({kExperts, kHidden, kInner}, "F32")}};
  const std::string prefix = "model.layers.0.block_sparse_moe.";
  const Stack stack(Config("granitemoe"), granite, prefix);
  EXPECT_THAT(stack.List(),
              ::testing::ElementsAre(prefix + "input_linear", prefix + "output_linear"));
  const auto in = stack.Read(prefix + "input_linear");
  ASSERT_TRUE(in.ok()) << in.status();
  EXPECT_FALSE(in->tensor.gate_up_interleaved);
  ExpectWeights(in->tensor, {kExperts, 2 * kInner, kHidden}, granite.at("input_linear.weight"),
                Rows(2 * kInner, kHidden));
  const auto out = stack.Read(prefix + "output_linear");
  ASSERT_TRUE(out.ok()) << out.status();
  ExpectWeights(out->tensor, {kExperts, kHidden, kInner}, granite.at("output_linear.weight"),
                Rows(kHidden, kInner));

  const RawTensors original = {{"mlp1_weight", Random({kExperts, 2 * kInner, kHidden})},
                               {"mlp1_bias", Random({kExperts, 2 * kInner})}};
  const auto mlp = Stack(absl::StrCat("{", kSizes, "}"), original, "block.0.mlp.")
                       .Read("block.0.mlp.mlp1_weight");
  ASSERT_TRUE(mlp.ok()) << mlp.status();
  EXPECT_TRUE(mlp->tensor.gate_up_interleaved);
  EXPECT_EQ(BytesOf(mlp->tensor.bias), original.at("mlp1_bias").bytes);
  ExpectWeights(mlp->tensor, {kExperts, 2 * kInner, kHidden}, original.at("mlp1_weight"),
                Rows(2 * kInner, kHidden));
}

// Tiles of the transposition and padding of rows: extents around 32 and odd ones.
TEST_F(PlainExpertsTest, EveryTypeAtSizesThatFillNoTile) {
  for (const char* dtype : {"F16", "BF16", "F32"}) {
    for (const auto& [hidden, inner] :
         {std::pair<int64_t, int64_t>{33, 35}, {64, 31}, {1, 17}, {97, 1}}) {
      const std::string config = absl::StrCat(R"({"model_type": "llama4_text", "hidden_size": )",
                                              hidden, R"(, "intermediate_size": )", inner, "}");
      const RawTensors tensors = {{"gate_up_proj", Random({3, hidden, 2 * inner}, dtype)},
                                  {"down_proj", Random({3, inner, hidden}, dtype)}};
      const Stack stack(config, tensors);
      const auto in = stack.Read(absl::StrCat(kLayer, "gate_up_proj"));
      ASSERT_TRUE(in.ok()) << in.status();
      ExpectWeights(in->tensor, {3, 2 * inner, hidden}, tensors.at("gate_up_proj"),
                    Columns(2 * inner, hidden));
      const auto out = stack.Read(absl::StrCat(kLayer, "down_proj"));
      ASSERT_TRUE(out.ok()) << out.status();
      ExpectWeights(out->tensor, {3, hidden, inner}, tensors.at("down_proj"),
                    Columns(hidden, inner));
    }
  }
}

TEST_F(PlainExpertsTest, RanksOfAlternatingRowsTakePairsAndTheirExperts) {
  const RawTensors tensors = GptOss();
  const Stack stack(Config("gpt_oss"), tensors);
  constexpr AxisSlice kThird{.rank = 2, .size = 3, .range = {}};
  constexpr AxisSlice kSecondHalf{.rank = 1, .size = 2, .range = {}};
  const auto in =
      stack.Read(absl::StrCat(kLayer, "gate_up_proj"), {.experts = kSecondHalf, .rows = kThird});
  ASSERT_TRUE(in.ok()) << in.status();
  EXPECT_TRUE(in->tensor.gate_up_interleaved);
  const Place all = Columns(2 * kInner, kHidden);
  ExpectWeights(in->tensor, {2, 8, kHidden}, tensors.at("gate_up_proj"),
                [&](int64_t expert, int64_t n, int64_t k) { return all(expert + 2, n + 16, k); });
  const std::string& bias = tensors.at("gate_up_proj_bias").bytes;
  EXPECT_EQ(BytesOf(in->tensor.bias),
            bias.substr(2 * (2 * 24 + 16), 16) + bias.substr(2 * (3 * 24 + 16), 16));
  const auto out =
      stack.Read(absl::StrCat(kLayer, "down_proj"), {.experts = kSecondHalf, .columns = kThird});
  ASSERT_TRUE(out.ok()) << out.status();
  const Place whole = Columns(kHidden, kInner);
  ExpectWeights(out->tensor, {2, kHidden, 4}, tensors.at("down_proj"),
                [&](int64_t expert, int64_t n, int64_t k) { return whole(expert + 2, n, k + 8); });
}

TEST_F(PlainExpertsTest, RanksOfHalvesTakeTheirRowsOfGateAndOfUp) {
  constexpr AxisSlice kThird{.rank = 1, .size = 3, .range = {}};
  const Place all = Rows(2 * kInner, kHidden);
  const Place part = [&](int64_t expert, int64_t n, int64_t k) {
    return all(expert, n < 4 ? 4 + n : 12 + n, k);
  };
  for (const auto& [type, prefix, name, suffix] :
       {std::tuple("qwen3_moe", kLayer, "gate_up_proj", ""),
        std::tuple("granitemoe", "model.layers.0.block_sparse_moe.", "input_linear", ".weight")}) {
    const RawTensor weight = Random({kExperts, 2 * kInner, kHidden});
    const auto layer = Stack(Config(type), {{absl::StrCat(name, suffix), weight}}, prefix)
                           .Read(absl::StrCat(prefix, name), {.rows = kThird});
    ASSERT_TRUE(layer.ok()) << layer.status();
    ExpectWeights(layer->tensor, {kExperts, 8, kHidden}, weight, part);
  }
}

// The layer is that of experts one by one, to the last bit.
TEST_F(PlainExpertsTest, IsTheLayerOfExpertsThatAreStoredOneByOne) {
  const RawTensor weight = Random({kExperts, 2 * kInner, kHidden});
  RawTensors single;
  const size_t half = static_cast<size_t>(kInner * kHidden * 2);
  for (int64_t i = 0; i < 2 * kExperts; ++i) {
    single[absl::StrCat(i / 2, i % 2 == 0 ? ".gate_proj" : ".up_proj", ".weight")] = {
        "BF16", {kInner, kHidden}, weight.bytes.substr(static_cast<size_t>(i) * half, half)};
  }
  const std::string module = absl::StrCat(kLayer, "gate_up_proj");
  const auto one_by_one = Stack(Config("qwen3_moe"), single).Read(module);
  const auto stacked = Stack(Config("qwen3_moe"), {{"gate_up_proj", weight}}).Read(module);
  ASSERT_TRUE(one_by_one.ok() && stacked.ok()) << one_by_one.status() << stacked.status();
  EXPECT_EQ(Digest(stacked->tensor), Digest(one_by_one->tensor));
}

TEST_F(PlainExpertsTest, IsQuantizedWholeAndKeepsBiasAndOrder) {
  RawTensors tensors = GptOss();
  for (char& byte : tensors.at("gate_up_proj").bytes)
    byte = static_cast<char>(byte & 0xbf);  // below 2
  const Stack stack(Config("gpt_oss"), tensors);
  const std::string module = absl::StrCat(kLayer, "gate_up_proj");
  QuantizeOnRead quantize;
  quantize.target.spec.weight = IntegerFormat(4);
  quantize.target.spec.scale = kFloat16;
  quantize.target.spec.scale_block_n = 1;
  quantize.target.spec.scale_block_k = 8;
  const auto plain = stack.Read(module);
  ASSERT_TRUE(plain.ok()) << plain.status();
  const auto wanted = QuantizeLayer(plain->tensor, quantize.target);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  const auto quantized = stack.Read(module, {}, &quantize);
  ASSERT_TRUE(quantized.ok()) << quantized.status();
  EXPECT_TRUE(quantized->quantized.has_value());
  EXPECT_TRUE(quantized->tensor.gate_up_interleaved);
  EXPECT_EQ(BytesOf(quantized->tensor.bias), tensors.at("gate_up_proj_bias").bytes);
  EXPECT_EQ(Digest(quantized->tensor), Digest(*wanted));
}

// In a checkpoint that is quantized, but not its experts.
TEST_F(PlainExpertsTest, IsReadWhereTheConfigLeavesItOutOfQuantization) {
  const std::string config = Config("gpt_oss", R"(, "quantization_config": {"quant_method": "mxfp4",
      "modules_to_not_convert": ["model.layers.0.mlp.experts"]})");
  const RawTensors tensors = GptOss();
  const auto layer = Stack(config, tensors).Read(absl::StrCat(kLayer, "down_proj"));
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->format, "unquantized");
  ExpectWeights(layer->tensor, {kExperts, kHidden, kInner}, tensors.at("down_proj"),
                Columns(kHidden, kInner));
}

}  // namespace
}  // namespace gemmd::plain_stack

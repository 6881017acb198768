// What golden cases do not show: activations that checkpoints declare, and variants of configs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/checkpoint/checkpoint.h"
#include "core/quant/activations.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

constexpr char kDown[] = "model.layers.0.mlp.down_proj";

absl::StatusOr<CheckpointLayer> ReadChanged(const EditableCheckpoint& checkpoint,
                                            const std::string& module) {
  TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  return ReadLayer(directory.path(), module);
}

std::vector<float> DequantizeExported(const StandardTensor& tensor) {
  const auto [experts, n, k] = tensor.shape;
  std::vector<float> weights(experts * n * k);
  for (int64_t row = 0; row < experts * n; ++row) {
    DequantizeRowFloat32(tensor, row / n, row % n, absl::MakeSpan(weights).subspan(row * k, k));
  }
  return weights;
}

float FirstFloat(const std::string& bytes) {
  float value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

// ---- activations ----

struct Declared {
  const char* name;
  NumberFormat activation;
  ActivationScaleKind kind;
  int64_t group;
};

class ActivationTest : public testing::TestWithParam<Declared> {};

TEST_P(ActivationTest, CarriesWhatTheCheckpointDeclares) {
  const Declared& declared = GetParam();
  const auto modules = ListModules(CaseDirectory(declared.name));
  ASSERT_TRUE(modules.ok() && !modules->empty()) << modules.status();
  const auto layer = ReadLayer(CaseDirectory(declared.name), modules->front());
  ASSERT_TRUE(layer.ok()) << layer.status();
  const QuantSpec& spec = layer->tensor.spec;
  EXPECT_EQ(spec.activation, declared.activation);
  EXPECT_EQ(spec.activation_scale, declared.kind);
  EXPECT_EQ(spec.activation_group, declared.group);
  const bool has_scale = declared.kind == ActivationScaleKind::kStaticTensor ||
                         layer->tensor.encoding.scale == ActivationScaleKind::kStaticTensor;
  EXPECT_EQ(layer->tensor.activation_scale.size(), has_scale ? 4 : 0);
}

constexpr auto kToken = ActivationScaleKind::kDynamicToken;
constexpr auto kGroup = ActivationScaleKind::kDynamicGroup;
constexpr auto kStatic = ActivationScaleKind::kStaticTensor;
constexpr auto kNothing = ActivationScaleKind::kNone;

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, ActivationTest,
    testing::Values(Declared{"ct_fp8_channel", kFloat8E4M3, kToken, 0},
                    Declared{"ct_fp8_block_nondiv", kFloat8E4M3, kGroup, 128},
                    Declared{"ct_fp8_tensor_static", kFloat8E4M3, kStatic, 0},
                    Declared{"ct_int8_channel_sym", kInt8, kToken, 0},
                    // A zero point of the activations is in the encoding, not in the spec.
                    Declared{"ct_int8_channel_static_asym_input", kNoFormat, kNothing, 0},
                    Declared{"ct_nvfp4_n50_k80", kFloat4E2M1, kGroup, 16},
                    Declared{"ct_pack_w4_g128_sym", kNoFormat, kNothing, 0},
                    Declared{"ct_mxfp8", kNoFormat, kNothing, 0},
                    Declared{"fp8_block128_deepseek", kFloat8E4M3, kGroup, 128},
                    Declared{"fp8_per_tensor_dynamic_odd", kFloat8E4M3, kToken, 0},
                    Declared{"fp8_per_tensor_static_qkv", kFloat8E4M3, kStatic, 0},
                    Declared{"modelopt_fp8_llama", kFloat8E4M3, kStatic, 0},
                    Declared{"modelopt_fp8_pc_pt_llama", kFloat8E4M3, kToken, 0},
                    Declared{"modelopt_fp8_pb_wo", kNoFormat, kNothing, 0},
                    Declared{"modelopt_nvfp4_odd", kFloat4E2M1, kGroup, 16},
                    Declared{"modelopt_mxfp8_llama", kFloat8E4M3, kGroup, 32},
                    Declared{"modelopt_mxfp4_llama", kFloat4E2M1, kGroup, 32},
                    Declared{"bitnet_bitlinear", kInt8, kToken, 0},
                    Declared{"autoround_fp8_e5m2_tensor", kFloat8E5M2, kStatic, 0},
                    Declared{"autoround_nvfp4", kNoFormat, kNothing, 0},
                    Declared{"gptq_v1_autogptq_b4_g128_sym", kNoFormat, kNothing, 0}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ActivationScaleTest, IsTheStoredOne) {
  const EditableCheckpoint checkpoint("modelopt_fp8_llama");
  const auto layer = ReadLayer(CaseDirectory("modelopt_fp8_llama"), kDown);
  ASSERT_TRUE(layer.ok()) << layer.status();
  const std::string& stored = checkpoint.tensors.at(std::string(kDown) + ".input_scale").bytes;
  EXPECT_EQ(std::memcmp(layer->tensor.activation_scale.data(), stored.data(), 4), 0);
}

// Golden file: static scale and signed zero point.
TEST(EncodingTest, KeepsTheStaticZeroPoint) {
  const std::string name = "ct_int8_channel_static_asym_input";
  const EditableCheckpoint checkpoint(name);
  const auto layer = ReadLayer(CaseDirectory(name), kDown);
  ASSERT_TRUE(layer.ok()) << layer.status();
  const std::string prefix = kDown;
  uint16_t scale;
  std::memcpy(&scale, checkpoint.tensors.at(prefix + ".input_scale").bytes.data(), sizeof(scale));
  const ActivationScaling scaling = ScalingOf(layer->tensor);
  EXPECT_EQ(scaling.static_scale, DecodeNumber(kBFloat16, scale));
  EXPECT_EQ(scaling.static_zero_point,
            static_cast<int8_t>(checkpoint.tensors.at(prefix + ".input_zero_point").bytes[0]));
  EXPECT_NE(scaling.static_zero_point, 0);
  EXPECT_TRUE(scaling.asymmetric);
  EXPECT_EQ(scaling.element, kInt8);
}

TEST(EncodingTest, KeepsDynamicZeroPoints) {
  EditableCheckpoint checkpoint("ct_int8_channel_static_asym_input");
  auto& inputs =
      checkpoint.config["quantization_config"]["config_groups"]["group_0"]["input_activations"];
  inputs["dynamic"] = true;
  inputs["strategy"] = "token";
  checkpoint.tensors.erase(std::string(kDown) + ".input_scale");
  checkpoint.tensors.erase(std::string(kDown) + ".input_zero_point");
  const auto layer = ReadChanged(checkpoint, kDown);
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->tensor.encoding, (ActivationEncoding{.format = kInt8,
                                                        .scale = kToken,
                                                        .group = 0,
                                                        .zero_points = true,
                                                        .group_scale = kNoFormat}));
  EXPECT_FALSE(layer->tensor.spec.activation.present());
  inputs["type"] = "float";
  EXPECT_EQ(ReasonOf(ReadChanged(checkpoint, kDown).status()), "UNSUPPORTED_FORMAT");
}

TEST(EncodingTest, KeepsTheGlobalScaleOfNvfp4Activations) {
  const EditableCheckpoint divisor("ct_nvfp4_n50_k80");
  const auto compressed = ReadLayer(CaseDirectory("ct_nvfp4_n50_k80"), kDown);
  ASSERT_TRUE(compressed.ok()) << compressed.status();
  EXPECT_EQ(compressed->tensor.encoding.group_scale, kFloat8E4M3);
  EXPECT_EQ(ScalingOf(compressed->tensor).global_scale,
            FirstFloat(divisor.tensors.at(std::string(kDown) + ".input_global_scale").bytes));
  const EditableCheckpoint factor("modelopt_nvfp4_llama");
  const auto modelopt = ReadLayer(CaseDirectory("modelopt_nvfp4_llama"), kDown);
  ASSERT_TRUE(modelopt.ok()) << modelopt.status();
  EXPECT_EQ(ScalingOf(modelopt->tensor).global_scale,
            1 / FirstFloat(factor.tensors.at(std::string(kDown) + ".input_scale").bytes));
}

TEST(EncodingTest, KeepsThatScalesOfMxActivationsAreExponents) {
  for (const char* name : {"modelopt_mxfp4_llama", "modelopt_mxfp8_llama"}) {
    const auto layer = ReadLayer(CaseDirectory(name), kDown);
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_EQ(layer->tensor.encoding.group_scale, kFloat8E8M0) << name;
  }
  EditableCheckpoint checkpoint("ct_mxfp8");
  auto& group = checkpoint.config["quantization_config"]["config_groups"]["group_0"];
  group["input_activations"] = group["weights"];
  group["input_activations"]["dynamic"] = true;
  for (const char* dtype : {"torch.uint8", ""}) {  // older files leave it out
    group["input_activations"]["scale_dtype"] = nullptr;
    if (dtype[0] != 0) group["input_activations"]["scale_dtype"] = dtype;
    const auto layer = ReadChanged(checkpoint, kDown);
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_EQ(layer->tensor.encoding.group_scale, kFloat8E8M0) << dtype;
  }
  group["input_activations"]["scale_dtype"] = "torch.bfloat16";
  EXPECT_FALSE(ReadChanged(checkpoint, kDown)->tensor.encoding.present());
}

TEST(ActivationScaleTest, OfFusedProjectionsIsTheLargest) {
  const std::string name = "fp8_per_tensor_static_qkv";
  const EditableCheckpoint checkpoint(name);
  float largest = 0;
  for (const auto& [tensor, raw] : checkpoint.tensors) {
    if (tensor.find(".input_scale") == std::string::npos) continue;
    largest = std::max(largest, FirstFloat(raw.bytes));
  }
  const auto layer = ReadLayer(CaseDirectory(name), "model.layers.0.self_attn.qkv_proj");
  ASSERT_TRUE(layer.ok()) << layer.status();
  float got;
  std::memcpy(&got, layer->tensor.activation_scale.data(), sizeof(got));
  EXPECT_EQ(got, largest);
}

// ---- ModelOpt ----

TEST(ModelOptTest, ReadsTheSeparateConfigAlone) {
  EditableCheckpoint checkpoint("modelopt_nvfp4_llama");
  checkpoint.config.erase("quantization_config");
  const auto layer = ReadChanged(checkpoint, kDown);
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->format, "modelopt");
  EXPECT_EQ(Digest(layer->tensor),
            Digest(ReadLayer(CaseDirectory("modelopt_nvfp4_llama"), kDown)->tensor));
  const auto head = ReadChanged(checkpoint, "lm_head");
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->format, "unquantized");
}

TEST(ModelOptTest, ReadsConfigJsonAlone) {
  EditableCheckpoint checkpoint("modelopt_nvfp4_llama");
  checkpoint.modelopt_config = nullptr;
  EXPECT_TRUE(ReadChanged(checkpoint, kDown).ok());
}

TEST(ModelOptTest, RefusesTwoConfigsThatContradictEachOther) {
  EditableCheckpoint checkpoint("modelopt_nvfp4_llama");
  checkpoint.modelopt_config["quantization"]["quant_algo"] = "FP8";
  const auto layer = ReadChanged(checkpoint, kDown);
  EXPECT_EQ(ReasonOf(layer.status()), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(layer.status().message()), HasSubstr("fp8"));
}

TEST(ModelOptTest, TakesTheAlgorithmOfEachLayerWithMixedPrecision) {
  EditableCheckpoint checkpoint("modelopt_nvfp4_llama");
  checkpoint.modelopt_config = nullptr;
  auto& config = checkpoint.config["quantization_config"];
  config["quant_algo"] = "MIXED_PRECISION";
  config["quantized_layers"] = {{kDown, {{"quant_algo", "NVFP4"}, {"group_size", 16}}}};
  EXPECT_TRUE(ReadChanged(checkpoint, kDown).ok());
  // Not listed, but its tensors are quantized.
  const auto other = ReadChanged(checkpoint, "model.layers.0.mlp.up_proj");
  EXPECT_EQ(ReasonOf(other.status()), "BAD_CHECKPOINT") << other.status();
}

// What the exporter wrote of compressed weights before it knew the word.
TEST(CompressedTensorsTest, FrozenWeightsAreCompressedOnes) {
  for (const char* name : {"ct_fp8_channel", "ct_int8_channel_sym", "ct_pack_w4_g128_sym"}) {
    EditableCheckpoint checkpoint(name);
    const std::string module = ListModules(CaseDirectory(name))->front();
    const auto compressed = ReadLayer(CaseDirectory(name), module);
    ASSERT_TRUE(compressed.ok()) << compressed.status();
    checkpoint.config["quantization_config"]["quantization_status"] = "frozen";
    const auto frozen = ReadChanged(checkpoint, module);
    ASSERT_TRUE(frozen.ok()) << name << ": " << frozen.status();
    EXPECT_EQ(frozen->tensor.codes, compressed->tensor.codes);
  }
}

// The word alone proves nothing: these weights were never rounded.
TEST(CompressedTensorsTest, FrozenWeightsOf16BitsAreRefused) {
  EditableCheckpoint checkpoint("ct_fp8_channel");
  const std::string module = ListModules(CaseDirectory("ct_fp8_channel"))->front();
  checkpoint.config["quantization_config"]["quantization_status"] = "frozen";
  RawTensor& weight = checkpoint.tensors.at(module + ".weight");
  weight.dtype = "BF16";
  weight.bytes += weight.bytes;
  EXPECT_EQ(ReasonOf(ReadChanged(checkpoint, module).status()), "BAD_CHECKPOINT");
}

// bf16 factors of the golden file, as float32.
TEST(ModelOptTest, KeepsThePreQuantScaleOfAwq) {
  const EditableCheckpoint checkpoint("modelopt_w4a16_awq");
  const auto layer = ReadLayer(CaseDirectory("modelopt_w4a16_awq"), kDown);
  ASSERT_TRUE(layer.ok()) << layer.status();
  const std::string& stored = checkpoint.tensors.at(std::string(kDown) + ".pre_quant_scale").bytes;
  ASSERT_TRUE(layer->tensor.has_input_scale);
  ASSERT_EQ(layer->tensor.input_scale.size(), 2 * stored.size());
  for (size_t i = 0; i < stored.size() / 2; ++i) {
    uint16_t code;
    std::memcpy(&code, stored.data() + 2 * i, sizeof(code));
    float factor;
    std::memcpy(&factor, layer->tensor.input_scale.data() + 4 * i, sizeof(factor));
    ASSERT_EQ(factor, DecodeNumber(kBFloat16, code)) << i;
  }
}

TEST(ModelOptTest, DropsAPreQuantScaleOfOnesAndRefusesABadOne) {
  EditableCheckpoint checkpoint("modelopt_w4a16_awq");
  RawTensor& factors = checkpoint.tensors.at(std::string(kDown) + ".pre_quant_scale");
  for (size_t i = 0; i < factors.bytes.size(); i += 2) {
    factors.bytes[i] = '\x80';
    factors.bytes[i + 1] = '\x3f';  // 1
  }
  const auto ones = ReadChanged(checkpoint, kDown);
  ASSERT_TRUE(ones.ok()) << ones.status();
  EXPECT_FALSE(ones->tensor.has_input_scale);
  for (const char* bad : {"\x00\x00", "\xc0\x7f"}) {  // 0, NaN
    factors.bytes.replace(0, 2, bad, 2);
    const auto layer = ReadChanged(checkpoint, kDown);
    EXPECT_EQ(ReasonOf(layer.status()), "BAD_CHECKPOINT") << layer.status();
  }
  factors.bytes.resize(factors.bytes.size() - 2);
  factors.shape[0] -= 1;
  EXPECT_EQ(ReasonOf(ReadChanged(checkpoint, kDown).status()), "BAD_CHECKPOINT");
}

TEST(ModelOptTest, ReadsNvfp4Awq) {
  const std::string name = "modelopt_nvfp4_odd";
  EditableCheckpoint checkpoint(name);
  checkpoint.modelopt_config = nullptr;
  checkpoint.config["quantization_config"]["quant_algo"] = "NVFP4_AWQ";
  const std::string module = ListModules(CaseDirectory(name))->front();
  const auto plain = ReadLayer(CaseDirectory(name), module);
  ASSERT_TRUE(plain.ok()) << plain.status();
  std::string factors;
  for (int64_t i = 0; i < plain->tensor.shape.k; ++i) factors += std::string("\x00\x40", 2);  // 2
  checkpoint.tensors[module + ".pre_quant_scale"] = {"BF16", {plain->tensor.shape.k}, factors};
  const auto layer = ReadChanged(checkpoint, module);
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_TRUE(layer->tensor.has_input_scale);
  EXPECT_EQ(DequantizeExported(layer->tensor), DequantizeExported(plain->tensor));
  checkpoint.config["quantization_config"]["quant_algo"] = "NVFP4";
  EXPECT_EQ(ReasonOf(ReadChanged(checkpoint, module).status()), "BAD_CHECKPOINT");
}

TEST(ModelOptTest, ReadsAwqWherePreQuantScalesWereFolded) {
  const std::string name = "modelopt_w4a16_awq";
  EditableCheckpoint checkpoint(name);
  checkpoint.tensors.erase(std::string(kDown) + ".pre_quant_scale");
  const auto layer = ReadChanged(checkpoint, kDown);
  ASSERT_TRUE(layer.ok()) << layer.status();
  const RawTensor expected =
      LoadTensors(CaseDirectory(name) / "expected.safetensors")[std::string(kDown) + ".weight_f32"];
  const std::vector<float> weights = DequantizeExported(layer->tensor);
  ASSERT_EQ(weights.size() * sizeof(float), expected.bytes.size());
  EXPECT_EQ(std::memcmp(weights.data(), expected.bytes.data(), expected.bytes.size()), 0);
  checkpoint.modelopt_config = nullptr;  // and with it group_size
  EXPECT_EQ(Digest(ReadChanged(checkpoint, kDown)->tensor), Digest(layer->tensor));
}

TEST(ModelOptTest, ReadsInt8PerChannel) {
  EditableCheckpoint checkpoint("modelopt_w4a16_awq");
  checkpoint.modelopt_config = nullptr;
  checkpoint.tensors.clear();
  checkpoint.config["quantization_config"]["quant_algo"] = "W8A8_SQ_PER_CHANNEL";
  const float scales[] = {0.5f, -2.0f};
  const float input = 0.25f;
  const auto raw = [](const void* data, size_t size) {
    return std::string(static_cast<const char*>(data), size);
  };
  const std::string prefix = std::string(kDown) + ".";
  checkpoint.tensors[prefix + "weight"] = {
      "I8", {2, 3}, std::string("\x01\xff\x80\x7f\x00\x02", 6)};
  checkpoint.tensors[prefix + "weight_scale"] = {"F32", {2}, raw(scales, sizeof(scales))};
  checkpoint.tensors[prefix + "input_scale"] = {"F32", {}, raw(&input, sizeof(input))};
  const auto layer = ReadChanged(checkpoint, kDown);
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_THAT(DequantizeExported(layer->tensor),
              testing::ElementsAre(0.5f, -0.5f, -64, -254, 0, -4));
  EXPECT_EQ(layer->tensor.spec.activation_scale, kStatic);
}

// ---- BitNet ----

TEST(BitnetTest, DropsPaddingRows) {
  EditableCheckpoint checkpoint("bitnet_autobitlinear");
  const std::string module = "model.layers.0.self_attn.q_proj";
  // Two packed rows of three columns hold eight rows; the last one is padding, so N is 7.
  checkpoint.tensors[module + ".weight"] = {
      "U8", {2, 3}, std::string("\x6a\x55\x95\x15\x26\x19", 6)};
  const auto layer = ReadChanged(checkpoint, module);
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->tensor.shape.n, 7);
  EXPECT_TRUE(Validate(layer->tensor).ok());
}

// With one or two packed rows padding is in several blocks.
TEST(BitnetTest, DropsPaddingRowsOfEveryBlock) {
  const std::string module = "model.layers.0.self_attn.q_proj";
  for (int64_t n = 1; n <= 13; ++n) {
    EditableCheckpoint checkpoint("bitnet_autobitlinear");
    const int64_t packed_rows = (n + 3) / 4;
    std::string bytes(static_cast<size_t>(3 * packed_rows), '\0');
    for (int64_t row = 0; row < n; ++row) {
      const int64_t shift = 2 * (row / packed_rows);
      bytes[static_cast<size_t>(3 * (row % packed_rows) + row % 3)] |= static_cast<char>((1 + row % 2) << shift);
    }
    checkpoint.tensors[module + ".weight"] = {"U8", {packed_rows, 3}, bytes};
    const auto layer = ReadChanged(checkpoint, module);
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_EQ(layer->tensor.shape.n, n);
  }
}

TEST(BitnetTest, RefusesWeightsThatAreQuantizedOnlyWhileRunning) {
  EditableCheckpoint checkpoint("bitnet_bitlinear");
  checkpoint.config["quantization_config"]["quantization_mode"] = "online";
  EXPECT_EQ(ReasonOf(ReadChanged(checkpoint, "model.layers.0.self_attn.q_proj").status()),
            "UNSUPPORTED_FORMAT");
}

// ---- AutoRound ----

TEST(AutoRoundTest, FollowsBlocksAndExtraConfig) {
  const EditableCheckpoint original("autoround_native_b4_g32_asym");
  const auto expect = [&](const nlohmann::ordered_json& changes, const char* reason) {
    EditableCheckpoint checkpoint = original;
    checkpoint.config["quantization_config"].update(changes);
    const auto layer = ReadChanged(checkpoint, kDown);
    EXPECT_EQ(layer.ok() ? "OK" : ReasonOf(layer.status()), reason) << changes << layer.status();
  };
  using Changes = nlohmann::ordered_json;
  expect({{"block_name_to_quantize", "model.layers, other"}}, "OK");
  expect({{"block_name_to_quantize", Changes::array({"model.layers"})}}, "OK");
  expect({{"block_name_to_quantize", "model.layer"}}, "BAD_CHECKPOINT");
  expect({{"extra_config", {{kDown, {{"bits", 16}}}}}}, "BAD_CHECKPOINT");
  expect({{"extra_config", {{".*down_proj.*", {{"bits", 16}}}}}}, "BAD_CHECKPOINT");
  expect({{"extra_config", {{".*up_proj.*", {{"bits", 16}}}}}}, "OK");
  expect({{"bits", 8}, {"extra_config", {{"mlp\\.down", {{"bits", 4}}}}}}, "OK");
  expect({{"packing_format", "auto_round:exllamav2"}}, "UNSUPPORTED_FORMAT");
  expect({{"packing_format", nullptr}}, "UNSUPPORTED_FORMAT");
  expect({{"act_bits", 8}}, "UNSUPPORTED_FORMAT");
  expect({{"data_type", "mx_int4"}}, "UNSUPPORTED_FORMAT");
}

TEST(AutoRoundTest, SixteenBitActivationsNeedNoScale) {
  EditableCheckpoint checkpoint("autoround_fp8_channel");
  const auto golden = ReadLayer(CaseDirectory("autoround_fp8_channel"), kDown);
  ASSERT_TRUE(golden.ok()) << golden.status();
  checkpoint.tensors.erase(std::string(kDown) + ".input_scale");
  EXPECT_EQ(ReasonOf(ReadChanged(checkpoint, kDown).status()), "BAD_CHECKPOINT");
  checkpoint.config["quantization_config"]["act_bits"] = 16;
  for (const bool says_static : {true, false}) {
    if (!says_static) checkpoint.config["quantization_config"].erase("activation_scheme");
    const auto layer = ReadChanged(checkpoint, kDown);
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_FALSE(layer->tensor.spec.activation.present());
    EXPECT_EQ(layer->tensor.spec.activation_scale, kNothing);
    EXPECT_EQ(layer->tensor.codes, golden->tensor.codes);
    EXPECT_EQ(layer->tensor.scales, golden->tensor.scales);
  }
}

// ---- compressed-tensors before 0.14 ----

TEST(OldMxfp4Test, RefusesAnExponentThatWouldNotFit) {
  EditableCheckpoint checkpoint("ct_mxfp4_pre014_bias125");
  std::string& scales = checkpoint.tensors[std::string(kDown) + ".weight_scale"].bytes;
  scales[5] = static_cast<char>(252);
  EXPECT_TRUE(ReadChanged(checkpoint, kDown).ok());
  scales[5] = static_cast<char>(253);
  const auto layer = ReadChanged(checkpoint, kDown);
  EXPECT_EQ(ReasonOf(layer.status()), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(layer.status().message()), HasSubstr("252"));
}

// ---- AWQ gemv ----

TEST(AwqGemvTest, RefusesGroupsThatItsPaddingDoesNotKnow) {
  EditableCheckpoint checkpoint("awq_gemv_g128_reject_or_read");
  checkpoint.config["quantization_config"]["group_size"] = 16;
  EXPECT_EQ(ReasonOf(ReadChanged(checkpoint, "model.layers.0.self_attn.o_proj").status()),
            "UNSUPPORTED_FORMAT");
}

}  // namespace
}  // namespace gemmd

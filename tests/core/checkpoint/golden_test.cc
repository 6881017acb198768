// Every golden case, bit for bit against what the exporters' own code reads, or what was encoded by their
// rules (tests/data/README.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "core/checkpoint/checkpoint.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

struct GoldenCase {
  std::string name;
  std::string outcome;
  bool ignore_zero_sign = false;
};

std::vector<GoldenCase> GoldenCases() {
  std::vector<GoldenCase> cases;
  const auto facts = LoadJson(CaseDirectory("cases.json"));
  for (const auto& [name, fact] : facts.items()) {
    cases.push_back({name, fact["outcome"], fact["zero_sign"] == "ignore"});
  }
  return cases;
}

// Modules of the expectation with their rows, in float32.
std::map<std::string, RawTensor> Expected(const std::string& name, const std::string& what) {
  std::map<std::string, RawTensor> expected;
  const std::string suffix = "." + what;
  for (auto& [key, tensor] : LoadTensors(CaseDirectory(name) / "expected.safetensors")) {
    if (key.size() > suffix.size() &&
        key.compare(key.size() - suffix.size(), suffix.size(), suffix) == 0) {
      expected[key.substr(0, key.size() - suffix.size())] = tensor;
    }
  }
  return expected;
}

// Where the kept rows of an expectation begin: 0, or N of ".weight_f32_from_N" (only some are kept).
std::map<std::string, std::pair<RawTensor, int64_t>> ExpectedWeights(const std::string& name) {
  std::map<std::string, std::pair<RawTensor, int64_t>> expected;
  constexpr char kKey[] = ".weight_f32";
  for (auto& [key, tensor] : LoadTensors(CaseDirectory(name) / "expected.safetensors")) {
    const size_t place = key.rfind(kKey);
    if (place == std::string::npos) continue;
    const std::string rest = key.substr(place + std::strlen(kKey));
    const int64_t first = rest.empty() ? 0 : std::stoll(rest.substr(std::strlen("_from_")));
    expected[key.substr(0, place)] = {tensor, first};
  }
  return expected;
}

bool Same(float a, float b, bool ignore_zero_sign) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && (a != 0 || ignore_zero_sign || std::signbit(a) == std::signbit(b));
}

std::vector<float> DequantizeGolden(const StandardTensor& tensor) {
  const auto [experts, n, k] = tensor.shape;
  std::vector<float> weights(experts * n * k);
  for (int64_t row = 0; row < experts * n; ++row) {
    DequantizeRowFloat32(tensor, row / n, row % n, absl::MakeSpan(weights).subspan(row * k, k));
  }
  return weights;
}

// Number of elements that differ; the first one is shown.
int64_t Differences(const std::vector<float>& got, const RawTensor& expected,
                    bool ignore_zero_sign) {
  std::vector<float> wanted(expected.bytes.size() / sizeof(float));
  std::memcpy(wanted.data(), expected.bytes.data(), expected.bytes.size());
  EXPECT_EQ(got.size(), wanted.size());
  if (got.size() != wanted.size()) return -1;
  int64_t differences = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (Same(got[i], wanted[i], ignore_zero_sign)) continue;
    if (differences++ == 0)
      std::cout << "element " << i << ": " << got[i] << ", expected " << wanted[i] << "\n";
  }
  return differences;
}

class GoldenTest : public testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenTest, ReadsWhatTheExporterReads) {
  const GoldenCase& param = GetParam();
  for (const auto& [module, expectation] : ExpectedWeights(param.name)) {
    SCOPED_TRACE(module);
    const auto& [expected, first_row] = expectation;
    const auto layer = ReadLayer(CaseDirectory(param.name), module);
    if (param.outcome == "UNSUPPORTED_FORMAT") {
      EXPECT_EQ(layer.status().code(), absl::StatusCode::kUnimplemented) << layer.status();
      EXPECT_EQ(ReasonOf(layer.status()), param.outcome);
      continue;
    }
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_EQ(layer->tensor.shape.k, expected.shape.back());
    if (first_row == 0) {
      EXPECT_EQ(layer->tensor.shape.n, expected.shape[expected.shape.size() - 2]);
    }
    EXPECT_EQ(layer->tensor.shape.experts, expected.shape.size() == 3 ? expected.shape[0] : 1);
    std::vector<float> weights = DequantizeGolden(layer->tensor);
    if (first_row > 0) {
      weights.erase(weights.begin(), weights.begin() + first_row * layer->tensor.shape.k);
      weights.resize(expected.bytes.size() / sizeof(float));
    }
    const int64_t differences = Differences(weights, expected, param.ignore_zero_sign);
    if (param.outcome == "exact") {
      EXPECT_EQ(differences, 0);
    } else {
      // The writer destroyed fields next to a zero point of 0; its own reader masks what is left.
      ASSERT_EQ(param.outcome, "word rule");
      EXPECT_GT(differences, 0);
    }
  }
}

TEST_P(GoldenTest, ListsExactlyTheQuantizedModules) {
  const auto modules = ListModules(CaseDirectory(GetParam().name));
  ASSERT_TRUE(modules.ok()) << modules.status();
  std::set<std::string> expected;
  const RawTensors stored = LoadTensors(CaseDirectory(GetParam().name) / "model.safetensors");
  for (const auto& [module, tensor] : ExpectedWeights(GetParam().name)) {
    const auto weight = stored.find(module + ".weight");
    if (weight == stored.end() || weight->second.dtype != "BF16") expected.insert(module);
  }
  EXPECT_THAT(*modules, testing::ElementsAreArray(expected));
}

void PrintTo(const GoldenCase& each, std::ostream* stream) { *stream << each.name; }

INSTANTIATE_TEST_SUITE_P(Checkpoints, GoldenTest, testing::ValuesIn(GoldenCases()),
                         [](const auto& info) { return info.param.name; });

TEST(GoldenDataTest, CoversEveryFormat) {
  std::set<std::string> formats;
  for (const GoldenCase& each : GoldenCases()) {
    formats.insert(
        LoadJson(CaseDirectory(each.name) / "config.json")["quantization_config"]["quant_method"]);
  }
  EXPECT_THAT(formats, testing::ElementsAre("auto-round", "awq", "bitnet", "compressed-tensors",
                                            "fp8", "gptq", "modelopt", "mxfp4", "quark"));
  EXPECT_GT(GoldenCases().size(), 100u);
}

// A layer's identity on every host and in every version: a change of one of these is a change of the
// representation, and takes a new name in the stream (core/quant/README.md).
TEST(GoldenDigestTest, IsWhatItAlwaysWas) {
  const std::map<std::string, std::string> digests = {
      {"autoround_native_b4_g32_asym",
       "61a46da2fbec85e517b2383c5ac042f4f97eb5ae902f0f5f8834910435759bcb"},
      {"awq_gemm_g128", "a2884baf943dc488921f6c0d6eda93730ee3f41fa9b9869a6007e3bc413769a1"},
      {"bitnet_bitlinear", "fe2dcdfe0c0dfb987c0c0bac8e9c6bf52ad35c309c53c48ea1ff6f0015b9406f"},
      {"ct_nvfp4_n50_k80", "12b5f24332a11cac74829ef38719d3c9627e7163731b7089cd9097801e60f6a0"},
      {"ct_pack_w3_g64_dense", "f3780cec5342c4e353c76415d09180eba847957a7790d5f45bff22c440841f90"},
      {"fp8_block128_ue8m0", "84b830b63f4a47b5d831f07c9175d4e547ba2375eb95d9576d7cea8351b62d79"},
      {"gptoss_mxfp4_hf", "9c0072ea2853a008b50c23564f975ab6311b85a4dd9dfb77b44a337ebd36e8a5"},
      {"gptq_v1_autogptq_b4_descact_g64",
       "83efbeb7eb4eed74a8cea1870f6e6d8f5321aa9ad1a6f7bceaf96b606c0174cb"},
      {"modelopt_fp8_llama", "f9508bc318ca68d37ef30274e0dbb7a4cedcd7e16a107d067a437d78bcce7818"},
      {"modelopt_nvfp4_odd", "3e3681faba0061c1a156a354038ab7b532f1a2d69c2cd9912a1d57f33248b055"},
  };
  for (const auto& [name, digest] : digests) {
    const auto modules = ListModules(CaseDirectory(name));
    ASSERT_TRUE(modules.ok()) << modules.status();
    const auto layer = ReadLayer(CaseDirectory(name), modules->front());
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_EQ(Digest(layer->tensor), digest) << name;
  }
}

TEST(GptOssTest, MarksInterleavedGateAndUpRowsAndReadsTheBias) {
  const std::string experts = "model.layers.0.mlp.experts.";
  const auto gate_up = ReadLayer(CaseDirectory("gptoss_mxfp4_hf"), experts + "gate_up_proj");
  const auto down = ReadLayer(CaseDirectory("gptoss_mxfp4_hf"), experts + "down_proj");
  ASSERT_TRUE(gate_up.ok() && down.ok()) << gate_up.status() << down.status();
  EXPECT_TRUE(gate_up->tensor.gate_up_interleaved);
  EXPECT_FALSE(down->tensor.gate_up_interleaved);
  const auto stored = LoadTensors(CaseDirectory("gptoss_mxfp4_hf") / "model.safetensors");
  for (const auto* layer : {&*gate_up, &*down}) {
    const std::string name = layer == &*gate_up ? "gate_up_proj_bias" : "down_proj_bias";
    EXPECT_EQ(layer->tensor.spec.bias, kBFloat16);
    ASSERT_EQ(layer->tensor.bias.size(), stored.at(experts + name).bytes.size());
    EXPECT_EQ(std::memcmp(layer->tensor.bias.data(), stored.at(experts + name).bytes.data(),
                          layer->tensor.bias.size()),
              0);
  }
  const auto original =
      ReadLayer(CaseDirectory("gptoss_mxfp4_original_names"), "block.0.mlp.mlp1_weight");
  ASSERT_TRUE(original.ok()) << original.status();
  EXPECT_TRUE(original->tensor.gate_up_interleaved);
  EXPECT_EQ(original->tensor.spec.bias, kBFloat16);
}

TEST(UnquantizedTest, ComesAsItsOwn16BitWeights) {
  const auto layer = ReadLayer(CaseDirectory("ct_mixed_precision"), "lm_head");
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->format, "unquantized");
  EXPECT_EQ(layer->tensor.spec.weight, kBFloat16);
  EXPECT_FALSE(layer->tensor.spec.scale.present());
}

TEST(GptqTest, ReadsTheBiasBesideAPermutedGroupIndex) {
  const std::string name = "gptq_v2_gptqmodel_b4_descact_g32";
  const auto layer = ReadLayer(CaseDirectory(name), "model.layers.0.mlp.down_proj");
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_TRUE(layer->tensor.spec.has_group_index);
  const auto bias = Expected(name, "bias");
  ASSERT_EQ(bias.size(), 1u);
  const RawTensor& expected = bias.begin()->second;
  for (int64_t n = 0; n < layer->tensor.shape.n; ++n) {
    double value;
    if (expected.dtype == "F32") {
      float wide;
      std::memcpy(&wide, expected.bytes.data() + n * 4, 4);
      value = wide;
    } else {
      uint16_t code;
      std::memcpy(&code, expected.bytes.data() + n * 2, 2);
      value = DecodeNumber(expected.dtype == "BF16" ? kBFloat16 : kFloat16, code);
    }
    EXPECT_EQ(Bias(layer->tensor, 0, n), value) << n;
  }
}

}  // namespace
}  // namespace gemmd

// Activation quantization, value for value against exporters' own code (tests/data/README.md).
#include "core/quant/activations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/checkpoint/safetensors.h"
#include "core/quant/quantize.h"
#include "core/quant/reference.h"

namespace gemmd {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Eq;

constexpr int64_t kColumns = 256;

// Tensors of float32 (or int8) of one file of tests/data/activations.
class Golden {
 public:
  explicit Golden(const std::string& name) {
    const std::string path = std::string(GEMMD_TEST_DATA "/activations/") + name + ".safetensors";
    auto file = SafetensorsFile::Open(std::filesystem::canonical(path), name);
    EXPECT_TRUE(file.ok()) << file.status();
    if (file.ok()) file_ = *std::move(file);
  }
  std::vector<float> Get(const std::string& name) const {
    const TensorInfo* info = file_->Find(name);
    EXPECT_NE(info, nullptr) << name;
    const Buffer bytes = file_->Read(*info).value();
    std::vector<float> values;
    if (info->dtype == "I8") {
      for (const std::byte byte : bytes) values.push_back(static_cast<int8_t>(byte));
      return values;
    }
    values.resize(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  std::unique_ptr<SafetensorsFile> file_;
};

struct Scheme {
  const char* name;
  ActivationScaling scaling;
};

// compressed-tensors: scales of zero groups are the smallest its types allow.
std::vector<Scheme> Schemes() {
  constexpr float kEpsilon = 0x1p-23f;
  constexpr auto kFull = ScaleRule::kFullRange;
  constexpr auto kPower = ScaleRule::kNearestPower;
  return {
      {"fp8_token", {.element = kFloat8E4M3, .zero_scale = kEpsilon}},
      {"fp8_group128", {.element = kFloat8E4M3, .group = 128, .zero_scale = kEpsilon}},
      {"int8_token_sym", {.element = kInt8, .rule = kFull, .zero_scale = kEpsilon}},
      {"int8_token_asym", {.element = kInt8, .asymmetric = true, .zero_scale = kEpsilon}},
      {"nvfp4_local",
       {.element = kFloat4E2M1, .scale = kFloat8E4M3, .group = 16, .zero_scale = 0.125f}},
      {"mxfp4",
       {.element = kFloat4E2M1,
        .scale = kFloat8E8M0,
        .group = 32,
        .rule = kPower,
        .zero_scale = 0x1p-127f}},
      {"mxfp8",
       {.element = kFloat8E4M3,
        .scale = kFloat8E8M0,
        .group = 32,
        .rule = kPower,
        .zero_scale = 0x1p-127f}},
  };
}

TEST(ActivationsTest, EqualCompressedTensorsInEveryScheme) {
  const Golden golden("act_quant_compressed_tensors");
  const std::vector<float> x = golden.Get("x");
  for (Scheme scheme : Schemes()) {
    SCOPED_TRACE(scheme.name);
    const std::string prefix = scheme.name;
    if (prefix == "nvfp4_local") {
      scheme.scaling.global_scale = golden.Get(prefix + ".global_scale")[0];
    }
    std::vector<float> elements, scales, zero_points, dequantized;
    const auto append = [](const std::vector<float>& from, std::vector<float>& to) {
      to.insert(to.end(), from.begin(), from.end());
    };
    for (size_t first = 0; first < x.size(); first += kColumns) {
      const QuantizedRow row =
          QuantizeActivations(absl::MakeConstSpan(x).subspan(first, kColumns), scheme.scaling);
      append(row.elements, elements);
      append(row.scales, scales);
      append(row.zero_points, zero_points);
      append(DequantizeActivations(row, scheme.scaling), dequantized);
    }
    EXPECT_EQ(scales, golden.Get(prefix + ".f32.scale"));
    EXPECT_EQ(elements, golden.Get(prefix + ".f32.q_value"));
    EXPECT_EQ(dequantized, golden.Get(prefix + ".f32.dequant"));
    if (scheme.scaling.asymmetric) {
      EXPECT_EQ(zero_points, golden.Get(prefix + ".f32.zero_point"));
    }
  }
}

TEST(QuantizeTest, EqualsMicroxcalingWithTheRuleOfTheStandard) {
  const Golden golden("mx_fakequant_microxcaling");
  const std::vector<float> x = golden.Get("x");
  const auto rows = static_cast<int64_t>(x.size()) / kColumns;
  const std::pair<const char*, NumberFormat> formats[] = {
      {"fp4_e2m1", kFloat4E2M1}, {"fp6_e2m3", FloatFormat(2, 3)}, {"fp6_e3m2", FloatFormat(3, 2)},
      {"fp8_e4m3", kFloat8E4M3}, {"fp8_e5m2", kFloat8E5M2},       {"int8", IntegerFormat(8)}};
  for (const auto& [name, format] : formats) {
    SCOPED_TRACE(name);
    const QuantSpec spec{.weight = format, .scale = kFloat8E8M0, .scale_block_k = 32};
    const auto tensor = Quantize(x, {1, rows, kColumns}, spec, ScaleRule::kOcp);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    std::vector<float> got(x.size());
    for (int64_t row = 0; row < rows; ++row) {
      DequantizeRowFloat32(*tensor, 0, row, absl::MakeSpan(got).subspan(row * kColumns, kColumns));
    }
    EXPECT_EQ(got, golden.Get(std::string(name) + ".even"));
  }
}

TEST(ActivationsTest, GiveZerosForARowOfZeros) {
  const std::vector<float> zeros(8, 0.0f);
  for (const NumberFormat& element : {kFloat8E4M3, kFloat8E5M2, kFloat4E2M1, kInt8}) {
    const ActivationScaling scaling{.element = element};
    const QuantizedRow row = QuantizeActivations(zeros, scaling);
    EXPECT_THAT(row.scales, ElementsAre(1.0f));
    EXPECT_THAT(DequantizeActivations(row, scaling), Each(Eq(0.0f)));
  }
}

TEST(ActivationsTest, KeepNanAndInfinityInTheirGroup) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (const NumberFormat& element : {kFloat8E4M3, kFloat4E2M1, kInt8}) {
      const ActivationScaling scaling{.element = element, .group = 2};
      const std::vector<float> values =
          DequantizeActivations(QuantizeActivations({1.0f, bad, 2.0f, -2.0f}, scaling), scaling);
      EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1])) << values[0] << values[1];
      EXPECT_NEAR(values[2], 2, 1e-6);
      EXPECT_NEAR(values[3], -2, 1e-6);
    }
  }
}

TEST(ActivationsTest, TakeTheScalesOfTheSpec) {
  const QuantSpec fixed{.activation = kFloat8E4M3,
                        .activation_scale = ActivationScaleKind::kStaticTensor};
  const ActivationScaling scaling = ScalingOf(fixed, 0.5f);
  // 1000 / 0.5 is beyond 448 and saturates.
  const QuantizedRow row = QuantizeActivations({1.0f, 1000.0f}, scaling);
  EXPECT_THAT(row.elements, ElementsAre(2.0f, 448.0f));
  EXPECT_THAT(row.scales, ElementsAre(0.5f));
  const QuantSpec grouped{.activation = kInt8,
                          .activation_scale = ActivationScaleKind::kDynamicGroup,
                          .activation_group = 2};
  const QuantizedRow groups =
      QuantizeActivations({127.0f, -1.0f, 254.0f, 2.0f, 0.0f}, ScalingOf(grouped, 0));
  EXPECT_THAT(groups.scales, ElementsAre(1.0f, 2.0f, 1.0f));
  EXPECT_THAT(groups.elements, ElementsAre(127.0f, -1.0f, 127.0f, 1.0f, 0.0f));
}

}  // namespace
}  // namespace gemmd

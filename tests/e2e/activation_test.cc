// Layers whose x is scaled or quantized in ways of their checkpoint, through a real daemon on the CPU.
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/session.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/environment.h"

namespace gemmd::e2e {
namespace {

using testing::HasSubstr;

constexpr char kDown[] = "model.layers.0.mlp.down_proj";

// One tensor of a safetensors file.
std::string TensorBytes(const std::string& file, const std::string& tensor) {
  std::ifstream stream(file, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(stream)), {});
  uint64_t length = 0;
  std::memcpy(&length, content.data(), sizeof(length));
  const auto header = nlohmann::json::parse(content.substr(8, length));
  const uint64_t begin = header.at(tensor)["data_offsets"][0];
  const uint64_t end = header.at(tensor)["data_offsets"][1];
  return content.substr(8 + length + begin, end - begin);
}

double BFloat16At(const std::string& bytes, size_t index) {
  uint16_t code;
  std::memcpy(&code, bytes.data() + 2 * index, sizeof(code));
  const uint32_t bits = uint32_t{code} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

class ActivationTest : public DaemonTest {
 protected:
  void SetUp() override {
    daemon_device_ = "cpu";
    StartDaemon();
    auto session = client::Session::Open({.address = socket(), .name = "activations"});
    ASSERT_TRUE(session.ok()) << session.status();
    session_.emplace(*std::move(session));
  }

  client::Layer Layer(const std::string& name) {
    return session_->RegisterCheckpoint(Checkpoints() + "/" + name, kDown).value();
  }

  // y [1, N] in float32 of one row of x.
  std::vector<float> Run(const client::Layer& layer, const std::string& x, v1::DataType dtype) {
    const int64_t n = layer.info().n();
    client::Region memory = *session_->AllocateHost(4096 + 4 * n);
    std::memcpy(memory.data(), x.data(), x.size());
    client::Gemm gemm{.layer = &layer};
    gemm.x = {.region = &memory, .dtype = dtype, .rows = 1, .columns = layer.info().k()};
    gemm.y = {.region = &memory,
              .byte_offset = 4096,
              .dtype = v1::DATA_TYPE_FLOAT32,
              .rows = 1,
              .columns = n};
    const auto response = session_->Run(gemm);
    EXPECT_TRUE(response.ok()) << response.status();
    std::vector<float> y(static_cast<size_t>(n));
    std::memcpy(y.data(), memory.data() + 4096, 4 * y.size());
    return y;
  }

  // The weights that the exporter's own code reads, times `x`.
  static void ExpectProduct(const std::vector<float>& y, const std::string& name,
                            const std::vector<double>& x) {
    const std::string weights =
        TensorBytes(absl::StrCat(Checkpoints(), "/", name, "/expected.safetensors"),
                    std::string(kDown) + ".weight_f32");
    for (size_t n = 0; n < y.size(); ++n) {
      double sum = 0;
      double magnitude = 0;
      for (size_t k = 0; k < x.size(); ++k) {
        float weight;
        std::memcpy(&weight, weights.data() + 4 * (n * x.size() + k), sizeof(weight));
        sum += x[k] * weight;
        magnitude += std::fabs(x[k] * weight);
      }
      // The expectation's weights were rounded to float32, ours were not; y was.
      ASSERT_NEAR(y[n], sum, magnitude * 0x1p-23) << n;
    }
  }

  std::optional<client::Session> session_;
};

TEST_F(ActivationTest, AwqMultipliesXByItsPreQuantScale) {
  const std::string name = "modelopt_w4a16_awq";
  const client::Layer layer = Layer(name);
  EXPECT_TRUE(layer.info().has_input_scale());
  const std::string factors =
      TensorBytes(absl::StrCat(Checkpoints(), "/", name, "/model.safetensors"),
                  std::string(kDown) + ".pre_quant_scale");
  std::vector<double> scaled;
  std::string x;
  for (int64_t k = 0; k < layer.info().k(); ++k) {
    const float value = static_cast<float>(k % 11 - 5) / 4;
    x.append(reinterpret_cast<const char*>(&value), sizeof(value));
    scaled.push_back(value * BFloat16At(factors, static_cast<size_t>(k)));
  }
  ExpectProduct(Run(layer, x, v1::DATA_TYPE_FLOAT32), name, scaled);
}

TEST_F(ActivationTest, QuantizedXHasTheStaticScaleAndZeroPointOfTheCheckpoint) {
  const std::string name = "ct_int8_channel_static_asym_input";
  const client::Layer layer = Layer(name);
  EXPECT_TRUE(layer.info().encoding().zero_points());
  EXPECT_FALSE(layer.info().spec().has_activation());
  const std::string file = absl::StrCat(Checkpoints(), "/", name, "/model.safetensors");
  const double scale = BFloat16At(TensorBytes(file, std::string(kDown) + ".input_scale"), 0);
  const auto zero_point =
      static_cast<int8_t>(TensorBytes(file, std::string(kDown) + ".input_zero_point")[0]);
  std::vector<double> values;
  std::string x;
  for (int64_t k = 0; k < layer.info().k(); ++k) {
    const auto code = static_cast<int8_t>(k * 37 % 256 - 128);
    x += static_cast<char>(code);
    values.push_back((code - zero_point) * scale);
  }
  ExpectProduct(Run(layer, x, v1::DATA_TYPE_INT8), name, values);
}

// The same layer from its tensors, as a client without checkpoint files brings it.
TEST_F(ActivationTest, TensorsBringTheirInputScale) {
  constexpr int64_t kN = 4;
  constexpr int64_t kK = 8;
  client::Region memory = *session_->AllocateHost(4096);
  std::vector<float> weights, factors;
  for (int64_t i = 0; i < kN * kK; ++i) weights.push_back(static_cast<float>(i % 7 - 3));
  for (int64_t k = 0; k < kK; ++k) factors.push_back(0.5f + static_cast<float>(k));
  std::memcpy(memory.data(), weights.data(), 4 * weights.size());
  std::memcpy(memory.data() + 1024, factors.data(), 4 * factors.size());
  client::LayerTensors tensors;
  v1::NumberFormat& format = *tensors.spec.mutable_weight();
  format.set_kind(v1::NUMBER_KIND_FLOAT);
  format.set_bits(32);
  format.set_exponent_bits(8);
  format.set_mantissa_bits(23);
  format.set_special(v1::SPECIAL_VALUES_IEEE);
  tensors.n = kN;
  tensors.k = kK;
  tensors.codes = {&memory, 0, 4 * kN * kK};
  tensors.input_scale = client::RegionBytes{&memory, 1024, 4 * kK};
  const auto layer = session_->RegisterTensors(tensors, "cpu", "scaled");
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_TRUE(layer->info().has_input_scale());
  std::vector<float> ones(kK, 1);
  const std::vector<float> y =
      Run(*layer, std::string(reinterpret_cast<const char*>(ones.data()), 4 * kK),
          v1::DATA_TYPE_FLOAT32);
  for (int64_t n = 0; n < kN; ++n) {
    float expected = 0;
    for (int64_t k = 0; k < kK; ++k) expected += weights[n * kK + k] * factors[k];
    EXPECT_EQ(y[n], expected) << n;  // small dyadic numbers
  }
  tensors.input_scale = client::RegionBytes{&memory, 1024, 4 * kK - 4};
  const auto bad = session_->RegisterTensors(tensors, "cpu", "bad");
  EXPECT_EQ(ReasonOf(bad.status()), "SHAPE_MISMATCH") << bad.status();
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("input_scale"));
}

TEST_F(ActivationTest, GemmctlSaysWhatHappensToX) {
  const auto describe = [&](const std::string& name) {
    auto tool = Start(
        {Program("gemmctl"), "--socket", socket(), "register", Checkpoints() + "/" + name, kDown});
    EXPECT_EQ(tool->Wait(absl::Minutes(1)), 0);
    return tool->Rest();
  };
  EXPECT_THAT(describe("modelopt_w4a16_awq"), HasSubstr("one factor of x per column"));
  EXPECT_THAT(describe("ct_int8_channel_static_asym_input"),
              HasSubstr("int8, static scale, zero points"));
  EXPECT_THAT(describe("ct_nvfp4_n50_k80"), HasSubstr("e2m1, one scale per 16 columns in e4m3"));
  EXPECT_THAT(describe("ct_pack_w4_g128_sym"), HasSubstr("as the request has them"));
}

}  // namespace
}  // namespace gemmd::e2e

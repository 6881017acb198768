// AMD Quark: tensors are packed here by the rules of its pack.py, from values that are chosen here. No
// exported file is at hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "core/quant/activations.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

constexpr char kQuarkModule[] = "model.layers.0.mlp.down_proj";
constexpr auto kQuarkGroup = ActivationScaleKind::kDynamicGroup;
constexpr auto kQuarkStatic = ActivationScaleKind::kStaticTensor;
constexpr auto kQuarkToken = ActivationScaleKind::kDynamicToken;

std::string Floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size());
}

// A checkpoint with one linear.
struct QuarkCheckpoint {
  ordered_json config = {{"quant_method", "quark"},
                         {"global_quant_config",
                          {{"weight", nullptr},
                           {"input_tensors", nullptr},
                           {"output_tensors", nullptr},
                           {"bias", nullptr}}},
                         {"layer_quant_config", ordered_json::object()},
                         {"layer_type_quant_config", ordered_json::object()},
                         {"exclude", {"lm_head"}},
                         {"algo_config", nullptr},
                         {"export",
                          {{"kv_cache_group", ordered_json::array()},
                           {"pack_method", "reorder"},
                           {"weight_format", "real_quantized"}}}};
  RawTensors tensors;

  ordered_json& weight() { return config["global_quant_config"]["weight"]; }
  ordered_json& input() { return config["global_quant_config"]["input_tensors"]; }
  void Set(const std::string& key, const std::string& dtype, std::vector<int64_t> shape,
           std::string bytes) {
    tensors[absl::StrCat(kQuarkModule, ".", key)] = {dtype, std::move(shape), std::move(bytes)};
  }
  absl::StatusOr<CheckpointLayer> Read(const std::string& module = kQuarkModule) const {
    TemporaryDirectory directory;
    WriteFile(directory.path() / "config.json",
              ordered_json{{"quantization_config", config}}.dump());
    WriteTensors(directory.path() / "model.safetensors", tensors);
    return ReadLayer(directory.path(), module);
  }
  std::string Reason() const {
    const auto layer = Read();
    EXPECT_FALSE(layer.ok());
    return ReasonOf(layer.status());
  }
};

ordered_json Spec(const char* dtype, const char* scheme, int64_t group = 0) {
  ordered_json spec = {{"dtype", dtype},        {"qscheme", scheme},      {"is_dynamic", false},
                       {"symmetric", true},     {"ch_axis", nullptr},     {"group_size", nullptr},
                       {"block_size", nullptr}, {"scale_format", nullptr}};
  if (group > 0) spec["group_size"] = group;
  if (std::string(scheme) == "per_group") spec["ch_axis"] = -1;
  if (std::string(scheme) == "per_channel") spec["ch_axis"] = 0;
  return spec;
}

// Integers two's complement or unsigned, as values.
using Value = std::function<int(int64_t, int64_t)>;

// [rows, columns] of 4-bit codes, eight to a word along the columns: nibble p holds code order[p]. Codes
// beyond the columns are 0.
std::string Words(int64_t rows, int64_t columns, bool reordered, const Value& value) {
  const int order[] = {0, 2, 4, 6, 1, 3, 5, 7};
  std::string bytes;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t first = 0; first < columns; first += 8) {
      uint32_t word = 0;
      for (int p = 0; p < 8; ++p) {
        const int64_t column = first + (reordered ? order[p] : p);
        if (column < columns) word |= (value(row, column) & 15u) << (4 * p);
      }
      bytes.append(reinterpret_cast<const char*>(&word), 4);
    }
  }
  return bytes;
}

std::string Bytes(int64_t rows, int64_t columns, const Value& value) {
  std::string bytes;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      bytes += static_cast<char>(value(row, column));
    }
  }
  return bytes;
}

void ExpectWeights(const absl::StatusOr<CheckpointLayer>& layer, int64_t n, int64_t k,
                   const std::function<double(int64_t, int64_t)>& weight) {
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->format, "quark");
  ASSERT_TRUE(Validate(layer->tensor).ok()) << Validate(layer->tensor);
  ASSERT_EQ(layer->tensor.shape, (LayerShape{1, n, k}));
  std::vector<double> row(static_cast<size_t>(k));
  for (int64_t i = 0; i < n; ++i) {
    DequantizeRow(layer->tensor, 0, i, absl::MakeSpan(row));
    for (int64_t j = 0; j < k; ++j) ASSERT_EQ(row[j], weight(i, j)) << i << " " << j;
  }
}

int Signed4(int64_t n, int64_t k) { return static_cast<int>((n * 5 + k * 3) % 16) - 8; }
int Unsigned4(int64_t n, int64_t k) { return Signed4(n, k) + 8; }
float ScaleOf(int64_t n, int64_t group) { return 0.5f + static_cast<float>(n) + group * 0.25f; }

std::string GroupScales(int64_t groups, int64_t n) {  // [G, N]
  std::vector<float> scales;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t i = 0; i < n; ++i) scales.push_back(ScaleOf(i, g));
  }
  return Floats(scales);
}

// N of 12 does not fill its words: the scales tell it.
TEST(QuarkTest, ReadsInt4InGroupsWithKInFront) {
  for (const bool reordered : {true, false}) {
    QuarkCheckpoint checkpoint;
    checkpoint.weight() = Spec("int4", "per_group", 32);
    checkpoint.config["export"]["pack_method"] = reordered ? "reorder" : "order";
    checkpoint.Set("weight", "I32", {64, 2},
                   Words(64, 12, reordered, [](int64_t k, int64_t n) { return Signed4(n, k); }));
    checkpoint.Set("weight_scale", "F32", {2, 12}, GroupScales(2, 12));
    checkpoint.Set("weight_zero_point", "I32", {2, 2}, std::string(16, '\0'));
    const auto layer = checkpoint.Read();
    ExpectWeights(layer, 12, 64,
                  [](int64_t n, int64_t k) { return double{Signed4(n, k) * ScaleOf(n, k / 32)}; });
    EXPECT_EQ(layer->tensor.spec.zero_point, ZeroPointKind::kNone);
  }
}

TEST(QuarkTest, ReadsUint4WithZeroPoints) {
  QuarkCheckpoint checkpoint;
  checkpoint.weight() = Spec("uint4", "per_group", 32);
  checkpoint.weight()["symmetric"] = false;
  const auto zero = [](int64_t g, int64_t n) { return static_cast<int>((n + 3 * g) % 16); };
  checkpoint.Set("weight", "I32", {64, 2},
                 Words(64, 16, true, [](int64_t k, int64_t n) { return Unsigned4(n, k); }));
  checkpoint.Set("weight_scale", "F32", {2, 16}, GroupScales(2, 16));
  checkpoint.Set("weight_zero_point", "I32", {2, 2}, Words(2, 16, true, zero));
  ExpectWeights(checkpoint.Read(), 16, 64, [&](int64_t n, int64_t k) {
    return double{(Unsigned4(n, k) - zero(k / 32, n)) * ScaleOf(n, k / 32)};
  });
}

TEST(QuarkTest, ReadsSignedZeroPointsOfChannels) {
  QuarkCheckpoint checkpoint;
  checkpoint.weight() = Spec("int4", "per_channel");
  checkpoint.weight()["symmetric"] = false;
  const auto zero = [](int64_t, int64_t n) { return static_cast<int>(n % 5) - 2; };
  std::vector<float> scales;
  for (int64_t n = 0; n < 10; ++n) scales.push_back(ScaleOf(n, 0));
  checkpoint.Set("weight", "I32", {10, 2}, Words(10, 16, true, Signed4));
  checkpoint.Set("weight_scale", "F32", {10}, Floats(scales));
  checkpoint.Set("weight_zero_point", "I32", {2}, Words(1, 10, true, zero));
  ExpectWeights(checkpoint.Read(), 10, 16, [&](int64_t n, int64_t k) {
    return double{(Signed4(n, k) - zero(0, n)) * ScaleOf(n, 0)};
  });
}

TEST(QuarkTest, ReadsInt8AndUint8) {
  const auto value = [](int64_t n, int64_t k) { return static_cast<int>((n * 31 + k * 7) % 256); };
  QuarkCheckpoint checkpoint;
  checkpoint.weight() = Spec("int8", "per_tensor");
  checkpoint.Set("weight", "I8", {4, 6}, Bytes(4, 6, value));
  checkpoint.Set("weight_scale", "F32", {}, Floats({0.25f}));
  checkpoint.Set("weight_zero_point", "I8", {}, std::string(1, '\0'));
  ExpectWeights(checkpoint.Read(), 4, 6,
                [&](int64_t n, int64_t k) { return static_cast<int8_t>(value(n, k)) * 0.25; });
  checkpoint.weight()["symmetric"] = false;
  checkpoint.Set("weight_zero_point", "I8", {}, "\xfb");  // -5
  ExpectWeights(checkpoint.Read(), 4, 6, [&](int64_t n, int64_t k) {
    return (static_cast<int8_t>(value(n, k)) + 5) * 0.25;
  });
  checkpoint.weight() = Spec("uint8", "per_group", 3);
  checkpoint.weight()["symmetric"] = false;
  checkpoint.Set("weight", "U8", {6, 4},
                 Bytes(6, 4, [&](int64_t k, int64_t n) { return value(n, k); }));
  checkpoint.Set("weight_scale", "F32", {2, 4}, GroupScales(2, 4));
  checkpoint.Set("weight_zero_point", "U8", {2, 4},
                 Bytes(2, 4, [](int64_t g, int64_t n) { return 100 + 10 * g + n; }));
  ExpectWeights(checkpoint.Read(), 4, 6, [&](int64_t n, int64_t k) {
    return double{(value(n, k) - (100.0f + 10 * (k / 3) + n)) * ScaleOf(n, k / 3)};
  });
}

TEST(QuarkTest, ReadsExponentsOfIntegersWithKInFront) {
  const auto value = [](int64_t n, int64_t k) { return static_cast<int>((n * 31 + k * 7) % 256); };
  const auto exponent = [](int64_t n, int64_t group) { return static_cast<int>(120 + 3 * n + group); };
  QuarkCheckpoint checkpoint;
  checkpoint.weight() = Spec("int8", "per_group", 3);
  checkpoint.weight()["scale_format"] = "e8m0";
  checkpoint.Set("weight", "I8", {6, 4}, Bytes(6, 4, [&](int64_t k, int64_t n) { return value(n, k); }));
  checkpoint.Set("weight_scale", "U8", {2, 4}, Bytes(2, 4, [&](int64_t g, int64_t n) { return exponent(n, g); }));
  ExpectWeights(checkpoint.Read(), 4, 6, [&](int64_t n, int64_t k) {
    return std::ldexp(static_cast<int8_t>(value(n, k)), exponent(n, k / 3) - 127);
  });
}

// e4m3: 0x38 is 1, 0x40 2, 0xb0 -0.5, 0x01 2^-9.
TEST(QuarkTest, ReadsFloat8PerTensorChannelAndBlock) {
  const std::string codes("\x38\x40\xb0\x01\x40\x38\xb0\xb0", 8);
  const double values[2][4] = {{1, 2, -0.5, 0x1p-9}, {2, 1, -0.5, -0.5}};
  QuarkCheckpoint checkpoint;
  checkpoint.weight() = Spec("fp8_e4m3", "per_tensor");
  checkpoint.input() = Spec("fp8_e4m3", "per_tensor");
  checkpoint.Set("weight", "F8_E4M3", {2, 4}, codes);
  checkpoint.Set("weight_scale", "F32", {}, Floats({0.125f}));
  checkpoint.Set("input_scale", "F32", {}, Floats({0.5f}));
  const auto layer = checkpoint.Read();
  ExpectWeights(layer, 2, 4, [&](int64_t n, int64_t k) { return values[n][k] * 0.125; });
  EXPECT_EQ(layer->tensor.spec.activation, kFloat8E4M3);
  EXPECT_EQ(layer->tensor.spec.activation_scale, kQuarkStatic);
  EXPECT_EQ(ScalingOf(layer->tensor).static_scale, 0.5f);
  checkpoint.tensors.erase(absl::StrCat(kQuarkModule, ".input_scale"));
  checkpoint.input()["is_dynamic"] = true;
  checkpoint.input()["qscheme"] = "per_channel";
  checkpoint.weight() = Spec("fp8_e4m3", "per_channel");
  checkpoint.Set("weight_scale", "F32", {2}, Floats({0.125f, 4}));
  const auto channel = checkpoint.Read();
  ExpectWeights(channel, 2, 4,
                [&](int64_t n, int64_t k) { return values[n][k] * (n == 0 ? 0.125 : 4); });
  EXPECT_EQ(channel->tensor.spec.activation_scale, kQuarkToken);
  checkpoint.weight() = Spec("fp8_e4m3", "per_block");
  checkpoint.weight()["block_size"] = {2, 2};
  checkpoint.Set("weight_scale", "F32", {1, 2}, Floats({0.5f, 8}));
  ExpectWeights(checkpoint.Read(), 2, 4,
                [&](int64_t n, int64_t k) { return values[n][k] * (k < 2 ? 0.5 : 8); });
}

// Codes of 4 and 6 bits are one stream of bits, LSB first, with an exponent for 32 of them.
TEST(QuarkTest, ReadsMxFloatsOfFourAndSixBits) {
  for (const auto& [dtype, format] :
       {std::pair("fp4", kFloat4E2M1), std::pair("fp6_e2m3", FloatFormat(2, 3)),
        std::pair("fp6_e3m2", FloatFormat(3, 2))}) {
    SCOPED_TRACE(dtype);
    const int bits = format.bits;
    const auto code = [&](int64_t n, int64_t k) { return (n * 11 + k * 5) % (1 << bits); };
    std::string bytes(static_cast<size_t>(2 * 64 * bits / 8), '\0');
    for (int64_t i = 0; i < 2 * 64 * bits; ++i) {
      const int64_t index = i / bits;  // rows fill whole bytes
      if (code(index / 64, index % 64) >> (i % bits) & 1) bytes[i / 8] |= 1 << (i % 8);
    }
    QuarkCheckpoint checkpoint;
    checkpoint.weight() = Spec(dtype, "per_group", 32);
    checkpoint.weight()["scale_format"] = "e8m0";
    checkpoint.weight()["symmetric"] = nullptr;
    checkpoint.input() = checkpoint.weight();
    checkpoint.input()["is_dynamic"] = true;
    checkpoint.Set("weight", "U8", {2, 64 * bits / 8}, bytes);
    checkpoint.Set("weight_scale", "U8", {2, 2}, "\x7f\x80\x7e\x81");
    const double scales[2][2] = {{1, 2}, {0.5, 4}};
    const auto layer = checkpoint.Read();
    ExpectWeights(layer, 2, 64, [&, format = format](int64_t n, int64_t k) {
      return DecodeNumber(format, static_cast<uint32_t>(code(n, k))) * scales[n][k / 32];
    });
    EXPECT_EQ(layer->tensor.spec.activation, format);
    EXPECT_EQ(layer->tensor.spec.activation_scale, kQuarkGroup);
    EXPECT_EQ(layer->tensor.encoding.group_scale, kFloat8E8M0);
  }
}

TEST(QuarkTest, ReadsNvfp4) {
  ordered_json codes = Spec("fp4", "per_group", 16);
  ordered_json scales = Spec("fp8_e4m3", "per_tensor");
  scales["is_scale_quant"] = true;
  QuarkCheckpoint checkpoint;
  checkpoint.weight() = {codes, scales};
  codes["is_dynamic"] = true;
  checkpoint.input() = {codes, scales};
  checkpoint.Set("weight", "U8", {2, 8}, std::string(8, '\x21') + std::string(8, '\xf2'));
  checkpoint.Set("weight_scale", "F8_E4M3", {2, 1}, "\x38\x40");
  checkpoint.Set("weight_scale_2", "F32", {}, Floats({0.25f}));
  checkpoint.Set("input_scale_2", "F32", {}, Floats({0.125f}));
  const auto layer = checkpoint.Read();
  ExpectWeights(layer, 2, 16, [](int64_t n, int64_t k) {
    const double value = n == 0 ? (k % 2 == 0 ? 0.5 : 1) : (k % 2 == 0 ? 1 : -6);
    return value * (n == 0 ? 1 : 2) * 0.25;
  });
  EXPECT_EQ(layer->tensor.encoding.group_scale, kFloat8E4M3);
  EXPECT_EQ(ScalingOf(layer->tensor).global_scale, 8);  // the inverse of the factor
  checkpoint.Set("weight_scale_2", "F32", {}, Floats({3e38f}));
  EXPECT_EQ(checkpoint.Reason(), "BAD_CHECKPOINT");    // times 2
  checkpoint.weight()[1]["is_scale_quant"] = false;     // two levels of weights
  EXPECT_EQ(checkpoint.Reason(), "UNSUPPORTED_FORMAT");
}

TEST(QuarkTest, ReadsAsymmetricActivations) {
  QuarkCheckpoint checkpoint;
  checkpoint.weight() = Spec("int8", "per_tensor");
  checkpoint.input() = Spec("int8", "per_tensor");
  checkpoint.Set("weight", "I8", {1, 4}, "\x01\x02\x03\x04");
  checkpoint.Set("weight_scale", "F32", {}, Floats({1}));
  checkpoint.Set("input_scale", "F32", {}, Floats({0.5f}));
  checkpoint.Set("input_zero_point", "I8", {}, std::string(1, '\0'));
  EXPECT_EQ(checkpoint.Read()->tensor.spec.activation, kInt8);
  checkpoint.Set("input_zero_point", "I8", {}, "\xfd");
  EXPECT_EQ(checkpoint.Reason(), "BAD_CHECKPOINT") << "symmetric, but not 0";
  checkpoint.input()["symmetric"] = false;
  const auto layer = checkpoint.Read();
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(ScalingOf(layer->tensor).static_zero_point, -3);
  EXPECT_FALSE(layer->tensor.spec.activation.present());
}

// The first pattern of layer_quant_config, then the class, then the global entry; exclude before all.
TEST(QuarkTest, FindsTheSchemeOfAModule) {
  QuarkCheckpoint checkpoint;
  checkpoint.weight() = Spec("int8", "per_channel");
  checkpoint.Set("weight", "F8_E4M3", {1, 2}, "\x38\x40");
  checkpoint.Set("weight_scale", "F32", {}, Floats({1}));
  EXPECT_EQ(checkpoint.Reason(), "BAD_CHECKPOINT") << "int8";
  const ordered_json fp8 = {{"weight", Spec("fp8_e4m3", "per_tensor")}};
  checkpoint.config["layer_type_quant_config"]["Linear"] = fp8;
  EXPECT_TRUE(checkpoint.Read().ok());
  checkpoint.config["layer_quant_config"]["*.down_proj"] = {{"weight", Spec("int8", "per_tensor")}};
  EXPECT_EQ(checkpoint.Reason(), "BAD_CHECKPOINT");
  checkpoint.config["layer_quant_config"] = {{"*mlp.*", fp8}, {"*", {{"weight", nullptr}}}};
  EXPECT_TRUE(checkpoint.Read().ok());
  for (const char* pattern : {"model.layers.0.mlp.down_proj", "*down_proj", "re:.*mlp"}) {
    checkpoint.config["exclude"] = {pattern};
    const auto excluded = checkpoint.Read();
    EXPECT_EQ(ReasonOf(excluded.status()), "BAD_CHECKPOINT") << pattern;
    EXPECT_THAT(std::string(excluded.status().message()), HasSubstr("excluded by its config"));
  }
  checkpoint.tensors.clear();
  checkpoint.Set("weight", "BF16", {1, 2}, std::string(4, '\0'));
  EXPECT_EQ(checkpoint.Read()->format, "unquantized");
}

TEST(QuarkTest, LeavesCacheScalesOut) {
  QuarkCheckpoint checkpoint;
  checkpoint.weight() = Spec("fp8_e4m3", "per_tensor");
  checkpoint.Set("weight", "F8_E4M3", {1, 2}, "\x38\x40");
  checkpoint.Set("weight_scale", "F32", {}, Floats({1}));
  checkpoint.Set("output_scale", "F32", {}, Floats({1}));
  checkpoint.config["global_quant_config"]["output_tensors"] = Spec("fp8_e4m3", "per_tensor");
  EXPECT_EQ(checkpoint.Reason(), "UNSUPPORTED_FORMAT");
  checkpoint.config["export"]["kv_cache_group"] = {"*k_proj", "*v_proj"};
  EXPECT_TRUE(checkpoint.Read().ok());
}

TEST(QuarkTest, RefusesWhatItDoesNotKnow) {
  QuarkCheckpoint good;
  good.weight() = Spec("fp8_e4m3", "per_tensor");
  good.Set("weight", "F8_E4M3", {1, 2}, "\x38\x40");
  good.Set("weight_scale", "F32", {}, Floats({1}));
  ASSERT_TRUE(good.Read().ok()) << good.Read().status();
  const auto with = [&](const std::function<void(QuarkCheckpoint&)>& change) {
    QuarkCheckpoint checkpoint = good;
    change(checkpoint);
    return checkpoint.Reason();
  };
  for (const char* dtype : {"uint2", "int16", "mx", "mx6", "bfp16", "fp8_e5m3", "uint4"}) {
    EXPECT_EQ(with([&](QuarkCheckpoint& c) { c.weight()["dtype"] = dtype; }), "UNSUPPORTED_FORMAT")
        << dtype;
  }
  const char* kUnsupported = "UNSUPPORTED_FORMAT";
  EXPECT_EQ(with([](QuarkCheckpoint& c) { c.weight()["is_dynamic"] = true; }), kUnsupported);
  EXPECT_EQ(with([](QuarkCheckpoint& c) { c.weight()["scale_format"] = "e5m3"; }), kUnsupported);
  EXPECT_EQ(with([](QuarkCheckpoint& c) { c.weight()["zero_point_type"] = "float32"; }),
            kUnsupported);
  EXPECT_EQ(with([](QuarkCheckpoint& c) {
              c.weight()["qscheme"] = "per_channel";
              c.weight()["ch_axis"] = 1;
            }),
            kUnsupported);
  EXPECT_EQ(
      with([](QuarkCheckpoint& c) { c.config["export"]["weight_format"] = "fake_quantized"; }),
      kUnsupported);
  EXPECT_EQ(with([](QuarkCheckpoint& c) { c.config["export"]["pack_method"] = "other"; }),
            kUnsupported);
  EXPECT_EQ(with([](QuarkCheckpoint& c) {
              c.config["algo_config"] = {{{"name", "rotation"}, {"r1", true}, {"r4", true}}};
            }),
            kUnsupported);
  EXPECT_EQ(with([](QuarkCheckpoint& c) { c.input() = Spec("uint8", "per_tensor"); }),
            kUnsupported);
  EXPECT_EQ(with([](QuarkCheckpoint& c) { c.input() = Spec("int8", "per_channel"); }),
            kUnsupported);
  const char* kBad = "BAD_CHECKPOINT";
  EXPECT_EQ(with([](QuarkCheckpoint& c) { c.weight() = Spec("fp8_e4m3", "per_group"); }), kBad);
  EXPECT_EQ(with([](QuarkCheckpoint& c) { c.weight() = Spec("fp8_e4m3", "per_block"); }), kBad);
  EXPECT_EQ(with([](QuarkCheckpoint& c) { c.weight() = Spec("fp8_e4m3", "per_group", 3); }), kBad);
  EXPECT_EQ(with([](QuarkCheckpoint& c) { c.Set("input_rotation", "I8", {1}, "\x01"); }), kBad);
  EXPECT_EQ(with([](QuarkCheckpoint& c) { c.Set("weight_scale", "F32", {}, Floats({0})); }), kBad);
}

TEST(QuarkTest, RefusesZeroPointsThatContradictTheConfig) {
  QuarkCheckpoint checkpoint;
  checkpoint.weight() = Spec("int8", "per_tensor");
  checkpoint.Set("weight", "I8", {1, 2}, "\x01\x02");
  checkpoint.Set("weight_scale", "F32", {}, Floats({1}));
  EXPECT_TRUE(checkpoint.Read().ok());
  checkpoint.Set("weight_zero_point", "I8", {}, "\x03");
  EXPECT_EQ(checkpoint.Reason(), "BAD_CHECKPOINT");
  checkpoint.weight()["symmetric"] = false;
  EXPECT_TRUE(checkpoint.Read().ok());
  checkpoint.tensors.erase(absl::StrCat(kQuarkModule, ".weight_zero_point"));
  EXPECT_EQ(checkpoint.Reason(), "BAD_CHECKPOINT");
}

}  // namespace
}  // namespace gemmd

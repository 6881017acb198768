// Layers of unquantized weights with their weights quantized: the bytes of Quantize, whatever type they come in and
// however many threads work; and of exporters.
#include "core/quant/quantize_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "core/checkpoint/safetensors.h"
#include "core/quant/bit_row.h"
#include "core/quant/quantize.h"
#include "core/quant/reference.h"
#include "core/quant/slice.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A layer of normally distributed weights that are numbers of `type`.
StandardTensor Unquantized(const NumberFormat& type, const LayerShape& shape, uint32_t seed = 3) {
  StandardTensor tensor;
  tensor.spec.weight = type;
  tensor.shape = shape;
  const int64_t row_bytes = tensor.spec.RowWords(shape.k) * 4;
  tensor.codes = Buffer(static_cast<size_t>(shape.experts * shape.n * row_bytes));
  std::mt19937 random(seed);
  std::normal_distribution<float> weights(0, 0.05f);
  for (int64_t row = 0; row < shape.experts * shape.n; ++row) {
    for (int64_t k = 0; k < shape.k; ++k) {
      const uint32_t code = EncodeNumber(type, weights(random));
      std::memcpy(tensor.codes.data() + row * row_bytes + k * type.bits / 8, &code, type.bits / 8u);
    }
  }
  return tensor;
}

std::vector<float> ValuesOf(const StandardTensor& tensor) {
  const auto [experts, n, k] = tensor.shape;
  std::vector<float> values(static_cast<size_t>(experts * n * k));
  for (int64_t row = 0; row < experts * n; ++row) {
    DequantizeRowFloat32(tensor, row / n, row % n, absl::MakeSpan(values).subspan(row * k, k));
  }
  return values;
}

QuantizeTarget Int4(int64_t group = 32) {
  return {.spec = {.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = group}};
}

TEST(QuantizeLayerTest, GivesTheBytesOfQuantizeForEveryTypeOfSource) {
  const LayerShape shape{2, 7, 50};
  for (const NumberFormat& type : {kFloat16, kBFloat16, kFloat32}) {
    const StandardTensor source = Unquantized(type, shape);
    for (const NumberFormat& weight : {IntegerFormat(3), IntegerFormat(8), kFloat4E2M1, kFloat8E4M3}) {
      QuantSpec spec{.weight = weight, .scale = kFloat32, .scale_block_k = 16};
      const auto layer = QuantizeLayer(source, {.spec = spec});
      ASSERT_TRUE(layer.ok()) << layer.status();
      EXPECT_EQ(Digest(*layer), Digest(*Quantize(ValuesOf(source), shape, spec)));
    }
  }
}

// More rows than one thread takes at a time, so that blocks of scales are shared by threads.
TEST(QuantizeLayerTest, GivesTheSameBytesWithManyThreadsAndTellsOfItsProgress) {
  const StandardTensor source = Unquantized(kBFloat16, {1, 700, 2048});
  QuantizeWork work;
  work.parallel = [](int64_t count, const std::function<void(int64_t)>& body) {
    std::atomic<int64_t> next{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int64_t at = next++; at < count; at = next++) body(at);
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  int64_t last = 0;
  work.progress = [&last](int64_t done, int64_t total) {
    EXPECT_EQ(total, 2 * 700);
    EXPECT_GE(done, last);
    last = done;
    return true;
  };
  for (const auto& [block_n, block_k] : std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {128, 128}, {1, 0}}) {
    QuantizeTarget target{.spec = {.weight = IntegerFormat(4),
                                   .scale = kFloat8E4M3,
                                   .scale_block_n = block_n,
                                   .scale_block_k = block_k,
                                   .secondary_scale = SecondaryScaleKind::kTensor}};
    last = 0;
    QuantizationError alone;
    QuantizationError together;
    const auto one = QuantizeLayer(source, target, {}, &alone);
    const auto many = QuantizeLayer(source, target, work, &together);
    ASSERT_TRUE(one.ok() && many.ok()) << one.status() << many.status();
    EXPECT_EQ(Digest(*one), Digest(*many));
    EXPECT_EQ(alone.error_square, together.error_square);
    EXPECT_EQ(last, 2 * 700);
  }
}

TEST(QuantizeLayerTest, TellsWhatRoundingCosts) {
  const StandardTensor source = Unquantized(kFloat32, {2, 9, 40});
  for (QuantizeTarget target : {Int4(), QuantizeTarget{.spec = {.weight = kFloat8E5M2, .scale = kFloat32}}}) {
    if (target.spec.weight.kind == NumberKind::kInteger) target.spec.zero_point = ZeroPointKind::kInteger;
    QuantizationError error;
    const auto layer = QuantizeLayer(source, target, {}, &error);
    ASSERT_TRUE(layer.ok()) << layer.status();
    const std::vector<float> want = ValuesOf(source);
    const std::vector<float> got = ValuesOf(*layer);
    double lost = 0;
    double all = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      lost += (double{want[i]} - got[i]) * (double{want[i]} - got[i]);
      all += double{want[i]} * want[i];
    }
    // The dequantized weights are rounded to float32 once more.
    EXPECT_NEAR(error.relative(), std::sqrt(lost / all), 1e-6);
  }
  EXPECT_EQ(QuantizationError().relative(), 0);
}

TEST(QuantizeLayerTest, KeepsBiasAndInputScale) {
  StandardTensor source = Unquantized(kBFloat16, {1, 4, 32});
  source.spec.bias = kFloat16;
  source.bias = Buffer(8, std::byte{0x3c});
  source.has_input_scale = true;
  source.input_scale = Buffer(4 * 32, std::byte{0x3f});
  const auto layer = QuantizeLayer(source, Int4());
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_TRUE(layer->spec.bias == kFloat16);
  EXPECT_EQ(layer->bias, source.bias);
  EXPECT_EQ(layer->input_scale, source.input_scale);
  EXPECT_TRUE(Validate(*layer).ok()) << Validate(*layer);
}

// Scales of channels, groups and blocks belong to the weights that they cover: whoever quantizes a slice that cuts
// none gets the slice of the quantized whole.
TEST(QuantizeLayerTest, OfASliceIsTheSliceOfTheWhole) {
  const StandardTensor source = Unquantized(kFloat16, {2, 64, 128});
  const LayerSlice slice{.experts = {1, 2}, .rows = {32, 64}, .columns = {64, 128}};
  for (const auto& [block_n, block_k] : std::vector<std::pair<int64_t, int64_t>>{{1, 32}, {32, 64}}) {
    QuantizeTarget target = Int4(block_k);
    target.spec.scale_block_n = block_n;
    const auto whole = QuantizeLayer(source, target);
    const auto part = QuantizeLayer(*Slice(source, slice), target);
    ASSERT_TRUE(whole.ok() && part.ok()) << whole.status() << part.status();
    EXPECT_EQ(Digest(*Slice(*whole, slice)), Digest(*part));
  }
}

TEST(QuantizeLayerTest, RefusesWhatIsQuantizedAlready) {
  StandardTensor source = Unquantized(kFloat16, {1, 4, 32});
  const StandardTensor quantized = *QuantizeLayer(source, Int4());
  EXPECT_EQ(ReasonOf(QuantizeLayer(quantized, Int4()).status()), "ALREADY_QUANTIZED");
  source.spec.activation = kFloat8E4M3;
  EXPECT_EQ(ReasonOf(QuantizeLayer(source, Int4()).status()), "ALREADY_QUANTIZED");
  source.spec.activation = kNoFormat;
  source.spec.scale = kFloat32;
  source.scales = Buffer(16);
  EXPECT_EQ(ReasonOf(QuantizeLayer(source, Int4()).status()), "ALREADY_QUANTIZED");
}

TEST(QuantizeLayerTest, RefusesTargetsThatWeightsCannotBecome) {
  struct Bad {
    const char* reason;
    void (*change)(QuantizeTarget&);
  };
  for (const auto& [reason, change] : {
           Bad{"BAD_SPEC", [](QuantizeTarget& t) { t.spec.weight = kBFloat16; }},
           Bad{"BAD_SPEC", [](QuantizeTarget& t) { t.spec.weight = IntegerFormat(9); }},
           Bad{"BAD_SPEC", [](QuantizeTarget& t) { t.spec.scale = IntegerFormat(8); }},
           Bad{"BAD_SPEC",
               [](QuantizeTarget& t) {
                 t.spec.weight = kFloat4E2M1;
                 t.spec.zero_point = ZeroPointKind::kInteger;
               }},
           Bad{"BAD_SPEC",
               [](QuantizeTarget& t) {
                 t.spec.scale = kNoFormat;
                 t.spec.secondary_scale = SecondaryScaleKind::kTensor;
               }},
           Bad{"BAD_SPEC", [](QuantizeTarget& t) { t.encoding.format = kFloat8E4M3; }},
           Bad{"SHAPE_MISMATCH", [](QuantizeTarget& t) { t.spec.scale_block_n = INT64_MAX; }},
           Bad{"UNSUPPORTED_SPEC", [](QuantizeTarget& t) { t.spec.has_group_index = true; }},
           Bad{"UNSUPPORTED_SPEC", [](QuantizeTarget& t) { t.spec.bias = kFloat32; }},
           Bad{"UNSUPPORTED_SPEC",
               [](QuantizeTarget& t) {
                 t.spec.activation = kFloat8E4M3;
                 t.spec.activation_scale = ActivationScaleKind::kStaticTensor;
               }},
           Bad{"UNSUPPORTED_SPEC",
               [](QuantizeTarget& t) {
                 t.encoding = {.format = kInt8, .scale = ActivationScaleKind::kStaticTensor, .zero_points = true};
               }},
           Bad{"UNSUPPORTED_SPEC",
               [](QuantizeTarget& t) {
                 t.spec.activation = t.encoding.format = kFloat4E2M1;
                 t.spec.activation_scale = t.encoding.scale = ActivationScaleKind::kDynamicGroup;
                 t.spec.activation_group = t.encoding.group = 16;
                 t.encoding.group_scale = kFloat8E4M3;
               }},
       }) {
    QuantizeTarget target = Int4();
    change(target);
    EXPECT_EQ(ReasonOf(CheckTarget(target)), reason) << CheckTarget(target);
  }
  QuantizeTarget mx = Int4();
  mx.spec.activation = mx.encoding.format = kFloat8E4M3;
  mx.spec.activation_scale = mx.encoding.scale = ActivationScaleKind::kDynamicGroup;
  mx.spec.activation_group = mx.encoding.group = 32;
  mx.encoding.group_scale = kFloat8E8M0;
  const auto layer = QuantizeLayer(Unquantized(kFloat16, {1, 4, 32}), mx);
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_TRUE(layer->encoding == mx.encoding);
  EXPECT_TRUE(Validate(*layer).ok()) << Validate(*layer);
}

// With NaN as the other code a float of 2 bits has no scale that could give anything but 0.
TEST(QuantizeLayerTest, RefusesTypesThatHoldNoNumberBut0) {
  const NumberFormat types[] = {FloatFormat(0, 1, SpecialValues::kNanOnly), FloatFormat(1, 0, SpecialValues::kNanOnly)};
  for (const NumberFormat& type : types) {
    for (const NumberFormat& scale : {kFloat16, kFloat8E8M0}) {
      QuantizeTarget weight = Int4();
      weight.spec.weight = type;
      weight.spec.scale = scale;
      const absl::Status status = CheckTarget(weight);
      EXPECT_EQ(ReasonOf(status), "BAD_SPEC") << status;
      EXPECT_THAT(std::string(status.message()), StartsWith("weight (float of 2 bits, "));
      EXPECT_THAT(std::string(status.message()), HasSubstr("has no finite number but 0"));
    }
    QuantizeTarget activation = Int4();
    activation.spec.activation = type;
    activation.spec.activation_scale = ActivationScaleKind::kDynamicToken;
    EXPECT_EQ(ReasonOf(CheckTarget(activation)), "BAD_SPEC");
    EXPECT_THAT(std::string(CheckTarget(activation).message()), HasSubstr("activation (float of 2 bits, "));
  }
}

TEST(QuantizeLayerTest, QuantizesToEveryFloatThatHoldsANumber) {
  for (int exponent_bits = 0; exponent_bits <= 7; ++exponent_bits) {
    for (int mantissa_bits = 0; exponent_bits + mantissa_bits <= 7; ++mantissa_bits) {
      for (const SpecialValues special : {SpecialValues::kNone, SpecialValues::kNanOnly, SpecialValues::kIeee}) {
        QuantizeTarget target = Int4();
        target.spec.weight = FloatFormat(exponent_bits, mantissa_bits, special);
        if (!CheckTarget(target).ok()) continue;
        QuantizationError error;
        const auto layer = QuantizeLayer(Unquantized(kFloat16, {1, 4, 32}), target, {}, &error);
        ASSERT_TRUE(layer.ok()) << layer.status();
        EXPECT_LT(error.relative(), 1) << exponent_bits << " " << mantissa_bits << " " << static_cast<int>(special);
      }
    }
  }
}

TEST(QuantizeLayerTest, NamesTheFirstWeightThatIsNotFiniteAndStopsWhenTold) {
  StandardTensor source = Unquantized(kFloat16, {1, 600, 1024});
  for (const int64_t at : {595 * 1024 + 7, 300 * 1024 + 900, 300 * 1024 + 5}) {
    const uint16_t infinity = 0xfc00;
    std::memcpy(source.codes.data() + 2 * at, &infinity, 2);
  }
  const auto layer = QuantizeLayer(source, Int4());
  EXPECT_EQ(ReasonOf(layer.status()), "NOT_FINITE");
  EXPECT_THAT(std::string(layer.status().message()), HasSubstr("row 300, column 5 is -inf"));
  QuantizeWork work;
  work.progress = [](int64_t, int64_t) { return false; };
  EXPECT_TRUE(absl::IsCancelled(QuantizeLayer(Unquantized(kFloat16, {1, 4, 32}), Int4(), work).status()));
}

// Rows of a million columns: a piece is a row.
TEST(QuantizeLayerTest, LooksForACancellationAfterEveryFewWeights) {
  constexpr int64_t kColumns = int64_t{1} << 20;
  std::atomic<int64_t> read{0};
  int64_t last = 0;
  int64_t most = 0;
  int looks = 0;
  QuantizeWork work;
  work.progress = [&](int64_t, int64_t) {
    most = std::max(most, read - last);
    last = read;
    return ++looks < 5;
  };
  const auto rows = [&read](int64_t, int64_t, absl::Span<float> out) {
    std::fill(out.begin(), out.end(), 1.0f);
    read += static_cast<int64_t>(out.size());
  };
  const auto cancelled = QuantizeRows(rows, {1, 40, kColumns}, Int4().spec, ScaleRule::kLargest, work);
  EXPECT_TRUE(absl::IsCancelled(cancelled.status()));
  EXPECT_EQ(looks, 5);
  EXPECT_LE(most, int64_t{1} << 24);
  EXPECT_LE(read, 4 * most) << "it stops where it is told to";
}

TEST(QuantizeLayerTest, TextTellsTargetsApart) {
  std::set<std::string> texts;
  std::vector<QuantizeTarget> targets(8, Int4());
  targets[1].spec.weight = kFloat4E2M1;
  targets[2].spec.scale_block_k = 64;
  targets[3].rule = ScaleRule::kOcp;
  targets[4].spec.zero_point = ZeroPointKind::kFloat;
  targets[5].spec.activation = kInt8;
  targets[6].encoding.zero_points = true;
  targets[7].spec.secondary_scale = SecondaryScaleKind::kTensor;
  for (const QuantizeTarget& target : targets) EXPECT_TRUE(texts.insert(target.Text()).second) << target.Text();
}

// What compressed-tensors made of the same numbers, read as weights; zeros get other scales there.
TEST(QuantizeLayerTest, GivesTheBytesOfCompressedTensors) {
  constexpr int64_t kColumns = 256;
  const std::string path = GEMMD_TEST_DATA "/activations/act_quant_compressed_tensors.safetensors";
  const auto file = SafetensorsFile::Open(std::filesystem::canonical(path), "golden");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto numbers = [&file](const std::string& name) {
    const TensorInfo& info = *(*file)->Find(name);
    const Buffer bytes = *(*file)->Read(info);
    std::vector<float> values;
    if (info.dtype == "I8") {
      for (const std::byte byte : bytes) values.push_back(static_cast<int8_t>(byte));
      return values;
    }
    values.resize(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  const std::vector<float> x = numbers("x");
  StandardTensor source;
  source.spec.weight = kFloat32;
  source.shape = {1, static_cast<int64_t>(x.size()) / kColumns, kColumns};
  source.codes = Buffer(x.size() * sizeof(float));
  std::memcpy(source.codes.data(), x.data(), source.codes.size());
  struct Scheme {
    const char* name;
    QuantSpec spec;
    ScaleRule rule;
  };
  for (const auto& [name, spec, rule] :
       {Scheme{"fp8_token", {.weight = kFloat8E4M3, .scale = kFloat32}, ScaleRule::kLargest},
        Scheme{"fp8_group128", {.weight = kFloat8E4M3, .scale = kFloat32, .scale_block_k = 128}, ScaleRule::kLargest},
        Scheme{"int8_token_sym", {.weight = IntegerFormat(8), .scale = kFloat32}, ScaleRule::kFullRange},
        Scheme{"mxfp4",
               {.weight = kFloat4E2M1, .scale = kFloat8E8M0, .scale_block_k = 32},
               ScaleRule::kNearestPower},
        Scheme{"mxfp8",
               {.weight = kFloat8E4M3, .scale = kFloat8E8M0, .scale_block_k = 32},
               ScaleRule::kNearestPower}}) {
    SCOPED_TRACE(name);
    const auto layer = QuantizeLayer(source, {.spec = spec, .rule = rule});
    ASSERT_TRUE(layer.ok()) << layer.status();
    const std::vector<float> elements = numbers(std::string(name) + ".f32.q_value");
    const std::vector<float> scales = numbers(std::string(name) + ".f32.scale");
    const int64_t group = spec.scale_block_k == 0 ? kColumns : spec.scale_block_k;
    const double middle = spec.weight.kind == NumberKind::kInteger ? 128 : 0;
    std::vector<uint8_t> codes(kColumns);
    int64_t compared = 0;
    for (int64_t row = 0; row < source.shape.n; ++row) {
      UnpackBitRow(layer->codes.data() + row * spec.RowWords(kColumns) * 4, spec.weight.bits, absl::MakeSpan(codes));
      for (int64_t k = 0; k < kColumns; ++k) {
        const auto at = static_cast<size_t>(row * kColumns + k);
        ASSERT_EQ(DecodeNumber(spec.weight, codes[static_cast<size_t>(k)]) - middle, elements[at])
            << "row " << row << ", column " << k;
        const auto block = static_cast<int64_t>(at) / group;
        const auto first = x.begin() + block * group;
        if (std::all_of(first, first + group, [](float value) { return value == 0; })) continue;
        uint32_t scale = 0;
        std::memcpy(&scale, layer->scales.data() + block * spec.scale.bits / 8, spec.scale.bits / 8u);
        ASSERT_EQ(DecodeNumber(spec.scale, scale), scales[static_cast<size_t>(block)]) << "block " << block;
        ++compared;
      }
    }
    EXPECT_GT(compared, 0);
  }
}

}  // namespace
}  // namespace gemmd

// The kernel that quantizes x, block by block on the CPU, against core/quant/activations.
#include "tests/kernels/device/host_quantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/quant/activations.h"
#include "kernels/contract/element_format.h"
#include "tests/kernels/quantize_inputs.h"
#include "tests/kernels/random_layer.h"

namespace gemmd::testing {
namespace {

constexpr ElementType kBf16 = ElementType::kBFloat16;
constexpr ElementType kF16 = ElementType::kFloat16;
constexpr ElementType kF32 = ElementType::kFloat32;
constexpr ElementType kE4M3 = ElementType::kFloat8E4M3;
constexpr ElementType kE5M2 = ElementType::kFloat8E5M2;
constexpr ElementType kI8 = ElementType::kInt8;
constexpr QuantizeMode kStatic = QuantizeMode::kStaticTensor;
constexpr QuantizeMode kToken = QuantizeMode::kDynamicToken;
constexpr QuantizeMode kGroup = QuantizeMode::kDynamicGroup;

// What must not be written.
constexpr std::byte kUntouched{0xab};

struct Case {
  int64_t m = 3;
  int64_t k = 300;
  int64_t group = 0;
  int64_t slice = 0;  // 0 = the row
  int64_t gap = 0;    // elements between rows of x
  int64_t shift = 0;  // elements from a multiple of 16 bytes
};

template <class Config>
class Quantizer {
 public:
  explicit Quantizer(const Case& c)
      : c_(c), groups_(c.group > 0 ? (c.k + c.group - 1) / c.group : 1) {
    codes_stride_ = (c.k + 15) / 16 * 16 + 16;
    codes_.assign(static_cast<size_t>(c.m * codes_stride_) + 16, kUntouched);
    scales_.assign(static_cast<size_t>(c.m * (groups_ + 1)), -5.0f);
    args_.codes =
        reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(codes_.data()) + 15) / 16 * 16);
    args_.scales = scales_.data();
    args_.static_scale = &static_scale_;
    args_.codes_row_stride = codes_stride_;
    args_.scales_row_stride = groups_ + 1;
    args_.m = c.m;
    args_.k = c.k;
    args_.group = c.group;
    args_.slice_columns = c.slice == 0 ? c.k : c.slice;
  }

  QuantizeArgs& args() { return args_; }
  void set_static_scale(float scale) { static_scale_ = scale; }

  void Run(const HostMatrix& x) {
    const int64_t bytes = ElementBytes(Config::kXType);
    std::vector<std::byte> memory(x.bytes.size() + 16 + static_cast<size_t>(c_.shift * bytes));
    const uintptr_t aligned = (reinterpret_cast<uintptr_t>(memory.data()) + 15) / 16 * 16;
    auto* const at = reinterpret_cast<std::byte*>(aligned) + c_.shift * bytes;
    std::copy(x.bytes.begin(), x.bytes.end(), at);
    args_.x = at;
    args_.x_row_stride = x.row_stride;
    HostQuantize<Config>::Run(args_);
  }

  float scale(int64_t row, int64_t group) const {
    return scales_[static_cast<size_t>(row * (groups_ + 1) + group)];
  }
  uint8_t code(int64_t row, int64_t column) const {
    return static_cast<const uint8_t*>(args_.codes)[row * codes_stride_ + column];
  }
  double element(int64_t row, int64_t column) const {
    if (Config::kCodeType == kI8) return static_cast<int8_t>(code(row, column));
    return DecodeNumber(FormatOf(Config::kCodeType), code(row, column));
  }

  // `h` is what the codes are made of.
  void ExpectRow(int64_t row, const std::vector<float>& h) const {
    ActivationScaling scaling;
    scaling.element = FormatOf(Config::kCodeType);
    scaling.group = Config::kMode == kGroup ? c_.group : 0;
    scaling.static_scale = Config::kMode == kStatic ? static_scale_ : 0;
    const QuantizedRow expected = QuantizeActivations(h, scaling);
    for (int64_t g = 0; g < groups_; ++g) {
      const float want = Config::kMode == kStatic ? -5.0f : expected.scales[static_cast<size_t>(g)];
      ASSERT_TRUE(Same(scale(row, g), want))
          << "row " << row << ", group " << g << ": " << scale(row, g) << ", expected " << want;
    }
    ASSERT_EQ(scale(row, groups_), -5.0f) << "written between scales";
    for (int64_t k = 0; k < c_.k; ++k) {
      double want = expected.elements[static_cast<size_t>(k)];
      if (Config::kCodeType == kI8 && std::isnan(want)) want = 0;
      const double got = element(row, k);
      ASSERT_TRUE(Same(got, want)) << "row " << row << ", column " << k << ": " << got
                                   << ", expected " << want << " of " << h[static_cast<size_t>(k)];
      // -0 is a code of its own; the reference's integers have none.
      if (Config::kCodeType != kI8 && !std::isnan(want)) {
        ASSERT_EQ(std::signbit(got), std::signbit(want)) << row << ", " << k;
      }
    }
    for (int64_t k = c_.k; k < codes_stride_; ++k) {
      ASSERT_EQ(code(row, k), std::to_integer<uint8_t>(kUntouched)) << "written past the row";
    }
  }

 private:
  template <typename T>
  static bool Same(T a, T b) {
    return a == b || (std::isnan(a) && std::isnan(b));
  }

  const Case c_;
  const int64_t groups_;
  int64_t codes_stride_;
  float static_scale_ = 0.013f;
  std::vector<std::byte> codes_;
  std::vector<float> scales_;
  QuantizeArgs args_{};
};

std::vector<float> FloatRow(const HostMatrix& x, int64_t row) {
  std::vector<float> values;
  for (int64_t k = 0; k < x.columns; ++k) values.push_back(static_cast<float>(x.at(row, k)));
  return values;
}

template <class Config>
void ExpectReference(const std::vector<Case>& cases) {
  Random random(17);
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::Message() << "m " << c.m << ", k " << c.k << ", group " << c.group
                                      << ", gap " << c.gap << ", shift " << c.shift);
    const HostMatrix x = RowsOfEveryKind(FormatOf(Config::kXType), c.m, c.k, c.gap, random);
    Quantizer<Config> quantizer(c);
    quantizer.Run(x);
    for (int64_t row = 0; row < c.m; ++row) {
      ASSERT_NO_FATAL_FAILURE(quantizer.ExpectRow(row, FloatRow(x, row)));
    }
  }
}

const std::vector<Case> kRows = {{.m = 7, .k = 1},
                                 {.m = 7, .k = 8},
                                 {.m = 7, .k = 301, .gap = 3},
                                 {.m = 7, .k = 512, .shift = 1},
                                 {.m = 7, .k = 2048},
                                 {.m = 6, .k = 5003, .gap = 5, .shift = 3}};

TEST(HostQuantizeTest, TokensAreTheReference) {
  ExpectReference<HostQuantizeConfig<kBf16, kE4M3, kToken>>(kRows);
  ExpectReference<HostQuantizeConfig<kF16, kE4M3, kToken>>(kRows);
  ExpectReference<HostQuantizeConfig<kF32, kE4M3, kToken>>(kRows);
  ExpectReference<HostQuantizeConfig<kBf16, kE5M2, kToken>>(kRows);
  ExpectReference<HostQuantizeConfig<kF16, kE5M2, kToken>>(kRows);
  ExpectReference<HostQuantizeConfig<kF32, kE5M2, kToken>>(kRows);
  ExpectReference<HostQuantizeConfig<kBf16, kI8, kToken>>(kRows);
  ExpectReference<HostQuantizeConfig<kF16, kI8, kToken>>(kRows);
  ExpectReference<HostQuantizeConfig<kF32, kI8, kToken>>(kRows);
}

TEST(HostQuantizeTest, StaticScalesAreTheReferenceAndNoneIsWritten) {
  ExpectReference<HostQuantizeConfig<kBf16, kE4M3, kStatic>>(kRows);
  ExpectReference<HostQuantizeConfig<kF16, kE5M2, kStatic>>(kRows);
  ExpectReference<HostQuantizeConfig<kF32, kI8, kStatic>>(kRows);
}

TEST(HostQuantizeTest, GroupsAreTheReference) {
  const std::vector<Case> cases = {
      {.m = 7, .k = 128, .group = 128},
      {.m = 7, .k = 300, .group = 128, .gap = 1},
      {.m = 7, .k = 1000, .group = 384, .slice = 384, .shift = 1},
      {.m = 6, .k = 3001, .group = 256, .slice = 512},
      {.m = 6, .k = 5000, .group = 4096}};  // more than the registers hold
  ExpectReference<HostQuantizeConfig<kBf16, kE4M3, kGroup>>(cases);
  ExpectReference<HostQuantizeConfig<kF16, kI8, kGroup>>(cases);
  ExpectReference<HostQuantizeConfig<kF32, kE5M2, kGroup>>(cases);
  const std::vector<Case> narrow = {{.m = 7, .k = 75, .group = 16},
                                    {.m = 7, .k = 600, .group = 48, .slice = 96}};
  ExpectReference<HostQuantizeConfig<kBf16, kE4M3, kGroup, 16>>(narrow);
  ExpectReference<HostQuantizeConfig<kF32, kE4M3, kGroup, 16>>(narrow);
  ExpectReference<HostQuantizeConfig<kF16, kE4M3, kGroup, 8>>(narrow);
}

TEST(HostQuantizeTest, ANanStaysInItsGroup) {
  using Config = HostQuantizeConfig<kBf16, kE4M3, kGroup>;
  Random random(3);
  const Case c{.m = 1, .k = 384, .group = 128};
  HostMatrix x = RandomMatrix(kBFloat16, 1, c.k, random);
  x.set(0, 200, std::nan(""));
  Quantizer<Config> quantizer(c);
  quantizer.Run(x);
  EXPECT_TRUE(std::isfinite(quantizer.scale(0, 0)));
  EXPECT_TRUE(std::isnan(quantizer.scale(0, 1)));
  EXPECT_TRUE(std::isfinite(quantizer.scale(0, 2)));
}

// Every pair of a largest value and a smaller one that bfloat16 has, up to powers of two: 128 largest
// values, each with every value down to what rounds to 0.
TEST(HostQuantizeTest, EveryPairOfBFloat16ValuesRoundsAsTheReference) {
  using Config = HostQuantizeConfig<kBf16, kE4M3, kToken>;
  const int64_t values = 128 * 20;
  const Case c{.m = 128, .k = values + 1};
  HostMatrix x = PoisonedMatrix(kBFloat16, c.m, c.k);
  for (int64_t row = 0; row < c.m; ++row) {
    const double largest = 1.0 + static_cast<double>(row) / 128;
    x.set(row, values, largest);
    for (int64_t k = 0; k < values; ++k) {
      const double value =
          std::ldexp(1.0 + static_cast<double>(k % 128) / 128, -static_cast<int>(k / 128));
      x.set(row, k, value <= largest ? value : value / 2);
    }
  }
  Quantizer<Config> quantizer(c);
  quantizer.Run(x);
  for (int64_t row = 0; row < c.m; ++row) {
    ASSERT_NO_FATAL_FAILURE(quantizer.ExpectRow(row, FloatRow(x, row)));
  }
}

// ---- input scales ----

template <ElementType kX, ElementType kCode, QuantizeMode kMode>
void ExpectScaled(const std::vector<Case>& cases) {
  Random random(19);
  for (const Case& c : cases) {
    std::vector<float> factors;
    for (int64_t k = 0; k < c.k; ++k) factors.push_back(static_cast<float>(Uniform(random, -3, 3)));
    const HostMatrix x = RowsOfEveryKind(FormatOf(kX), c.m, c.k, c.gap, random);
    Quantizer<HostQuantizeConfig<kX, kCode, kMode, 128, InputActivation::kNone, 0, 64, true>> quantizer(c);
    quantizer.args().input_scale = factors.data();
    quantizer.Run(x);
    for (int64_t row = 0; row < c.m; ++row) {
      std::vector<float> h = FloatRow(x, row);
      for (size_t k = 0; k < h.size(); ++k) h[k] *= factors[k];
      ASSERT_NO_FATAL_FAILURE(quantizer.ExpectRow(row, h)) << "k " << c.k;
    }
  }
}

TEST(HostQuantizeTest, ProductsWithTheFactorsOfTheColumnsAreWhatIsQuantized) {
  ExpectScaled<kBf16, kE4M3, kStatic>(kRows);
  ExpectScaled<kF16, kI8, kToken>(kRows);
  ExpectScaled<kF32, kE5M2, kToken>(kRows);
  ExpectScaled<kBf16, kE4M3, kGroup>({{.m = 7, .k = 1000, .group = 384, .slice = 384, .shift = 1}});
}

// ---- activation functions ----

template <InputActivation kInput, ElementType kX>
using ActivatedConfig = HostQuantizeConfig<kX, kE4M3, kToken, 128, kInput>;

float ActivateReference(InputActivation input, const QuantizeArgs& args, float gate, float up) {
  if (input == InputActivation::kReluSquared) return device::GateActivation::ReluSquared(gate);
  const MoeActivation function = input == InputActivation::kSwigluClamped
                                     ? MoeActivation::kSwigluClamped
                                     : MoeActivation::kSiluAndMul;
  return device::GateActivation{function, args.has_limit != 0, args.alpha, args.limit}.Gated(gate,
                                                                                             up);
}

template <InputActivation kInput, ElementType kX>
void ExpectActivated(int64_t k, bool interleaved, int64_t gap) {
  Random random(5);
  const bool gated = kInput != InputActivation::kReluSquared;
  const Case c{.m = 3, .k = k, .gap = gap};
  const int64_t columns = gated ? 2 * k : k;
  const HostMatrix x = RandomMatrix(FormatOf(kX), c.m, columns, random, false, columns + gap);
  Quantizer<ActivatedConfig<kInput, kX>> quantizer(c);
  quantizer.args().interleaved = interleaved;
  quantizer.args().has_limit = kInput == InputActivation::kSwigluClamped;
  quantizer.args().alpha = 1.702f;
  quantizer.args().limit = 1.25f;
  quantizer.Run(x);
  for (int64_t row = 0; row < c.m; ++row) {
    std::vector<float> h;
    for (int64_t i = 0; i < k; ++i) {
      const auto gate = static_cast<float>(x.at(row, gated && interleaved ? 2 * i : i));
      const auto up = gated ? static_cast<float>(x.at(row, interleaved ? 2 * i + 1 : k + i)) : 0.0f;
      h.push_back(ActivateReference(kInput, quantizer.args(), gate, up));
    }
    ASSERT_NO_FATAL_FAILURE(quantizer.ExpectRow(row, h)) << "k " << k;
  }
}

TEST(HostQuantizeTest, ActivatesGateAndUpBeforeQuantizing) {
  for (const int64_t k : {1, 5, 64, 333, 700}) {
    for (const int64_t gap : {0, 3}) {
      for (const bool interleaved : {false, true}) {
        ExpectActivated<InputActivation::kSiluAndMul, kBf16>(k, interleaved, gap);
        ExpectActivated<InputActivation::kSwigluClamped, kF16>(k, interleaved, gap);
        ExpectActivated<InputActivation::kSiluAndMul, kF32>(k, interleaved, gap);
      }
      ExpectActivated<InputActivation::kReluSquared, kBf16>(k, false, gap);
    }
  }
}

// ---- Hadamard transform ----

std::vector<double> HadamardReference(const std::vector<float>& x, int64_t block) {
  std::vector<double> h(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t first = i / static_cast<size_t>(block) * static_cast<size_t>(block);
    for (size_t j = 0; j < static_cast<size_t>(block); ++j) {
      const bool negative = std::popcount((i - first) & j) % 2 != 0;
      h[i] += negative ? -x[first + j] : x[first + j];
    }
    h[i] /= std::sqrt(static_cast<double>(block));
  }
  return h;
}

// Dequantized codes lie within half a step of the exact transform: 2^-4 of the value or 2^-10 of the
// scale, and float32's own errors.
template <int kBlock, ElementType kX, ElementType kCode = kE4M3>
void ExpectTransformed(int64_t k) {
  using Config = HostQuantizeConfig<kX, kCode, kToken, 128, InputActivation::kNone, kBlock, 256>;
  Random random(9);
  const Case c{.m = 2, .k = k};
  const HostMatrix x = RandomMatrix(FormatOf(kX), c.m, k, random);
  Quantizer<Config> quantizer(c);
  quantizer.Run(x);
  for (int64_t row = 0; row < c.m; ++row) {
    const std::vector<double> h = HadamardReference(FloatRow(x, row), kBlock);
    const double scale = quantizer.scale(row, 0);
    for (int64_t i = 0; i < k; ++i) {
      const double want = h[static_cast<size_t>(i)];
      const double bound =
          kCode == kI8 ? scale * 0.5001 : std::max(std::abs(want) * 0.0626, scale * 0x1p-9);
      ASSERT_NEAR(quantizer.element(row, i) * scale, want, bound)
          << "block " << kBlock << ", " << i;
    }
  }
}

TEST(HostQuantizeTest, TransformsBlocksOfEveryPowerOfTwo) {
  ExpectTransformed<2, kBf16>(302);
  ExpectTransformed<4, kBf16>(300);
  ExpectTransformed<8, kBf16>(304);
  ExpectTransformed<16, kF16>(2064);
  ExpectTransformed<32, kF32>(320);
  ExpectTransformed<64, kF16, kI8>(320);
  ExpectTransformed<128, kBf16, kI8>(1280);
  ExpectTransformed<256, kBf16>(2560);
  ExpectTransformed<512, kBf16, kI8>(1024);
  ExpectTransformed<1024, kBf16>(3072);
  ExpectTransformed<1024, kF32, kI8>(2048);
}

TEST(HostQuantizeTest, TransformOfIntegersIsExact) {
  // 64 columns: the factor is 1/8, sums of small integers are exact.
  using Config = HostQuantizeConfig<kBf16, kI8, kToken, 128, InputActivation::kNone, 64, 64>;
  Random random(11);
  const Case c{.m = 4, .k = 256};
  const HostMatrix x = RandomMatrix(kBFloat16, c.m, c.k, random, true);
  Quantizer<Config> quantizer(c);
  quantizer.Run(x);
  for (int64_t row = 0; row < c.m; ++row) {
    std::vector<float> h;
    for (const double value : HadamardReference(FloatRow(x, row), 64)) {
      h.push_back(static_cast<float>(value));
    }
    ASSERT_NO_FATAL_FAILURE(quantizer.ExpectRow(row, h));
  }
}

}  // namespace
}  // namespace gemmd::testing

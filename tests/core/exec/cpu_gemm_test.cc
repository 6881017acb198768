// The CPU device against a naive loop in double that shares nothing with it but DequantizeRow.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "core/exec/cpu_device.h"
#include "core/exec/cpu_numbers.h"
#include "kernels/base/status.h"
#include "tests/support/tensors.h"

namespace gemmd {
namespace {

using testing::HostMatrix;
using testing::Int4Spec;
using testing::Random;
using testing::RandomTensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class CpuGemm {
 public:
  StopFunction stop;

  explicit CpuGemm(const StandardTensor& tensor, int threads = 2)
      : tensor_(tensor), device_(CreateCpuDevice({threads})) {
    layer_ = device_->LoadLayer(tensor).value();
    stream_ = device_->CreateStream().value();
  }

  absl::StatusOr<CallReport> Run(HostMatrix& x, HostMatrix& y, HostMatrix* x_scale = nullptr,
                                 bool batch_invariant = false) {
    GemmCall call;
    call.layer = layer_;
    call.x = x.view();
    call.y = y.view();
    if (x_scale != nullptr) call.x_scale = x_scale->view();
    call.batch_invariant = batch_invariant;
    call.stop = stop;
    return device_->RunGemm(*stream_, call);
  }

  // y[m, n] and how far any order of summation in double may be from it.
  struct Expected {
    double value = 0;
    double slack = 0;
  };
  Expected At(HostMatrix& x, int64_t m, int64_t n, HostMatrix* x_scale = nullptr,
              double fixed_scale = 1) {
    const int64_t k = tensor_.shape.k;
    std::vector<double> w(static_cast<size_t>(k));
    DequantizeRow(tensor_, 0, n, absl::MakeSpan(w));
    double sum = 0;
    double magnitude = std::abs(Bias(tensor_, 0, n));
    for (int64_t i = 0; i < k; ++i) {
      const int64_t group = tensor_.spec.activation_group;
      const double scale = x_scale == nullptr
                               ? fixed_scale
                               : x_scale->Get(m, x_scale->columns() == 1 ? 0 : i / group);
      const double product = x.Get(m, i) * scale * w[static_cast<size_t>(i)];
      sum += product;
      magnitude += std::abs(product);
    }
    return {sum + Bias(tensor_, 0, n), magnitude * static_cast<double>(k + 2) * 0x1p-52};
  }

  const StandardTensor& tensor() const { return tensor_; }

 private:
  const StandardTensor tensor_;
  const std::unique_ptr<Device> device_;
  std::shared_ptr<DeviceLayer> layer_;
  std::unique_ptr<Stream> stream_;
};

void ExpectRounded(const NumberFormat& type, const CpuGemm::Expected& expected, double got,
                   const std::string& where) {
  EXPECT_GE(got, RoundTo(type, expected.value - expected.slack)) << where;
  EXPECT_LE(got, RoundTo(type, expected.value + expected.slack)) << where;
}

void ExpectAll(CpuGemm& gemm, HostMatrix& x, HostMatrix& y, const NumberFormat& type,
               HostMatrix* x_scale = nullptr, double fixed_scale = 1) {
  for (int64_t m = 0; m < y.rows(); ++m) {
    for (int64_t n = 0; n < y.columns(); ++n) {
      ExpectRounded(type, gemm.At(x, m, n, x_scale, fixed_scale), y.Get(m, n),
                    "row " + std::to_string(m) + " column " + std::to_string(n));
    }
  }
}

struct Format {
  std::string name;
  QuantSpec spec;
};

QuantSpec Spec(const NumberFormat& weight, const NumberFormat& scale, int64_t block_n,
               int64_t block_k) {
  QuantSpec spec;
  spec.weight = weight;
  spec.scale = scale;
  spec.scale_block_n = block_n;
  spec.scale_block_k = block_k;
  return spec;
}

std::vector<Format> Formats() {
  std::vector<Format> formats;
  for (int bits = 1; bits <= 8; ++bits) {
    formats.push_back(
        {"int" + std::to_string(bits) + "_group", Spec(IntegerFormat(bits), kFloat16, 1, 32)});
  }
  Format zero_point{"int4_zero_point", Int4Spec()};
  zero_point.spec.zero_point = ZeroPointKind::kInteger;
  Format float_zero{"int4_float_zero_bias", Int4Spec()};
  float_zero.spec.zero_point = ZeroPointKind::kFloat;
  float_zero.spec.bias = kFloat16;
  Format act_order{"int4_group_index", Int4Spec()};
  act_order.spec.has_group_index = true;
  Format nvfp4{"e2m1_nvfp4", Spec(kFloat4E2M1, kFloat8E4M3, 1, 16)};
  nvfp4.spec.secondary_scale = SecondaryScaleKind::kTensor;
  Format channel{"int8_channel_secondary", Spec(IntegerFormat(8), kFloat32, 1, 0)};
  channel.spec.secondary_scale = SecondaryScaleKind::kChannel;
  formats.insert(formats.end(), {zero_point, float_zero, act_order, nvfp4, channel});
  formats.push_back({"e2m1_mxfp4", Spec(kFloat4E2M1, kFloat8E8M0, 1, 32)});
  formats.push_back({"e4m3_block", Spec(kFloat8E4M3, kFloat32, 16, 64)});
  formats.push_back({"e4m3_tensor", Spec(kFloat8E4M3, kFloat32, 0, 0)});
  formats.push_back({"e3m2_bf16", Spec(FloatFormat(3, 2), kBFloat16, 1, 64)});
  formats.push_back({"e0m3_sign_magnitude", Spec(FloatFormat(0, 3), kFloat16, 1, 32)});
  formats.push_back({"float16_plain", Spec(kFloat16, kNoFormat, 1, 0)});
  return formats;
}

class CpuGemmFormatTest : public ::testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(Formats, CpuGemmFormatTest, ::testing::ValuesIn(Formats()),
                         [](const auto& info) { return info.param.name; });

TEST_P(CpuGemmFormatTest, EqualsTheNaiveLoopWithRaggedShapesAndStrides) {
  CpuGemm gemm(RandomTensor(GetParam().spec, {1, 37, 150}, 11));
  for (const NumberFormat& type : {kFloat16, kBFloat16, kFloat32}) {
    for (const int64_t m : {1, 5, 33}) {
      Random random(static_cast<uint64_t>(m));
      HostMatrix x(type, m, 150, /*padding=*/3);
      HostMatrix y(type, m, 37, /*padding=*/5);
      x.FillRandom(random);
      const auto report = gemm.Run(x, y);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_EQ(report->activation_used, type);
      ExpectAll(gemm, x, y, type);
    }
  }
}

TEST(CpuGemmTest, TakesEightBitActivationsWithTokenScales) {
  CpuGemm gemm(RandomTensor(Int4Spec(), {1, 19, 96}, 3));
  for (const NumberFormat& type : {kFloat8E4M3, kFloat8E5M2, kInt8}) {
    Random random(5);
    HostMatrix x(type, 7, 96);
    HostMatrix scale(kFloat32, 7, 1);
    HostMatrix y(kBFloat16, 7, 19);
    x.FillIntegers(random);
    scale.Fill([](int64_t row, int64_t) { return 0.1 * static_cast<double>(row + 1); });
    ASSERT_TRUE(gemm.Run(x, y, &scale).ok());
    ExpectAll(gemm, x, y, kBFloat16, &scale);
  }
}

TEST(CpuGemmTest, TakesGroupScalesOfActivationsWithAShortLastGroup) {
  QuantSpec spec = Int4Spec();
  spec.activation = kFloat8E4M3;
  spec.activation_scale = ActivationScaleKind::kDynamicGroup;
  spec.activation_group = 64;
  CpuGemm gemm(RandomTensor(spec, {1, 9, 160}, 4));
  Random random(6);
  HostMatrix x(kFloat8E4M3, 4, 160);
  HostMatrix scale(kFloat32, 4, 3);
  HostMatrix y(kFloat32, 4, 9);
  x.FillIntegers(random);
  scale.Fill(
      [](int64_t row, int64_t column) { return std::ldexp(1.5, static_cast<int>(row - column)); });
  ASSERT_TRUE(gemm.Run(x, y, &scale).ok());
  ExpectAll(gemm, x, y, kFloat32, &scale);
}

TEST(CpuGemmTest, UsesTheStaticScaleOfTheLayerWhenTheRequestBringsNone) {
  QuantSpec spec = Int4Spec();
  spec.activation = kFloat8E4M3;
  spec.activation_scale = ActivationScaleKind::kStaticTensor;
  CpuGemm gemm(RandomTensor(spec, {1, 8, 64}, 4));
  Random random(6);
  HostMatrix x(kFloat8E4M3, 3, 64);
  HostMatrix y(kFloat32, 3, 8);
  x.FillIntegers(random);
  ASSERT_TRUE(gemm.Run(x, y).ok());
  ExpectAll(gemm, x, y, kFloat32, nullptr, /*fixed_scale=*/0.25);
}

TEST(CpuGemmTest, SaysWhenTheLayerAskedForOtherActivations) {
  QuantSpec spec = Int4Spec();
  spec.activation = kFloat8E4M3;
  CpuGemm gemm(RandomTensor(spec, {1, 8, 64}, 4));
  Random random(1);
  HostMatrix x(kFloat16, 2, 64);
  HostMatrix y(kFloat16, 2, 8);
  x.FillRandom(random);
  const auto report = gemm.Run(x, y);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->activation_used, kFloat16);
  EXPECT_NE(report->reason.find("e4m3"), std::string::npos) << report->reason;
  EXPECT_NE(report->reason.find("how they are scaled"), std::string::npos) << report->reason;
  ExpectAll(gemm, x, y, kFloat16);
}

TEST(CpuGemmTest, IntegersComeOutBitExact) {
  for (const int64_t m : {8, 24, 40, 56, 72}) {
    CpuGemm gemm(RandomTensor(Int4Spec(), {1, 33, 320}, 21));
    Random random(static_cast<uint64_t>(m));
    HostMatrix x(kFloat16, m, 320);
    HostMatrix y(kFloat32, m, 33);
    x.FillIntegers(random);
    ASSERT_TRUE(gemm.Run(x, y).ok());
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t n = 0; n < 33; ++n) ASSERT_EQ(y.Get(row, n), gemm.At(x, row, n).value);
    }
  }
}

// 256 columns: the products of 8192 rows are all that is held at a time.
TEST(CpuGemmTest, ManyRowsComeInBlocksAndStopBetweenThem) {
  constexpr int64_t kRows = 20000;
  CpuGemm gemm(RandomTensor(Int4Spec(), {1, 256, 32}, 7), 1);
  HostMatrix x(kFloat16, kRows, 32);
  x.Fill([](int64_t m, int64_t k) { return static_cast<double>((m + k) % 17 - 8); });
  HostMatrix y(kFloat16, kRows, 256);
  int asked = 0;
  gemm.stop = [&] {
    ++asked;
    return absl::OkStatus();
  };
  ASSERT_TRUE(gemm.Run(x, y).ok());
  EXPECT_GE(asked, 3) << "at least once per block of rows";
  for (const int64_t m : {int64_t{0}, int64_t{8191}, int64_t{8192}, kRows - 1}) {
    for (const int64_t n : {0, 128, 255}) {
      ExpectRounded(kFloat16, gemm.At(x, m, n), y.Get(m, n), "row " + std::to_string(m));
    }
  }
  const int all = asked;
  for (int last = 1; last <= all; ++last) {
    HostMatrix part(kFloat16, kRows, 256);
    asked = 0;
    gemm.stop = [&]() -> absl::Status {
      if (++asked < last) return absl::OkStatus();
      return absl::DeadlineExceededError("enough");
    };
    EXPECT_EQ(gemm.Run(x, part).status(), absl::DeadlineExceededError("enough")) << last;
    EXPECT_EQ(asked, last) << "not asked again";
    EXPECT_EQ(part.Code(kRows - 1, 255), 0xa5a5u) << "the last block was not computed";
  }
}

TEST(CpuGemmTest, RefusesLayersWhoseRowsWouldNotFitInMemory) {
  const auto device = CreateCpuDevice({1});
  QuantSpec spec;
  spec.weight = IntegerFormat(1);
  StandardTensor tensor;
  tensor.spec = spec;
  tensor.shape = {1, 1, (int64_t{1} << 22) + 1};
  tensor.codes.resize(static_cast<size_t>(spec.RowWords(tensor.shape.k)) * 4);
  const absl::Status status = device->LoadLayer(tensor).status();
  EXPECT_EQ(ReasonOf(status), "NO_KERNEL") << status;
}

TEST(CpuGemmTest, NoRowsIsLegalAndWritesNothing) {
  CpuGemm gemm(RandomTensor(Int4Spec(), {1, 8, 64}, 1));
  HostMatrix x(kFloat16, 0, 64);
  HostMatrix y(kFloat16, 0, 8);
  const std::vector<std::byte> before = y.bytes();
  EXPECT_TRUE(gemm.Run(x, y).ok());
  EXPECT_EQ(y.bytes(), before);
}

TEST(CpuGemmTest, NanAndInfinityStayInTheirRow) {
  CpuGemm gemm(RandomTensor(Int4Spec(), {1, 40, 128}, 2));
  for (const bool invariant : {false, true}) {
    Random random(9);
    HostMatrix clean(kBFloat16, 20, 128);
    clean.FillRandom(random);
    HostMatrix dirty = clean;
    dirty.SetCode(3, 17, 0x7fc0);  // NaN
    dirty.Set(11, 5, kInfinity);
    dirty.Set(19, 127, 6e4);
    HostMatrix expected(kBFloat16, 20, 40);
    HostMatrix got(kBFloat16, 20, 40);
    ASSERT_TRUE(gemm.Run(clean, expected, nullptr, invariant).ok());
    // Poisoned output: whatever was there must not come through.
    got.Fill([](int64_t, int64_t) { return kInfinity; });
    ASSERT_TRUE(gemm.Run(dirty, got, nullptr, invariant).ok());
    for (int64_t m = 0; m < 20; ++m) {
      if (m == 3 || m == 11 || m == 19) continue;
      for (int64_t n = 0; n < 40; ++n) EXPECT_EQ(got.Code(m, n), expected.Code(m, n));
    }
    for (int64_t n = 0; n < 40; ++n) {
      EXPECT_TRUE(std::isnan(got.Get(3, n)));
      EXPECT_FALSE(std::isfinite(got.Get(11, n)));
    }
  }
}

TEST(CpuGemmTest, ANanScaleBlockSpoilsItsColumnsOnly) {
  StandardTensor tensor = RandomTensor(Spec(kFloat4E2M1, kFloat8E8M0, 1, 32), {1, 12, 64}, 7);
  tensor.scales[2 * 5] = std::byte{0xff};  // row 5, first group
  CpuGemm gemm(tensor);
  Random random(1);
  HostMatrix x(kFloat16, 3, 64);
  HostMatrix y(kFloat32, 3, 12);
  x.FillRandom(random);
  ASSERT_TRUE(gemm.Run(x, y).ok());
  for (int64_t m = 0; m < 3; ++m) {
    for (int64_t n = 0; n < 12; ++n) EXPECT_EQ(std::isnan(y.Get(m, n)), n == 5);
  }
}

// Rows of non-dyadic numbers, float32 out: differences in summation order would show.
class InvarianceTest : public ::testing::TestWithParam<bool> {
 protected:
  static void FillAwkward(HostMatrix& x) {
    x.Fill([](int64_t row, int64_t column) {
      return std::sin(static_cast<double>(row * 131 + column * 7 + 1)) / 3;
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Order, InvarianceTest, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "BatchInvariant" : "Default");
});

TEST_P(InvarianceTest, ARowsBitsDoNotDependOnTheNumberOfRowsOrThreads) {
  StandardTensor tensor = RandomTensor(Spec(kFloat16, kNoFormat, 1, 0), {1, 70, 1030}, 5);
  CpuGemm one(tensor, 1);
  CpuGemm three(tensor, 3);
  HostMatrix x(kFloat32, 65, 1030);
  FillAwkward(x);
  HostMatrix all(kFloat32, 65, 70);
  ASSERT_TRUE(one.Run(x, all, nullptr, GetParam()).ok());
  for (const int64_t m : {1, 2, 7, 16, 17, 33, 64}) {
    HostMatrix part(kFloat32, m, 1030);
    FillAwkward(part);
    HostMatrix y(kFloat32, m, 70);
    ASSERT_TRUE(three.Run(part, y, nullptr, GetParam()).ok());
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t n = 0; n < 70; ++n) {
        ASSERT_EQ(y.Code(row, n), all.Code(row, n)) << "M " << m << " row " << row;
      }
    }
  }
}

TEST_P(InvarianceTest, ARowsBitsDoNotDependOnItsPlace) {
  CpuGemm gemm(RandomTensor(Spec(kFloat16, kNoFormat, 1, 0), {1, 30, 515}, 5), 2);
  HostMatrix x(kFloat32, 37, 515);
  x.Fill([](int64_t, int64_t column) { return std::sin(static_cast<double>(column + 1)); });
  HostMatrix y(kFloat32, 37, 30);
  ASSERT_TRUE(gemm.Run(x, y, nullptr, GetParam()).ok());
  for (int64_t row = 1; row < 37; ++row) {
    for (int64_t n = 0; n < 30; ++n) ASSERT_EQ(y.Code(row, n), y.Code(0, n)) << row;
  }
}

TEST(CpuGemmTest, GivesTheSameBitsEveryTimeFromManyThreads) {
  CpuGemm gemm(RandomTensor(Int4Spec(), {1, 64, 256}, 8), 2);
  HostMatrix x(kFloat16, 9, 256);
  Random random(4);
  x.FillRandom(random);
  HostMatrix expected(kFloat16, 9, 64);
  ASSERT_TRUE(gemm.Run(x, expected).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        HostMatrix y(kFloat16, 9, 64);
        ASSERT_TRUE(gemm.Run(x, y).ok());
        for (int64_t n = 0; n < 64; ++n) ASSERT_EQ(y.Code(8, n), expected.Code(8, n));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gemmd

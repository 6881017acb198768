// Layers with an input scale on a GPU: the kernel that multiplies x bit by bit, then requests through the device against
// the double-precision product. `*Small*` is the part for compute-sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/gpu/quantize_fixture.h"
#include "tests/kernels/scaled_runner.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;

HostMatrix RandomFactors(int64_t k, Random& random) {
  HostMatrix factors = PoisonedMatrix(kFloat32, 1, k);
  for (int64_t i = 0; i < k; ++i) factors.set(0, i, Uniform(random, -4, 4));
  return factors;
}

std::vector<float> Products(const HostMatrix& x, const HostMatrix& factors, int64_t row) {
  std::vector<float> products;
  for (int64_t k = 0; k < x.columns; ++k) {
    products.push_back(static_cast<float>(x.at(row, k)) * static_cast<float>(factors.at(0, k)));
  }
  return products;
}

class ScaleKernelTest : public QuantizeKernelTest {
 protected:
  HostMatrix X(ElementType type, const QuantizeCase& c, int64_t k) {
    if (ElementBytes(type) > 1) return RowsOfEveryKind(FormatOf(type), c.m, k, c.gap, random_);
    return RandomMatrix(FormatOf(type), c.m, k, random_, false, k + c.gap);
  }

  void ExpectProducts(ElementType type, int64_t k, const std::vector<QuantizeCase>& cases) {
    const Loaded loaded = Load(ScaleProblemOf(k, type));
    ASSERT_NE(loaded.kernel.kernel, nullptr);
    const NumberFormat code = FormatOf(loaded.kernel.code_type);
    for (const QuantizeCase& c : cases) {
      const HostMatrix x = X(type, c, k);
      const HostMatrix factors = RandomFactors(k, random_);
      const Quantized got = Run(loaded.kernel, x, c, factors);
      for (const int64_t row : SampleIndices(c.m, c.sampled, random_)) {
        const std::vector<float> products = Products(x, factors, row);
        for (int64_t i = 0; i < k; ++i) {
          const float want = products[static_cast<size_t>(i)];
          const bool same = std::isnan(want) ? std::isnan(got.codes.at(row, i))
                                             : got.codes.bits_at(row, i) == EncodeNumber(code, want);
          ASSERT_TRUE(same) << loaded.kernel.name << ", k " << k << ", row " << row << ", column " << i
                            << ": " << got.codes.at(row, i) << ", expected " << want;
        }
      }
    }
  }

  void ExpectQuantizedProducts(QuantizeProblem problem, const std::vector<QuantizeCase>& cases) {
    problem.input_scale = true;
    const Loaded loaded = Load(problem);
    ASSERT_NE(loaded.kernel.kernel, nullptr);
    for (const QuantizeCase& c : cases) {
      const HostMatrix x = X(problem.x_type, c, problem.k);
      const HostMatrix factors = RandomFactors(problem.k, random_);
      const Quantized got = Run(loaded.kernel, x, c, factors);
      for (int64_t row = 0; row < c.m; ++row) {
        ASSERT_NO_FATAL_FAILURE(ExpectRow(loaded.kernel, Products(x, factors, row), got, row))
            << loaded.kernel.name << ", k " << problem.k;
      }
    }
  }
};

const std::vector<QuantizeCase> kLayouts = {
    {.m = 7}, {.m = 6, .gap = 1}, {.m = 6, .gap = 8, .shift = 1, .factor_shift = 1},
    {.m = 6, .gap = 5, .shift = 3}};

TEST_F(ScaleKernelTest, SmallProductsOfEveryTypeAreRoundedOnce) {
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16, ElementType::kFloat32,
                                 ElementType::kFloat8E4M3, ElementType::kFloat8E5M2, ElementType::kInt8}) {
    for (const int64_t k : {1, 8, 75, 300, 301, 2048, 5003}) ExpectProducts(type, k, kLayouts);
  }
}

TEST_F(ScaleKernelTest, ManyRowsAndColumnsAreRoundedOnce) {
  ExpectProducts(ElementType::kBFloat16, 8192, {{.m = 4096, .gap = 8, .sampled = 50}});
  ExpectProducts(ElementType::kFloat32, 131072, {{.m = 5}});
  ExpectProducts(ElementType::kFloat16, 136, {{.m = 131072, .sampled = 300}});
}

TEST_F(ScaleKernelTest, SmallQuantizedProductsAreTheReference) {
  for (const ElementType x_type : {ElementType::kBFloat16, ElementType::kFloat16, ElementType::kFloat32}) {
    for (const ElementType code_type : {ElementType::kFloat8E4M3, ElementType::kInt8}) {
      QuantizeProblem problem{.x_type = x_type, .code_type = code_type, .k = 301};
      ExpectQuantizedProducts(problem, kLayouts);
      problem.mode = QuantizeMode::kStaticTensor;
      ExpectQuantizedProducts(problem, kLayouts);
      problem.mode = QuantizeMode::kDynamicGroup;
      problem.k = 1000;
      problem.group = 128;
      ExpectQuantizedProducts(problem, kLayouts);
    }
  }
}

TEST_F(ScaleKernelTest, QuantizedProductsOfLongRowsAreTheReference) {
  for (const int64_t k : {8192, 32768, 40001}) {
    ExpectQuantizedProducts({.k = k}, kLayouts);
    ExpectQuantizedProducts({.mode = QuantizeMode::kStaticTensor, .k = k}, kLayouts);
  }
}

// ---- requests ----

class ScaledGemmTest : public GpuTest {
 protected:
  bool is_cpu() { return device().description().kind == DeviceKind::kCpu; }
  bool is_sm90() { return device().description().architecture == "sm_90a"; }

  // The CPU device does not round products; with x of 32 bits that is nothing beside the bounds.
  NumberFormat XType(int64_t index) {
    const NumberFormat types[] = {kBFloat16, kFloat16, kFloat32};
    return is_cpu() ? kFloat32 : types[index % 3];
  }

  void RunAll(const QuantSpec& spec, const LayerShape& shape, const std::string& kernel,
              int sum_bits = 19) {
    const StandardTensor tensor = WithInputScale(RandomTensor(spec, shape, random_), random_);
    const auto layer = runner().Load(tensor);
    ASSERT_NE(layer, nullptr);
    int64_t index = 0;
    for (const int64_t m : {0, 1, 3, 17, 64, 130, 300}) {
      for (const bool batch_invariant : {false, true}) {
        const GemmCase c = CaseAt(index, m, XType(index), batch_invariant,
                                  sum_bits);
        ++index;
        const GemmRun run = RunScaledCase(runner(), tensor, layer, c, random_);
        ASSERT_FALSE(HasFailure()) << run.report.kernel << ", M " << m << ", K " << shape.k << ", x of "
                                   << int{c.x_type.bits} << " bits";
        if (is_sm90() && !batch_invariant && !(c.x_type == kFloat32)) {
          EXPECT_THAT(run.report.kernel, HasSubstr(kernel));
        }
      }
    }
  }
};

// From 64 rows on kernels may round weight times scale to x's type: 2^-9 of each product with bfloat16 x.
constexpr int kRoundedWeights = 9;

TEST_F(ScaledGemmTest, SmallRequestsOnIntegersAndFloats) {
  RunAll(Spec(IntegerFormat(4), kFloat16, 1, 64), {1, 130, 320}, "gemm_sm90", kRoundedWeights);
  RunAll(Spec(IntegerFormat(4), kFloat32, 1, 128), {1, 200, 1000}, "gemm_sm90", kRoundedWeights);
  RunAll(Spec(IntegerFormat(8), kBFloat16, 1, 0), {1, 70, 301}, "gemm", kRoundedWeights);
  QuantSpec nvfp4 = Spec(kFloat4E2M1, kFloat8E4M3, 1, 16);
  nvfp4.secondary_scale = SecondaryScaleKind::kTensor;
  RunAll(nvfp4, {1, 96, 640}, "gemm_sm90", kRoundedWeights);
}

TEST_F(ScaledGemmTest, SmallRequestsThatAreQuantizedBehindTheProduct) {
  QuantSpec spec = Spec(IntegerFormat(4), kFloat32, 1, 64);
  spec.activation = kFloat8E4M3;
  spec.activation_scale = ActivationScaleKind::kStaticTensor;
  RunAll(spec, {1, 130, 320}, "gemm", 9);
  spec = Spec(kFloat8E4M3, kFloat32, 1, 0);
  spec.activation = kFloat8E4M3;
  spec.activation_scale = ActivationScaleKind::kDynamicToken;
  RunAll(spec, {1, 130, 301}, "gemm_sm90", 9);
}

TEST_F(ScaledGemmTest, SmallRequestsWithEightBitX) {
  const StandardTensor tensor =
      WithInputScale(RandomTensor(Spec(IntegerFormat(4), kFloat16, 1, 64), {1, 130, 320}, random_), random_);
  const auto layer = runner().Load(tensor);
  ASSERT_NE(layer, nullptr);
  for (const NumberFormat& type : {kInt8, kFloat8E4M3, kFloat8E5M2}) {
    for (const int64_t scales : {0, 1}) {
      RunScaledCase(runner(), tensor, layer,
                    {.m = 17, .x_type = type, .x_gap = 3, .shift = 1, .x_scale_columns = scales}, random_);
    }
  }
}

TEST_F(ScaledGemmTest, SmallRowsWithNanOrInfinityStayByThemselves) {
  StandardTensor tensor = RandomTensor(Spec(IntegerFormat(4), kFloat16, 1, 64), {1, 70, 320}, random_);
  tensor = WithInputScale(std::move(tensor), random_);
  GemmCall call;
  call.layer = runner().Load(tensor);
  ASSERT_NE(call.layer, nullptr);
  for (const int64_t m : {9, 130}) {
    HostMatrix x = RandomMatrix(kBFloat16, m, 320, random_);
    x.set(2, 160, std::nan(""));
    x.set(3, 319, -std::numeric_limits<double>::infinity());
    HostMatrix y = PoisonedMatrix(kFloat32, m, 70);
    const DeviceMatrix device_x = runner().Upload(x);
    const DeviceMatrix device_y = runner().Upload(y);
    call.x = device_x.view;
    call.y = device_y.view;
    const auto report = device().RunGemm(runner().stream(), call);
    ASSERT_TRUE(report.ok()) << report.status();
    runner().Download(device_y, y);
    for (int64_t n = 0; n < 70; ++n) {
      EXPECT_TRUE(std::isnan(y.at(2, n))) << n << ": " << y.at(2, n);
      EXPECT_FALSE(std::isfinite(y.at(3, n))) << n << ": " << y.at(3, n);
      for (int64_t row = 0; row < m; ++row) {
        if (row == 2 || row == 3) continue;
        ASSERT_TRUE(std::isfinite(y.at(row, n))) << row << ", " << n;
      }
    }
  }
}

TEST_F(ScaledGemmTest, LargeLayers) {
  const StandardTensor tensor = WithInputScale(
      RandomTensor(Spec(IntegerFormat(4), kBFloat16, 1, 128), {1, 4096, 8192}, random_), random_);
  const auto layer = runner().Load(tensor);
  ASSERT_NE(layer, nullptr);
  for (const int64_t m : {1, 16, 2048}) {
    RunScaledCase(runner(), tensor, layer,
                  {.m = m, .x_type = XType(0), .y_type = kBFloat16, .sampled = 40, .sum_bits = kRoundedWeights},
                  random_);
    ASSERT_FALSE(HasFailure()) << m;
  }
}

}  // namespace
}  // namespace gemmd::testing

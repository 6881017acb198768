// Quantization of x on a GPU: the kernel bit by bit against core/quant/activations, then requests through
// the device against the double-precision product. `*Small*` is the part for compute-sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "core/quant/activations.h"
#include "kernels/contract/element_format.h"
#include "tests/gpu/quantize_fixture.h"
#include "tests/kernels/device/host_quantize.h"
#include "tests/kernels/quantize_inputs.h"
#include "tests/kernels/quantized_runner.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;

constexpr ElementType kWideTypes[] = {ElementType::kBFloat16, ElementType::kFloat16,
                                      ElementType::kFloat32};
constexpr ElementType kCodeTypes[] = {ElementType::kFloat8E4M3, ElementType::kFloat8E5M2,
                                      ElementType::kInt8};

const std::vector<QuantizeCase> kStrides = {
    {.m = 7}, {.m = 6, .gap = 1}, {.m = 6, .gap = 8, .shift = 1}, {.m = 6, .gap = 5, .shift = 3}};

TEST_F(QuantizeKernelTest, SmallRowsOfEveryTypeAndModeAreTheReference) {
  int64_t size = 0;
  const int64_t sizes[] = {300, 1, 75, 128, 8, 1000, 301};
  for (const ElementType x_type : kWideTypes) {
    for (const ElementType code_type : kCodeTypes) {
      for (const QuantizeMode mode : {QuantizeMode::kStaticTensor, QuantizeMode::kDynamicToken}) {
        const int64_t k = sizes[size++ % 7];
        ExpectReference({.x_type = x_type, .code_type = code_type, .mode = mode, .k = k}, kStrides);
      }
      for (const auto& [k, group] : std::vector<std::pair<int64_t, int64_t>>{
               {300, 128}, {1000, 384}, {600, 256}, {75, 16}}) {
        ExpectReference({.x_type = x_type,
                         .code_type = code_type,
                         .mode = QuantizeMode::kDynamicGroup,
                         .k = k,
                         .group = group},
                        kStrides);
      }
    }
  }
}

TEST_F(QuantizeKernelTest, RowsOfEveryLengthAreTheReference) {
  for (const int64_t k :
       {2, 7, 63, 127, 512, 1025, 2048, 4096, 5003, 8192, 16384, 32768, 40001, 131072}) {
    ExpectReference({.k = k}, kStrides);
    ExpectReference({.x_type = ElementType::kFloat32, .code_type = ElementType::kInt8, .k = k},
                    kStrides);
    if (k < 512) continue;
    ExpectReference({.x_type = ElementType::kFloat16,
                     .mode = QuantizeMode::kDynamicGroup,
                     .k = k,
                     .group = 128},
                    kStrides);
  }
}

TEST_F(QuantizeKernelTest, GroupsBeyondTheRegistersAreTheReference) {
  ExpectReference({.mode = QuantizeMode::kDynamicGroup, .k = 131000, .group = 65536},
                  {{.m = 6}, {.m = 6, .gap = 3}});
  ExpectReference({.mode = QuantizeMode::kDynamicGroup, .k = 9000, .group = 8},
                  {{.m = 6}, {.m = 6, .gap = 3}});
}

TEST_F(QuantizeKernelTest, ManyRowsAreTheReference) {
  ExpectReference({.k = 136}, {{.m = 131072, .sampled = 300}});
  ExpectReference({.mode = QuantizeMode::kDynamicGroup, .k = 4096, .group = 128},
                  {{.m = 4096, .gap = 8, .sampled = 100}});
}

// Every pair of a largest bfloat16 and a smaller one, up to powers of two.
TEST_F(QuantizeKernelTest, EveryPairOfBFloat16ValuesRoundsAsTheReference) {
  constexpr int64_t kValues = 128 * 20;
  for (const ElementType code_type : kCodeTypes) {
    const Loaded loaded = Load({.code_type = code_type, .k = kValues + 1});
    ASSERT_NE(loaded.kernel.kernel, nullptr);
    HostMatrix x = PoisonedMatrix(kBFloat16, 128, kValues + 1);
    for (int64_t row = 0; row < x.rows; ++row) {
      const double largest = 1.0 + static_cast<double>(row) / 128;
      x.set(row, kValues, largest);
      for (int64_t k = 0; k < kValues; ++k) {
        const double value =
            std::ldexp(1.0 + static_cast<double>(k % 128) / 128, -static_cast<int>(k / 128));
        x.set(row, k, value <= largest ? value : value / 2);
      }
    }
    const Quantized got = Run(loaded.kernel, x, {});
    for (int64_t row = 0; row < x.rows; ++row) {
      ASSERT_NO_FATAL_FAILURE(ExpectRow(loaded.kernel, FloatRow(x, row), got, row)) << loaded.kernel.name;
    }
  }
}

// The transform has additions and one product only, so the CPU's run of the same parts gives every bit.
template <ElementType kX, ElementType kCode, int kBlock>
QuantizedRow HadamardOnTheCpu(const HostMatrix& x, int64_t row) {
  using Config = HostQuantizeConfig<kX, kCode, QuantizeMode::kDynamicToken, 128,
                                    InputActivation::kNone, kBlock, 256>;
  const int64_t k = x.columns;
  std::vector<std::byte> values(static_cast<size_t>(k * x.element_bytes()) + 16);
  auto* const aligned =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(values.data()) + 15) / 16 * 16);
  std::memcpy(aligned, x.bytes.data() + row * x.row_stride * x.element_bytes(),
              static_cast<size_t>(k * x.element_bytes()));
  std::vector<std::byte> codes(static_cast<size_t>(k) + 16);
  float scale = 0;
  QuantizeArgs args{};
  args.x = aligned;
  args.codes = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(codes.data()) + 15) / 16 * 16);
  args.scales = &scale;
  args.m = 1;
  args.k = args.slice_columns = k;
  HostQuantize<Config>::Run(args);
  QuantizedRow out;
  out.scales = {scale};
  for (int64_t i = 0; i < k; ++i) {
    const uint8_t code = static_cast<const uint8_t*>(args.codes)[i];
    out.elements.push_back(kCode == ElementType::kInt8
                               ? static_cast<int8_t>(code)
                               : static_cast<float>(DecodeNumber(FormatOf(kCode), code)));
  }
  return out;
}

class HadamardKernelTest : public QuantizeKernelTest {
 protected:
  template <ElementType kX, ElementType kCode, int kBlock>
  void ExpectSameAsTheCpu(int64_t k) {
    const Loaded loaded =
        Load({.x_type = kX, .code_type = kCode, .k = k, .hadamard_block = kBlock});
    ASSERT_NE(loaded.kernel.kernel, nullptr);
    const HostMatrix x = RandomMatrix(FormatOf(kX), 5, k, random_, false, k + 3);
    const Quantized got = Run(loaded.kernel, x, {});
    for (int64_t row = 0; row < x.rows; ++row) {
      const QuantizedRow expected = HadamardOnTheCpu<kX, kCode, kBlock>(x, row);
      ASSERT_EQ(got.scales.at(row, 0), expected.scales[0]) << loaded.kernel.name;
      for (int64_t i = 0; i < k; ++i) {
        ASSERT_EQ(got.codes.at(row, i), expected.elements[static_cast<size_t>(i)])
            << loaded.kernel.name << ", row " << row << ", column " << i;
      }
    }
  }
};

TEST_F(HadamardKernelTest, SmallBlocksOfEveryPowerOfTwoGiveTheBitsOfTheCpu) {
  constexpr ElementType kE4M3 = ElementType::kFloat8E4M3;
  ExpectSameAsTheCpu<ElementType::kBFloat16, kE4M3, 2>(302);
  ExpectSameAsTheCpu<ElementType::kBFloat16, kE4M3, 8>(304);
  ExpectSameAsTheCpu<ElementType::kFloat16, ElementType::kInt8, 16>(2064);
  ExpectSameAsTheCpu<ElementType::kFloat32, kE4M3, 32>(320);
  ExpectSameAsTheCpu<ElementType::kBFloat16, ElementType::kInt8, 128>(1280);
  ExpectSameAsTheCpu<ElementType::kFloat16, kE4M3, 256>(2560);
  ExpectSameAsTheCpu<ElementType::kBFloat16, ElementType::kInt8, 512>(1024);
  ExpectSameAsTheCpu<ElementType::kBFloat16, kE4M3, 1024>(9216);
  ExpectSameAsTheCpu<ElementType::kFloat32, ElementType::kInt8, 1024>(41984);
}

// expf of the GPU and of the CPU differ in the last bits, so codes may be off by a step where h lies next
// to a tie: 2^-4 of the value (e4m3), and some 2^-20 of it for h itself.
TEST_F(QuantizeKernelTest, SmallActivationFunctionsAreWithinAStep) {
  for (const InputActivation activation :
       {InputActivation::kSiluAndMul, InputActivation::kSwigluClamped,
        InputActivation::kReluSquared}) {
    for (const ElementType x_type : kWideTypes) {
      for (const int64_t k : {64, 333, 20000}) {
        const Loaded loaded = Load({.x_type = x_type, .k = k, .activation = activation});
        ASSERT_NE(loaded.kernel.kernel, nullptr);
        const bool gated = activation != InputActivation::kReluSquared;
        for (const bool interleaved : {false, true}) {
          const QuantizeCase c{.m = 3, .gap = 8, .interleaved = interleaved};
          const int64_t columns = gated ? 2 * k : k;
          const HostMatrix x =
              RandomMatrix(FormatOf(x_type), c.m, columns, random_, false, columns + c.gap);
          const Quantized got = Run(loaded.kernel, x, c);
          const QuantizeArgs args = Args(c);
          const device::GateActivation function{activation == InputActivation::kSwigluClamped
                                                    ? MoeActivation::kSwigluClamped
                                                    : MoeActivation::kSiluAndMul,
                                                true, args.alpha, args.limit};
          for (int64_t row = 0; row < c.m; ++row) {
            const double scale = got.scales.at(row, 0);
            for (int64_t i = 0; i < k; ++i) {
              const auto gate = static_cast<float>(x.at(row, gated && interleaved ? 2 * i : i));
              const auto up =
                  gated ? static_cast<float>(x.at(row, interleaved ? 2 * i + 1 : k + i)) : 0.0f;
              const double h =
                  gated ? function.Gated(gate, up) : device::GateActivation::ReluSquared(gate);
              const double bound = std::max(std::abs(h) * 0.0626, scale * 0x1.01p-10);
              ASSERT_NEAR(got.codes.at(row, i) * scale, h, bound)
                  << loaded.kernel.name << ", interleaved " << interleaved << ", row " << row
                  << ", column " << i;
            }
          }
        }
      }
    }
  }
}

// ---- requests ----

QuantSpec Asking(QuantSpec spec, const NumberFormat& activation, ActivationScaleKind kind,
                 int64_t group = 0) {
  spec.activation = activation;
  spec.activation_scale = kind;
  spec.activation_group = group;
  return spec;
}

// Layers whose 8-bit kernels need SM90; the CPU device quantizes everywhere.
class QuantizedGemmTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || is_cpu()) return;
    if (device().description().architecture != "sm_90a") GTEST_SKIP() << "needs SM90";
  }
  bool is_cpu() { return device().description().kind == DeviceKind::kCpu; }

  void RunAll(const QuantSpec& spec, const LayerShape& shape, const std::vector<int64_t>& sizes) {
    const StandardTensor tensor = RandomTensor(spec, shape, random_);
    const auto layer = runner().Load(tensor);
    ASSERT_NE(layer, nullptr);
    const NumberFormat x_types[] = {kBFloat16, kFloat16, kFloat32};
    int64_t index = 0;
    for (const int64_t m : sizes) {
      for (const bool batch_invariant : {false, true}) {
        // The tensor unit keeps about 14 bits of sums of 8-bit floats.
        const GemmCase c = CaseAt(index, m, x_types[index % 3], batch_invariant,
                                  spec.activation == kInt8 ? 19 : 11);
        ++index;
        const GemmRun run = RunQuantizedCase(runner(), tensor, layer, c, random_);
        ASSERT_FALSE(HasFailure()) << run.report.kernel << ", M " << m << ", K " << shape.k
                                   << ", activations of " << int{spec.activation.bits} << " bits";
        if (!is_cpu() && !batch_invariant) {
          EXPECT_THAT(run.report.kernel, HasSubstr("gemm_sm90"));
        }
      }
    }
  }
};

const std::vector<int64_t> kSizes = {0, 1, 3, 8, 17, 40, 65, 130, 257, 600};

TEST_F(QuantizedGemmTest, SmallRequestsWithAScalePerRow) {
  const auto token = ActivationScaleKind::kDynamicToken;
  RunAll(Asking(Spec(kFloat8E4M3, kFloat32, 1, 0), kFloat8E4M3, token), {1, 130, 300}, kSizes);
  RunAll(Asking(Spec(IntegerFormat(8), kBFloat16, 1, 0), kInt8, token), {1, 130, 301}, kSizes);
  RunAll(Asking(Spec(IntegerFormat(4), kFloat16, 1, 128), kFloat8E4M3, token), {1, 200, 1000},
         kSizes);
  RunAll(Asking(Spec(kFloat4E2M1, kFloat8E8M0, 1, 32), kFloat8E5M2, token), {1, 96, 640}, kSizes);
}

TEST_F(QuantizedGemmTest, SmallRequestsWithScalesPerGroup) {
  const auto group = ActivationScaleKind::kDynamicGroup;
  RunAll(Asking(Spec(kFloat8E4M3, kFloat32, 128, 128), kFloat8E4M3, group, 128), {1, 200, 600},
         kSizes);
  RunAll(Asking(Spec(kFloat8E4M3, kFloat32, 128, 128), kFloat8E4M3, group, 128), {1, 100, 128},
         kSizes);
  RunAll(Asking(Spec(IntegerFormat(8), kFloat32, 1, 128), kInt8, group, 256), {1, 130, 1000},
         kSizes);
}

TEST_F(QuantizedGemmTest, SmallRequestsWithAStaticScale) {
  const auto fixed = ActivationScaleKind::kStaticTensor;
  RunAll(Asking(Spec(kFloat8E4M3, kFloat32, 0, 0), kFloat8E4M3, fixed), {1, 130, 320}, kSizes);
  RunAll(Asking(Spec(IntegerFormat(8), kFloat32, 1, 0), kInt8, fixed), {1, 130, 301}, kSizes);
}

TEST_F(QuantizedGemmTest, LargeLayers) {
  const std::vector<int64_t> sizes = {1, 64, 300, 2048};
  RunAll(Asking(Spec(kFloat8E4M3, kFloat32, 128, 128), kFloat8E4M3,
                ActivationScaleKind::kDynamicGroup, 128),
         {1, 2112, 7168}, sizes);
  RunAll(Asking(Spec(IntegerFormat(8), kBFloat16, 1, 0), kInt8, ActivationScaleKind::kDynamicToken),
         {1, 4096, 8192}, sizes);
}

TEST_F(QuantizedGemmTest, SmallRowsOfZerosAndWithNanOrInfinityStayByThemselves) {
  for (const NumberFormat& activation : {kFloat8E4M3, kInt8}) {
    const NumberFormat weight = activation == kInt8 ? IntegerFormat(8) : kFloat8E4M3;
    const StandardTensor tensor = RandomTensor(
        Asking(Spec(weight, kFloat32, 1, 0), activation, ActivationScaleKind::kDynamicToken),
        {1, 70, 300}, random_);
    GemmCall call;
    call.layer = runner().Load(tensor);
    ASSERT_NE(call.layer, nullptr);
    const HostMatrix x = RowsOfEveryKind(kBFloat16, 9, 300, 0, random_);
    HostMatrix y = PoisonedMatrix(kFloat32, 9, 70);
    const DeviceMatrix device_x = runner().Upload(x);
    const DeviceMatrix device_y = runner().Upload(y);
    call.x = device_x.view;
    call.y = device_y.view;
    const auto report = device().RunGemm(runner().stream(), call);
    ASSERT_TRUE(report.ok()) << report.status();
    runner().Download(device_y, y);
    for (int64_t n = 0; n < 70; ++n) {
      EXPECT_EQ(y.at(1, n), 0) << n;
      EXPECT_TRUE(std::isnan(y.at(2, n))) << n << ": " << y.at(2, n);
      EXPECT_FALSE(std::isfinite(y.at(3, n))) << n << ": " << y.at(3, n);
      for (const int64_t row : {0, 4, 5, 6, 7, 8}) EXPECT_TRUE(std::isfinite(y.at(row, n))) << row;
    }
  }
}

TEST_F(QuantizedGemmTest, SmallRunsGiveTheSameBitsAtEveryMWithBatchInvariance) {
  const StandardTensor tensor =
      RandomTensor(Asking(Spec(kFloat8E4M3, kFloat32, 128, 128), kFloat8E4M3,
                          ActivationScaleKind::kDynamicGroup, 128),
                   {1, 100, 300}, random_);
  GemmCall call;
  call.layer = runner().Load(tensor);
  ASSERT_NE(call.layer, nullptr);
  call.batch_invariant = true;
  const HostMatrix x = RandomMatrix(kBFloat16, 130, 300, random_);
  HostMatrix all = PoisonedMatrix(kFloat32, 130, 100);
  const DeviceMatrix device_x = runner().Upload(x);
  const DeviceMatrix device_all = runner().Upload(all);
  call.x = device_x.view;
  call.y = device_all.view;
  ASSERT_TRUE(device().RunGemm(runner().stream(), call).ok());
  runner().Download(device_all, all);
  for (const int64_t row : {0, 1, 64, 129}) {
    HostMatrix one = PoisonedMatrix(kFloat32, 1, 100);
    const DeviceMatrix device_one = runner().Upload(one);
    call.x = device_x.view;
    call.x.rows = 1;
    call.x.address += static_cast<uintptr_t>(row * 300 * 2);
    call.y = device_one.view;
    ASSERT_TRUE(device().RunGemm(runner().stream(), call).ok());
    runner().Download(device_one, one);
    for (int64_t n = 0; n < 100; ++n) ASSERT_EQ(one.bits_at(0, n), all.bits_at(row, n)) << row;
  }
}

TEST_F(QuantizedGemmTest, SmallLayersOfTheGenericKernelUseXAsItIsAndSaySo) {
  if (is_cpu()) GTEST_SKIP() << "the CPU device quantizes for every layer";
  const StandardTensor tensor =
      RandomTensor(Asking(Spec(IntegerFormat(8), kFloat32, 1, 32), kFloat8E4M3,
                          ActivationScaleKind::kDynamicToken),
                   {1, 64, 256}, random_);
  const GemmRun run =
      RunGemmCase(runner(), tensor, runner().Load(tensor), {.m = 4, .x_type = kBFloat16}, random_);
  EXPECT_EQ(run.report.activation_used, kBFloat16);
  EXPECT_THAT(run.report.reason, HasSubstr("used as it is: the generic kernel serves the layer"));
}

}  // namespace
}  // namespace gemmd::testing

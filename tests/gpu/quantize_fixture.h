// What    Fixture of tests that launch the kernel of device/quantize_x.cuh by itself on a GPU, and compare bit by bit
//         with core/quant/activations.
#ifndef GEMMD_TESTS_GPU_QUANTIZE_FIXTURE_H_
#define GEMMD_TESTS_GPU_QUANTIZE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/quant/activations.h"
#include "kernels/contract/element_format.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/library.h"
#include "kernels/cuda/stream.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/launch/quantize_launch.h"
#include "kernels/select/quantize_config.h"
#include "tests/gpu/gpu_fixture.h"
#include "tests/kernels/quantize_inputs.h"

namespace gemmd::testing {

struct QuantizeCase {
  int64_t m = 7;
  int64_t gap = 0;      // elements between rows of x
  int64_t shift = 0;    // DeviceRunner::Upload
  int64_t sampled = 0;  // rows compared; 0 = all
  bool interleaved = false;
  int64_t factor_shift = 0;  // DeviceRunner::Upload
};

struct Quantized {
  HostMatrix codes;
  HostMatrix scales;
};

// Launches the kernel by itself.
class QuantizeKernelTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (device().description().kind != DeviceKind::kCuda) GTEST_SKIP() << "needs a GPU";
    driver_ = *cuda::LoadDriver();
    auto context = cuda::PrimaryContext::Retain(*driver_, 0);
    ASSERT_TRUE(context.ok()) << context.status();
    context_.emplace(*std::move(context));
    const char* directory = std::getenv("GEMMD_CACHE_DIR");
    auto cache = jit::KernelCache::Open(directory == nullptr ? "" : directory);
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
  }

  struct Loaded {
    std::optional<cuda::LoadedLibrary> library;
    QuantizeKernel kernel;
  };

  Loaded Load(const QuantizeProblem& problem) {
    Loaded loaded;
    const auto choice = ChooseQuantize(problem);
    EXPECT_TRUE(choice.ok()) << choice.status();
    if (!choice.ok()) return loaded;
    const QuantizeConfig& config = choice->config;
    const auto compiled =
        cache_->GetOrCompile({RenderProgram(config), KernelNameExpression(config),
                              device().description().architecture, KernelName(config)},
                             absl::InfiniteFuture());
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    if (!compiled.ok()) return loaded;
    const cuda::ScopedContext scope(*context_);
    auto library = cuda::LoadedLibrary::Load(*driver_, (*compiled)->cubin);
    EXPECT_TRUE(library.ok()) << library.status();
    if (!library.ok()) return loaded;
    loaded.library.emplace(*std::move(library));
    loaded.kernel.kernel = *loaded.library->GetKernel((*compiled)->lowered_name);
    loaded.kernel.name = KernelName(config);
    loaded.kernel.x_type = problem.x_type;
    loaded.kernel.code_type = problem.code_type;
    loaded.kernel.mode = problem.mode;
    loaded.kernel.multiplies = problem.input_scale;
    loaded.kernel.k = problem.k;
    loaded.kernel.group = problem.group;
    loaded.kernel.slice_columns = choice->slice_columns;
    loaded.kernel.threads = config.threads;
    loaded.kernel.shared_bytes = choice->shared_bytes;
    return loaded;
  }

  // `factors`: [1, K] for a kernel that multiplies.
  Quantized Run(const QuantizeKernel& kernel, const HostMatrix& x, const QuantizeCase& c,
                const HostMatrix& factors = PoisonedMatrix(kFloat32, 1, 1)) {
    const int64_t stride = (kernel.k + 15) / 16 * 16 + 16;
    Quantized out;
    out.codes = PoisonedMatrix(FormatOf(kernel.code_type), x.rows, kernel.k, stride,
                               kernel.code_type == ElementType::kInt8);
    out.scales = PoisonedMatrix(kFloat32, x.rows, kernel.groups(), kernel.groups() + 1);
    HostMatrix fixed = PoisonedMatrix(kFloat32, 1, 1);
    fixed.set(0, 0, kStaticScale);
    const DeviceMatrix device_x = runner().Upload(x, c.shift);
    const DeviceMatrix codes = runner().Upload(out.codes);
    const DeviceMatrix scales = runner().Upload(out.scales);
    const DeviceMatrix device_fixed = runner().Upload(fixed);
    const DeviceMatrix device_factors = runner().Upload(factors, c.factor_shift);
    const cuda::ScopedContext scope(*context_);
    auto stream = cuda::Stream::Create(*driver_);
    EXPECT_TRUE(stream.ok());
    QuantizeArgs args = Args(c);
    args.x = reinterpret_cast<const void*>(device_x.view.address);
    args.codes = reinterpret_cast<void*>(codes.view.address);
    args.scales = reinterpret_cast<float*>(scales.view.address);
    args.static_scale = reinterpret_cast<const float*>(device_fixed.view.address);
    args.input_scale = reinterpret_cast<const float*>(device_factors.view.address);
    args.x_row_stride = x.row_stride;
    args.codes_row_stride = stride;
    args.scales_row_stride = kernel.groups() + 1;
    args.m = x.rows;
    const absl::Status launched = LaunchQuantize(*driver_, kernel, args, stream->get());
    EXPECT_TRUE(launched.ok()) << launched;
    const absl::Status ran = stream->Synchronize();
    EXPECT_TRUE(ran.ok()) << ran;
    runner().Download(codes, out.codes);
    runner().Download(scales, out.scales);
    return out;
  }

  static QuantizeArgs Args(const QuantizeCase& c) {
    QuantizeArgs args{};
    args.interleaved = c.interleaved;
    args.has_limit = 1;
    args.alpha = 1.702f;
    args.limit = 1.5f;
    return args;
  }

  static bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

  // Codes of `row` are those of `values`.
  static void ExpectRow(const QuantizeKernel& kernel, const std::vector<float>& values,
                        const Quantized& got, int64_t row) {
    ActivationScaling scaling;
    scaling.element = FormatOf(kernel.code_type);
    scaling.group = kernel.mode == QuantizeMode::kDynamicGroup ? kernel.group : 0;
    if (kernel.mode == QuantizeMode::kStaticTensor) scaling.static_scale = kStaticScale;
    const QuantizedRow expected = QuantizeActivations(values, scaling);
    for (int64_t g = 0; g < kernel.groups(); ++g) {
      if (kernel.mode == QuantizeMode::kStaticTensor) {
        ASSERT_EQ(got.scales.bits_at(row, g), ~0u) << "a static scale is not written";
        continue;
      }
      const float want = expected.scales[static_cast<size_t>(g)];
      ASSERT_TRUE(Same(got.scales.at(row, g), want))
          << "row " << row << ", group " << g << ": " << got.scales.at(row, g) << ", expected "
          << want;
    }
    for (int64_t k = 0; k < kernel.k; ++k) {
      double want = expected.elements[static_cast<size_t>(k)];
      const bool is_int8 = kernel.code_type == ElementType::kInt8;
      if (is_int8 && std::isnan(want)) want = 0;
      const double element = got.codes.at(row, k);
      ASSERT_TRUE(Same(element, want) &&
                  (is_int8 || std::isnan(want) || std::signbit(element) == std::signbit(want)))
          << "row " << row << ", column " << k << ": " << element << ", expected " << want << " of "
          << values[static_cast<size_t>(k)];
    }
  }

  static std::vector<float> FloatRow(const HostMatrix& x, int64_t row) {
    std::vector<float> values;
    for (int64_t k = 0; k < x.columns; ++k) values.push_back(static_cast<float>(x.at(row, k)));
    return values;
  }

  void ExpectReference(const QuantizeProblem& problem, const std::vector<QuantizeCase>& cases) {
    const Loaded loaded = Load(problem);
    ASSERT_NE(loaded.kernel.kernel, nullptr);
    for (const QuantizeCase& c : cases) {
      const HostMatrix x =
          RowsOfEveryKind(FormatOf(problem.x_type), c.m, problem.k, c.gap, random_);
      const Quantized got = Run(loaded.kernel, x, c);
      for (const int64_t row : SampleIndices(c.m, c.sampled, random_)) {
        ASSERT_NO_FATAL_FAILURE(ExpectRow(loaded.kernel, FloatRow(x, row), got, row))
            << loaded.kernel.name << ", m " << c.m << ", k " << problem.k << ", group "
            << problem.group << ", gap " << c.gap << ", shift " << c.shift;
      }
      ASSERT_FALSE(HasFailure()) << loaded.kernel.name << ", m " << c.m << ", k " << problem.k;
    }
  }

  static constexpr float kStaticScale = 0.0131f;
  const cuda::DriverTable* driver_ = nullptr;
  std::optional<cuda::PrimaryContext> context_;
  std::shared_ptr<jit::KernelCache> cache_;
};

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_GPU_QUANTIZE_FIXTURE_H_

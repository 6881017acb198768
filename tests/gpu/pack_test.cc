// Weights packed by the GPU, against the same packed by the host. `*Small*` is the part for compute-sanitizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "core/exec/cuda_layer.h"
#include "core/exec/upload_pool.h"
#include "kernels/cuda/device_info.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kernels/gemm.h"
#include "kernels/select/sm90_config.h"
#include "tests/gpu/gemm_fixture.h"

namespace gemmd::testing {
namespace {

// The kernel by itself: no other kernels are compiled.
class PackTest : public GemmTest {
 protected:
  void SetUp() override {
    GemmTest::SetUp();
    if (IsSkipped()) return;
    if (!cuda::LoadDriver().ok()) GTEST_SKIP() << "no CUDA driver";
    const std::vector<cuda::DeviceInfo> gpus = *cuda::ListGpus(driver());
    for (const cuda::DeviceInfo& gpu : gpus) {
      if (gpu.architecture == device().description().architecture) info_ = gpu;
    }
    if (!info_.has_value()) GTEST_SKIP() << "the device is no GPU";
    context_.emplace(*cuda::PrimaryContext::Retain(driver(), info_->ordinal));
    scope_.emplace(*context_);
    pool_.emplace(*context_);
    GpuKernelsOptions options;
    options.context = context_->get();
    options.architecture = info_->architecture;
    options.cache = *OpenKernelCache("");
    options.make_tester = nullptr;
    kernels_.emplace(driver(), std::move(options));
    const auto kernel = kernels_->LoadPackKernel(absl::InfiniteFuture());
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    kernel_ = *kernel;
  }
  void TearDown() override {
    kernels_.reset();
    pool_.reset();
    scope_.reset();
    context_.reset();
    GemmTest::TearDown();
  }

  static const cuda::DriverTable& driver() { return **cuda::LoadDriver(); }

  cuda::DeviceBuffer Memory(uint64_t bytes) {
    return *cuda::DeviceBuffer::Create(driver(), std::max<uint64_t>(bytes, 1));
  }

  // The units of `tensor`, each in memory that was not 0; `milliseconds`: of the kernel, the second time.
  std::vector<std::byte> Pack(const StandardTensor& tensor, const PackedScales& packed,
                              float* milliseconds = nullptr) {
    PackArgs args = PackArgsOf(tensor.spec, tensor.shape);
    const auto bytes = static_cast<uint64_t>(args.layout.Bytes(tensor.shape.n, tensor.shape.k));
    const cuda::DeviceBuffer codes = Memory(tensor.codes.size());
    const cuda::DeviceBuffer scales = Memory(packed.units.size());
    const cuda::DeviceBuffer units = Memory(bytes);
    std::vector<std::byte> got(bytes, std::byte{0xee});
    Upload upload = *pool_->Begin();
    EXPECT_TRUE(upload.Copy(codes.address(), tensor.codes).ok());
    EXPECT_TRUE(upload.Copy(scales.address(), packed.units).ok());
    EXPECT_TRUE(upload.Copy(units.address(), got).ok());
    args.codes = reinterpret_cast<const uint32_t*>(codes.address());
    args.scales = reinterpret_cast<const void*>(scales.address());
    args.units = reinterpret_cast<void*>(units.address());
    const auto launch = [&] {
      const auto status =
          LaunchPack(driver(), kernel_, args, PackedLayout::Units(args.n), upload.stream());
      EXPECT_TRUE(status.ok()) << status;
    };
    launch();
    if (milliseconds != nullptr) {
      const auto start = *cuda::Event::Create(driver(), cuda::EventKind::kTiming);
      const auto end = *cuda::Event::Create(driver(), cuda::EventKind::kTiming);
      EXPECT_TRUE(start.Record(upload.stream()).ok());
      launch();
      EXPECT_TRUE(end.Record(upload.stream()).ok());
      EXPECT_TRUE(upload.Finish().ok());
      *milliseconds = static_cast<float>(absl::ToDoubleMilliseconds(*cuda::Elapsed(start, end)));
    }
    EXPECT_TRUE(upload.Finish().ok());
    EXPECT_EQ(driver().cuMemcpyDtoH(got.data(), units.address(), bytes), CUDA_SUCCESS);
    return got;
  }

  void ExpectPacked(const QuantSpec& spec, const LayerShape& shape) {
    ASSERT_TRUE(SupportsSm90(spec, shape, "sm_90a").ok());
    const StandardTensor tensor = RandomTensor(spec, shape, random_);
    const WeightTensors weights = {tensor.codes, tensor.scales, tensor.zero_points,
                                   tensor.secondary_scales};
    const auto scales = PackScales(spec, shape, weights);
    if (!scales.ok()) return;  // random zero points and folded scales may not fit
    const auto want = PackWeights(spec, shape, weights);
    ASSERT_TRUE(want.ok()) << want.status();
    ++packed_;
    EXPECT_TRUE(std::equal(want->units.begin(), want->units.end(), Pack(tensor, *scales).begin()))
        << int{spec.weight.bits} << " bits, activations of " << int{spec.activation.bits} << ", N "
        << shape.n << ", K " << shape.k << ", groups of " << spec.scale_block_k;
  }

  int packed_ = 0;

 private:
  std::optional<cuda::DeviceInfo> info_;
  std::optional<cuda::PrimaryContext> context_;
  std::optional<cuda::ScopedContext> scope_;
  std::optional<UploadPool> pool_;
  std::optional<GpuKernels> kernels_;
  CUkernel kernel_ = nullptr;
};

// Every format with every type of operand that takes it, without and with zero points.
std::vector<QuantSpec> PackedSpecs() {
  std::vector<NumberFormat> weights;
  for (int bits = 1; bits <= 8; ++bits) weights.push_back(IntegerFormat(bits));
  for (const NumberFormat& format :
       {kFloat4E2M1, FloatFormat(0, 3), FloatFormat(0, 4), FloatFormat(1, 1), FloatFormat(2, 2),
        FloatFormat(3, 2), FloatFormat(2, 3), FloatFormat(3, 3), kFloat8E4M3, kFloat8E5M2,
        FloatFormat(3, 4), FloatFormat(1, 6), FloatFormat(0, 7), kBFloat16, kFloat16}) {
    weights.push_back(format);
  }
  std::vector<QuantSpec> specs;
  const std::vector<NumberFormat> scales = {kFloat16, kBFloat16, kFloat32, kFloat8E4M3,
                                            kFloat8E8M0};
  const std::vector<int64_t> groups = {128, 32, 64, 0, 256, 96};
  for (const NumberFormat& weight : weights) {
    for (const NumberFormat& activation : {kNoFormat, kFloat8E4M3, kFloat8E5M2, kInt8}) {
      for (const bool has_zero_points : {false, true}) {
        if (has_zero_points && weight.kind != NumberKind::kInteger) continue;
        const size_t i = specs.size();
        QuantSpec spec = Spec(weight, scales[i % scales.size()], 1, groups[i % groups.size()]);
        spec.activation = activation;
        if (has_zero_points) spec.zero_point = ZeroPointKind::kInteger;
        if (SupportsSm90(spec, {1, 64, 512}, "sm_90a").ok()) specs.push_back(spec);
      }
    }
  }
  return specs;
}

TEST_F(PackTest, SmallLayersOfEveryFormatAreWhatTheHostPacks) {
  const std::vector<QuantSpec> specs = PackedSpecs();
  EXPECT_GT(specs.size(), 60u);
  for (const QuantSpec& spec : specs) {
    for (const LayerShape& shape : {LayerShape{1, 200, 652}, {1, 64, 512}, {1, 70, 297}}) {
      ExpectPacked(spec, shape);
      ASSERT_FALSE(HasFailure());
    }
  }
  EXPECT_GT(packed_, 150);
}

TEST_F(PackTest, LargeLayers) {
  ExpectPacked(Spec(IntegerFormat(4), kBFloat16, 1, 128), {1, 4440, 7168});
  ExpectPacked(Spec(IntegerFormat(3), kFloat16, 1, 64), {1, 2112, 4097});
}

TEST_F(PackTest, PacksInMilliseconds) {
  for (const auto& [weight, activation] : {std::pair(IntegerFormat(4), kNoFormat),
                                           {IntegerFormat(3), kNoFormat},
                                           {kFloat8E4M3, kFloat8E4M3}}) {
    QuantSpec spec = Spec(weight, kBFloat16, 1, 0);
    spec.activation = activation;
    StandardTensor tensor;
    tensor.spec = spec;
    tensor.shape = {1, 8192, 8192};
    tensor.codes.resize(static_cast<size_t>(8192 * spec.RowWords(8192) * 4));
    float milliseconds = 0;
    Pack(tensor, {}, &milliseconds);
    std::printf("8192 x 8192 codes of %d bits: %.3f ms\n", int{weight.bits}, milliseconds);
    EXPECT_LT(milliseconds, 10);
  }
}

}  // namespace
}  // namespace gemmd::testing

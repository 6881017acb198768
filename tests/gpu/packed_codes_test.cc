// The generic kernel with codes in dense rows and in packed weights: the same bits; and what a layer takes
// on the GPU. `*Small*` is the part for compute-sanitizer.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/exec/cuda_calls.h"
#include "core/exec/cuda_layer.h"
#include "kernels/base/status.h"
#include "kernels/cuda/device_info.h"
#include "kernels/cuda/stream.h"
#include "kernels/gemm.h"
#include "tests/gpu/gemm_fixture.h"

namespace gemmd::testing {
namespace {

class PackedCodesTest : public GemmTest {
 protected:
  void SetUp() override {
    GemmTest::SetUp();
    if (IsSkipped()) return;
    if (device().description().architecture != "sm_90a") GTEST_SKIP() << "needs SM90";
    const std::vector<cuda::DeviceInfo> gpus = *cuda::ListGpus(driver());
    for (const cuda::DeviceInfo& info : gpus) {
      if (info.architecture != "sm_90a" || gpu_ != nullptr) continue;
      GpuKernelsOptions options;
      options.architecture = info.architecture;
      const char* const cache = std::getenv("GEMMD_CACHE_DIR");
      options.cache = *OpenKernelCache(cache == nullptr ? "" : cache);
      options.serves_meanwhile = true;  // nobody waits for specialised kernels
      gpu_ = std::make_shared<CudaGpu>(driver(), info.ordinal,
                                       *cuda::PrimaryContext::Retain(driver(), info.ordinal),
                                       std::move(options));
    }
    scope_.emplace(gpu_->context);
  }
  void TearDown() override {
    scope_.reset();
    gpu_.reset();
    GemmTest::TearDown();
  }
  static const cuda::DriverTable& driver() { return **cuda::LoadDriver(); }

  // `why_not_packed`: empty for a layer whose weights are packed.
  std::shared_ptr<CudaLayer> Load(const StandardTensor& tensor, const std::string& why_not_packed) {
    WeightPacking packing = gpu_->kernels.PackingOf(
        tensor.spec, tensor.shape,
        {tensor.codes, tensor.scales, tensor.zero_points, tensor.secondary_scales});
    EXPECT_EQ(packing.why_not, "");
    CudaLayerKernels kernels;
    if (!why_not_packed.empty()) {
      packing.scales = {};
    } else {
      kernels.pack = *gpu_->kernels.LoadPackKernel(absl::InfiniteFuture());
    }
    auto planned =
        gpu_->kernels.PlanLayer(tensor.spec, tensor.shape, why_not_packed, absl::InfiniteFuture());
    EXPECT_TRUE(planned.ok()) << planned.status();
    if (!planned.ok()) return nullptr;
    kernels.planned = *std::move(planned);
    kernels.moe = *gpu_->kernels.LoadMoeKernels(absl::InfiniteFuture());
    auto layer = CudaLayer::Load(gpu_, tensor, packing.scales, std::move(kernels));
    EXPECT_TRUE(layer.ok()) << layer.status();
    return layer.ok() ? *std::move(layer) : nullptr;
  }

  // y of the layer's generic kernel.
  HostMatrix RunGeneric(const std::shared_ptr<CudaLayer>& layer, const HostMatrix& x) {
    HostMatrix y = PoisonedMatrix(kFloat32, x.rows, layer->shape().n);
    const DeviceMatrix device_x = runner().Upload(x);
    const DeviceMatrix device_y = runner().Upload(y);
    GemmCall call;
    call.layer = layer;
    call.x = device_x.view;
    call.y = device_y.view;
    const auto args = MakeGemmArgs(*layer, call);
    EXPECT_TRUE(args.ok()) << args.status();
    const auto stream = *cuda::Stream::Create(driver());
    const absl::Status launched =
        LaunchDense(driver(), layer->plan()->dense.KernelFor(x.rows), *args, stream.get());
    EXPECT_TRUE(launched.ok()) << launched;
    EXPECT_TRUE(stream.Synchronize().ok());
    runner().Download(device_y, y);
    return y;
  }

  void ExpectSameBits(const QuantSpec& spec, const LayerShape& shape, const NumberFormat& x_type) {
    StandardTensor tensor = RandomTensor(spec, shape, random_);
    for (size_t at = 1; at < tensor.zero_points.size(); at += 2)
      tensor.zero_points[at] = std::byte{0};
    const auto packed = Load(tensor, "");
    const auto rows = Load(tensor, "the test wants its rows");
    ASSERT_NE(packed, nullptr);
    ASSERT_NE(rows, nullptr);
    EXPECT_EQ(packed->weights().codes, nullptr);
    EXPECT_EQ(rows->weights().packed, nullptr);
    for (const int64_t m : {1, 17, 130}) {
      const HostMatrix x = RandomMatrix(x_type, m, shape.k, random_, false, shape.k + 3);
      EXPECT_EQ(RunGeneric(packed, x).bytes, RunGeneric(rows, x).bytes)
          << packed->plan()->dense.KernelFor(m).name << ", M " << m << ", K " << shape.k;
    }
  }

  std::shared_ptr<CudaGpu> gpu_;

 private:
  std::optional<cuda::ScopedContext> scope_;
};

TEST_F(PackedCodesTest, SmallLayersOfEveryOrderHaveTheBitsOfTheirRows) {
  std::vector<QuantSpec> specs;
  for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8}) {
    specs.push_back(Spec(IntegerFormat(bits), kFloat16, 1, bits % 2 == 0 ? 128 : 64));
    if (bits % 3 == 1 && bits < 8) specs.back().zero_point = ZeroPointKind::kInteger;
  }
  for (const NumberFormat& weight : {FloatFormat(3, 2), kFloat8E4M3, kFloat8E5M2}) {
    specs.push_back(Spec(weight, kBFloat16, 1, 0));
  }
  specs.push_back(Spec(kFloat4E2M1, kFloat8E4M3, 1, 16));
  specs.push_back(Spec(kBFloat16, kNoFormat, 1, 0));
  for (const auto& [weight, activation] : {std::pair(IntegerFormat(4), kInt8),
                                           {IntegerFormat(8), kInt8},
                                           {IntegerFormat(4), kFloat8E4M3},
                                           {kFloat4E2M1, kFloat8E4M3},
                                           {kFloat8E4M3, kFloat8E4M3}}) {
    specs.push_back(Spec(weight, kFloat32, 1, 128));
    specs.back().activation = activation;
  }
  for (const QuantSpec& spec : specs) {
    ExpectSameBits(spec, {1, 200, 652}, kBFloat16);
    ASSERT_FALSE(HasFailure());
  }
  ExpectSameBits(specs[3], {1, 576, 1152}, kFloat32);
}

TEST_F(PackedCodesTest, TheGpuHasTheCodesOnce) {
  QuantSpec spec = Spec(IntegerFormat(4), kBFloat16, 1, 128);
  const StandardTensor tensor = RandomTensor(spec, {1, 4096, 8192}, random_);
  const auto layer = Load(tensor, "");
  ASSERT_NE(layer, nullptr);
  EXPECT_EQ(gpu_->weights_bytes, layer->bytes());
  // Scales are there twice: as they are, and in the units.
  const size_t most = tensor.codes.size() + 2 * tensor.scales.size() + (size_t{4} << 20);
  EXPECT_LT(layer->bytes(), most);
}

}  // namespace
}  // namespace gemmd::testing

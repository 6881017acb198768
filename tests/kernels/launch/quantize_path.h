// What    Fixture: a CUDA device on the fake driver whose kernels, those that quantize or multiply x in front of a GEMM
//         among them, run on the CPU. The test sees each launch of theirs.
#ifndef GEMMD_TESTS_KERNELS_LAUNCH_QUANTIZE_PATH_H_
#define GEMMD_TESTS_KERNELS_LAUNCH_QUANTIZE_PATH_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/exec/cuda_device.h"
#include "kernels/kernel_store.h"
#include "tests/kernels/device/host_quantize.h"
#include "tests/kernels/fake_compiler.h"
#include "tests/kernels/launch/fake_kernels.h"
#include "tests/kernels/random_layer.h"
#include "tests/support/fake_driver.h"

namespace gemmd::testing {

inline constexpr ElementType kBf16 = ElementType::kBFloat16;
inline constexpr ElementType kF16 = ElementType::kFloat16;
inline constexpr ElementType kF32 = ElementType::kFloat32;
inline constexpr ElementType kE4M3 = ElementType::kFloat8E4M3;

class QuantizePath : public ::testing::Test {
 protected:
  QuantizePath(cuda::FakeGpu gpu, uint64_t seed) : fake_({gpu}), random_(seed) {
    cuda::SetDriverForTesting(&fake_.table());
    store_ = *KernelStore::Open({.compile_helper = FakeCompiler::Helper()});
  }
  ~QuantizePath() override {
    store_->Close();
    device_.reset();
    cuda::SetDriverForTesting(nullptr);
  }

  void Open(uint64_t workspace_bytes = 1 << 20) {
    CudaDeviceOptions options{.moe_workspace_bytes = workspace_bytes, .cache = store_->cache()};
    options.self_test = false;
    device_ = std::move((*CreateCudaDevices(options))[0]);
  }

  // In front `Quantize`, and GEMMs of `Gemm`: the fake driver runs generic kernels only.
  template <class Quantize, class Gemm>
  void UseKernels() {
    fake_.OnLaunch([this](const cuda::FakeLaunch& launch) {
      if (launch.kernel.find("QuantizeX") == std::string::npos) return RunFakeKernel<Gemm>(launch);
      const auto& args = *static_cast<const QuantizeArgs*>(launch.params[0]);
      See(launch, args);
      HostQuantize<Quantize>::Run(args);
      return CUDA_SUCCESS;
    });
  }

  virtual void See(const cuda::FakeLaunch& launch, const QuantizeArgs& args) = 0;

  FakeCompiler compiler_;
  cuda::FakeDriver fake_;
  std::shared_ptr<KernelStore> store_;
  std::unique_ptr<Device> device_;
  Random random_;
};

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_KERNELS_LAUNCH_QUANTIZE_PATH_H_

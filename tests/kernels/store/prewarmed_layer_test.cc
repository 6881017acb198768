// Prewarming and loading must agree on what a layer needs: what was prewarmed is not compiled again. The compiler is a
// fake: which programs are asked for decides.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kernels/cuda/context.h"
#include "kernels/gemm.h"
#include "kernels/kernel_store.h"
#include "tests/kernels/fake_compiler.h"
#include "tests/support/fake_driver.h"

namespace gemmd {
namespace {

class PrewarmedLayerTest : public ::testing::Test {
 protected:
  PrewarmedLayerTest() {
    layer_.spec.weight = IntegerFormat(4);
    layer_.spec.scale = kFloat16;
    layer_.spec.scale_block_k = 128;
    layer_.shape = {1, 512, 512};
  }
  ~PrewarmedLayerTest() override { store_->Close(); }

  void Prewarm() {
    const absl::Status status = store_->Prewarm({layer_}, {"sm_90a"}, [](const PrewarmStep& step) {
      EXPECT_NE(step.outcome, PrewarmOutcome::kFailed) << step.kernel << ": " << step.message;
      return true;
    });
    EXPECT_TRUE(status.ok()) << status;
  }
  uint64_t compilations() const { return store_->stats().compilations; }
  // Of an SM90 GPU that serves layers while their kernels compile.
  GpuKernelsOptions WithoutTester() const {
    return {.context = context_.get(),
            .architecture = "sm_90a",
            .cache = store_->cache(),
            .serves_meanwhile = true,
            .make_tester = nullptr};
  }

  PrewarmLayer layer_;
  testing::FakeCompiler compiler_;
  std::shared_ptr<KernelStore> store_ =
      *KernelStore::Open({.directory = compiler_.cache_directory(),
                          .compile_helper = testing::FakeCompiler::Helper()});
  cuda::FakeDriver fake_{{cuda::FakeGpu{.cc_major = 9}}};
  cuda::PrimaryContext context_ = *cuda::PrimaryContext::Retain(fake_.table(), 0);
  const cuda::ScopedContext scope_{context_};
};

TEST_F(PrewarmedLayerTest, LoadingItCompilesNothing) {
  Prewarm();
  const uint64_t compiled = compilations();
  EXPECT_GT(compiled, 10u);
  {
    GpuKernels kernels(fake_.table(), WithoutTester());
    const auto loaded = kernels.PlanLayer(layer_.spec, layer_.shape, "", absl::InfiniteFuture());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_TRUE(kernels.LoadMoeKernels(absl::InfiniteFuture()).ok());
    (*loaded)->Specialise();
    const KernelProgress progress = (*loaded)->progress();
    EXPECT_GT(progress.total, 1);
    EXPECT_EQ(progress.ready, progress.total) << "cached kernels serve from the start; failed "
                                              << progress.failed << ": " << progress.error;
  }
  EXPECT_EQ(compilations(), compiled);
}

TEST_F(PrewarmedLayerTest, OneWithoutItCompiles) {  // or the others show nothing
  GpuKernels kernels(fake_.table(), WithoutTester());
  ASSERT_TRUE(kernels.PlanLayer(layer_.spec, layer_.shape, "", absl::InfiniteFuture()).ok());
  EXPECT_GT(compilations(), 0u);
}

// Of a layer whose x is multiplied, also those that do it.
TEST_F(PrewarmedLayerTest, LoadingItWithAnInputScaleCompilesNothing) {
  Prewarm();
  const uint64_t without = compilations();
  layer_.traits.has_input_scale = true;
  Prewarm();
  const uint64_t compiled = compilations();
  EXPECT_EQ(compiled, without + 6) << "one kernel for each type of x";
  GpuKernels kernels(fake_.table(), WithoutTester());
  for (const bool declares_activations : {false, true}) {
    const auto loaded =
        kernels.PlanLayer(layer_.spec, layer_.shape, "", absl::InfiniteFuture(),
                          {.has_input_scale = true, .declares_activations = declares_activations});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const std::shared_ptr<const LayerPlan> plan = (*loaded)->plan();
    EXPECT_NE(plan->ScalerFor(ElementType::kBFloat16), nullptr);
    EXPECT_EQ(plan->ScalerFor(ElementType::kInt8) == nullptr, declares_activations);
    EXPECT_EQ(plan->QuantizerFor(ElementType::kBFloat16), nullptr);
  }
  EXPECT_EQ(compilations(), compiled);
}

// Which of its weights cannot be packed is known only when a layer is loaded.
TEST_F(PrewarmedLayerTest, LoadingItNotPackedCompilesNothing) {
  layer_.spec.weight = kFloat8E4M3;
  Prewarm();
  const uint64_t compiled = compilations();
  GpuKernels kernels(fake_.table(), WithoutTester());
  for (const char* why_not_packed : {"", "a weight is no number"}) {
    const auto loaded =
        kernels.PlanLayer(layer_.spec, layer_.shape, why_not_packed, absl::InfiniteFuture());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const bool is_packed =
        (*loaded)->plan()->dense.KernelFor(1).name.find("_packed_") != std::string::npos;
    EXPECT_EQ(is_packed, why_not_packed[0] == '\0');
  }
  EXPECT_TRUE(kernels.LoadPackKernel(absl::InfiniteFuture()).ok());
  EXPECT_EQ(compilations(), compiled);
}

}  // namespace
}  // namespace gemmd

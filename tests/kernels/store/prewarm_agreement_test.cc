// Prewarming compiles what loading a layer compiles: nothing less, nothing more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/cuda/context.h"
#include "kernels/gemm.h"
#include "kernels/kernel_store.h"
#include "kernels/tuning.h"
#include "tests/kernels/fake_compiler.h"
#include "tests/support/fake_driver.h"

namespace gemmd {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainerEq;
using ::testing::IsEmpty;
using ::testing::Not;

using Kernels = std::set<std::string>;  // names and keys

class PrewarmAgreementTest : public ::testing::Test {
 protected:
  static PrewarmLayer LayerOf(const NumberFormat& weight, const LayerTraits& traits = {}) {
    PrewarmLayer layer;
    layer.spec.weight = weight;
    layer.spec.scale = kFloat16;
    layer.spec.scale_block_k = 128;
    layer.shape = {1, 512, 512};
    layer.traits = traits;
    return layer;
  }

  std::shared_ptr<KernelStore> Open(const std::string& name) const {
    return *KernelStore::Open({.directory = compiler_.cache_directory() / name,
                               .compile_helper = testing::FakeCompiler::Helper()});
  }

  static Kernels KernelsIn(const KernelStore& store) {
    const auto listed = store.List({});
    EXPECT_TRUE(listed.ok()) << listed.status();
    Kernels kernels;
    for (const StoredKernel& kernel : *listed) {
      kernels.insert(kernel.kernel + " " + kernel.key);
    }
    return kernels;
  }

  Kernels Prewarmed(const PrewarmLayer& layer, const std::string& name,
                                       const PrewarmTuning& tuning = {}) const {
    const auto store = Open(name);
    const absl::Status status = store->Prewarm(
        {layer}, {"sm_90a"}, [](const PrewarmStep&) { return true; }, {}, nullptr, tuning);
    EXPECT_TRUE(status.ok()) << status;
    return KernelsIn(*store);
  }

  // By a GPU whose cache is empty. `why_not_packed` has one entry for each kind of weights that a layer of
  // this format may have.
  Kernels Loaded(const PrewarmLayer& layer, const std::string& name,
                                    const std::vector<std::string>& why_not_packed,
                                    const std::shared_ptr<TuningStore>& tuning = nullptr,
                                    const DeviceClass& device = {}) {
    const auto store = Open(name);
    const auto context = *cuda::PrimaryContext::Retain(driver_.table(), 0);
    const cuda::ScopedContext scope(context);
    GpuKernels kernels(driver_.table(), {.context = context.get(),
                                         .architecture = "sm_90a",
                                         .cache = store->cache(),
                                         .serves_meanwhile = false,
                                         .make_tester = nullptr,
                                         .tuning = tuning,
                                         .device = device});
    for (const std::string& why_not : why_not_packed) {
      const auto planned = kernels.PlanLayer(layer.spec, layer.shape, why_not,
                                             absl::InfiniteFuture(), layer.traits);
      EXPECT_TRUE(planned.ok()) << planned.status();
      (*planned)->Specialise();
      EXPECT_TRUE((*planned)->WaitUntilSettled(absl::Now() + absl::Minutes(1)));
      if ((*planned)->plan()->packed.empty()) continue;
      EXPECT_TRUE(kernels.LoadPackKernel(absl::InfiniteFuture()).ok());
    }
    EXPECT_TRUE(kernels.LoadMoeKernels(absl::InfiniteFuture()).ok());
    return KernelsIn(*store);
  }

  testing::FakeCompiler compiler_;
  cuda::FakeDriver driver_{{cuda::FakeGpu{.cc_major = 9}}};
};

TEST_F(PrewarmAgreementTest, OfALayerWithoutTraits) {
  const PrewarmLayer layer = LayerOf(IntegerFormat(4));
  const auto prewarmed = Prewarmed(layer, "prewarmed");
  EXPECT_THAT(prewarmed, Not(IsEmpty()));
  EXPECT_THAT(prewarmed, ContainerEq(Loaded(layer, "loaded", {""})));
}

TEST_F(PrewarmAgreementTest, OfALayerWhoseXIsMultiplied) {
  for (const bool declares_activations : {false, true}) {
    const PrewarmLayer layer = LayerOf(
        IntegerFormat(4),
        {.has_input_scale = true, .declares_activations = declares_activations});
    const std::string suffix = declares_activations ? "_declared" : "";
    EXPECT_THAT(Prewarmed(layer, "prewarmed" + suffix),
                ContainerEq(Loaded(layer, "loaded" + suffix, {""})));
  }
}

TEST_F(PrewarmAgreementTest, OfALayerThatIsQuantizedInFront) {
  for (const bool has_input_scale : {false, true}) {
    PrewarmLayer layer = LayerOf(IntegerFormat(8), {.has_input_scale = has_input_scale,
                                                    .declares_activations = true});
    layer.spec.scale_block_k = 0;
    layer.spec.activation = kInt8;
    layer.spec.activation_scale = ActivationScaleKind::kDynamicToken;
    const std::string suffix = has_input_scale ? "_scaled" : "";
    EXPECT_THAT(Prewarmed(layer, "prewarmed" + suffix),
                ContainerEq(Loaded(layer, "loaded" + suffix, {""})));
  }
}

// A candidate for `m` rows whose kernel the model takes for no M.
std::optional<Sm90Choice> NotOfTheModel(const QuantSpec& spec, const LayerShape& shape, int64_t m) {
  std::set<std::string> chosen;
  for (const Sm90Choice& choice : ChooseSm90(spec, shape, ElementType::kBFloat16)) {
    chosen.insert(RenderProgram(choice.config));
  }
  for (const Sm90Choice& candidate : Sm90CandidatesAt(spec, shape, ElementType::kBFloat16, m)) {
    if (!chosen.contains(RenderProgram(candidate.config))) return candidate;
  }
  return std::nullopt;
}

// Which kernels these are follows from what was measured on a GPU like this one.
TEST_F(PrewarmAgreementTest, OfALayerThatWasMeasured) {
  PrewarmLayer layer = LayerOf(IntegerFormat(4));
  layer.shape = {1, 4096, 4096};
  const DeviceClass h200{"NVIDIA H200", 132, 1980};
  const DeviceClass other{"NVIDIA H100", 132, 1755};
  const auto tuning = TuningStore::Open({.built_in = R"({"schema": 1, "entries": []})"});
  TuningEntry entry;
  entry.key = TuningKeyOf(h200, layer.spec, layer.shape, ElementType::kBFloat16);
  entry.conditions.kernels = tuning->kernels_digest();
  MeasuredPoint point{.m = 64, .ns = 1000, .model_choice_ns = 2000};
  const std::optional<Sm90Choice> another = NotOfTheModel(layer.spec, layer.shape, point.m);
  ASSERT_TRUE(another.has_value());
  point.tiling = TilingOf(*another);
  entry.points = {point};
  ASSERT_TRUE(tuning->Put(entry).ok());

  const auto measured = Loaded(layer, "measured", {""}, tuning, h200);
  const auto model = Loaded(layer, "model", {""}, tuning, other);
  ASSERT_NE(measured, model);
  const std::vector<PrewarmGpu> here = {{"sm_80", "NVIDIA A100", 108}, {"sm_90a", "NVIDIA H200", 132}};
  EXPECT_THAT(Prewarmed(layer, "here", {tuning, here}), ContainerEq(measured));
  EXPECT_THAT(Prewarmed(layer, "there", {tuning, {{"sm_90a", "NVIDIA H100", 132}}}),
              ContainerEq(model));
  Kernels both;
  std::set_union(measured.begin(), measured.end(), model.begin(), model.end(),
                 std::inserter(both, both.end()));
  EXPECT_THAT(Prewarmed(layer, "anywhere", {tuning, {}}), ContainerEq(both));
}

// Only the weights tell whether a layer of this format is packed.
TEST_F(PrewarmAgreementTest, OfALayerThatIsPackedOrNot) {
  const PrewarmLayer layer = LayerOf(kFloat8E4M3);
  EXPECT_THAT(Prewarmed(layer, "prewarmed"),
              ContainerEq(Loaded(layer, "loaded", {"", "a weight is no number"})));
}

}  // namespace
}  // namespace gemmd

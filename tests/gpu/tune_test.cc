// Tuning on a GPU: what is measured is stored, decides, and computes what it should.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/exec/tune_call.h"
#include "tests/gpu/gpu_fixture.h"

namespace gemmd::testing {
namespace {

using ::testing::StartsWith;

struct TunedFormat {
  QuantSpec spec;
  NumberFormat x;
  int64_t x_scale_columns;  // for K = kShape.k
  int sum_bits;             // GemmCase's
};

constexpr LayerShape kShape = {1, 2112, 1024};

std::vector<TunedFormat> Formats() {
  QuantSpec int4;
  int4.weight = IntegerFormat(4);
  int4.scale = kFloat32;  // kernels round no weights
  int4.scale_block_k = 128;
  QuantSpec mxfp4 = int4;
  mxfp4.weight = kFloat4E2M1;
  mxfp4.scale = kFloat8E8M0;
  mxfp4.scale_block_k = 32;
  mxfp4.activation = kFloat8E4M3;
  mxfp4.activation_scale = ActivationScaleKind::kDynamicToken;
  QuantSpec blocks = int4;
  blocks.weight = kFloat8E4M3;
  blocks.scale_block_n = 128;
  blocks.activation = kFloat8E4M3;
  blocks.activation_scale = ActivationScaleKind::kDynamicGroup;
  blocks.activation_group = 128;
  return {{int4, kBFloat16, 0, GemmCase().sum_bits},
          {mxfp4, kFloat8E4M3, 1, 11},
          {blocks, kFloat8E4M3, kShape.k / 128, 11}};
}

class TuneTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (device().description().architecture != "sm_90a") GTEST_SKIP() << "needs SM90";
    store_ = TuningStore::Open({.built_in = "{\"schema\": 2, \"entries\": []}"});
    const char* cache = std::getenv("GEMMD_CACHE_DIR");
    auto devices = CreateCudaDevices(
        {.cache_directory = cache == nullptr ? "" : cache, .tuning = store_});
    ASSERT_TRUE(devices.ok()) << devices.status();
    tuned_ = std::move(devices->front());
    runner_.emplace(*tuned_);
  }

  std::vector<TuneStep> Tune(const QuantSpec& spec, const std::vector<int64_t>& rows) {
    std::vector<TuneStep> steps;
    TuneCall call;
    call.layers = {{spec, kShape}};
    call.settings.rows = rows;
    call.settings.candidates = 4;
    call.settings.samples = 7;
    call.progress = [&steps](const TuneStep& step) {
      steps.push_back(step);
      return true;
    };
    const absl::Status status = tuned_->Tune(call);
    EXPECT_TRUE(status.ok()) << status;
    return steps;
  }

  std::string Explained(const DeviceLayer& layer, int64_t m, const std::string& field) {
    const auto explanation = tuned_->Explain(layer, m);
    EXPECT_TRUE(explanation.ok()) << explanation.status();
    for (const auto& [name, value] : explanation->config) {
      if (name == field) return value;
    }
    return "";
  }

  // Runs `m` rows on a layer of the format that is loaded now, and compares with the reference. Returns the
  // kernel's name.
  std::string RunAndCompare(const TunedFormat& format, const StandardTensor& tensor,
                            const std::shared_ptr<DeviceLayer>& layer, int64_t m) {
    GemmCase c;
    c.m = m;
    c.x_type = format.x;
    c.y_type = kBFloat16;
    c.x_scale_columns = format.x_scale_columns;
    c.x_scale_gap = 0;  // every kernel takes them
    c.sampled = 40;
    c.sum_bits = format.sum_bits;
    return RunGemmCase(*runner_, tensor, layer, c, random_).report.kernel;
  }

  std::shared_ptr<TuningStore> store_;
  std::unique_ptr<Device> tuned_;
  std::optional<DeviceRunner> runner_;
};

TEST_F(TuneTest, WhatIsMeasuredIsStoredServesAndIsRight) {
  for (const TunedFormat& format : Formats()) {
    const std::vector<TuneStep> steps = Tune(format.spec, {8, 64});
    ASSERT_EQ(steps.size(), 2u);
    for (const TuneStep& step : steps) {
      ASSERT_EQ(step.outcome, TuneOutcome::kMeasured) << step.message;
      EXPECT_EQ(step.message, "") << "no candidate falls out";
      EXPECT_EQ(step.point.candidates, 4);
      EXPECT_EQ(step.point.samples, 7);
      EXPECT_GT(step.point.ns, 500);  // some megabytes at some terabytes per second
      EXPECT_LT(step.point.ns, 1e6);
      EXPECT_LE(step.point.fastest_ns, step.point.ns);
      EXPECT_GE(step.point.slowest_ns, step.point.ns);
      EXPECT_LE(step.point.ns, step.point.model_choice_ns);
      std::printf("%s M = %lld: %.2f us (%.2f to %.2f), the model's %.2f us: %s\n",
                  step.spec.c_str(), static_cast<long long>(step.point.m), step.point.ns / 1000,
                  step.point.fastest_ns / 1000, step.point.slowest_ns / 1000,
                  step.point.model_choice_ns / 1000, step.kernel.c_str());
    }
    const StandardTensor tensor = RandomTensor(format.spec, kShape, random_);
    const auto layer = runner_->Load(tensor);
    ASSERT_NE(layer, nullptr);
    for (const int64_t m : {3, 8, 40, 64}) {
      const TuneStep& step = steps[m <= 8 ? 0 : 1];
      EXPECT_THAT(Explained(*layer, m, "chosen_by"), StartsWith("measured "));
      EXPECT_EQ(RunAndCompare(format, tensor, layer, m), step.kernel) << m;
      EXPECT_EQ(Explained(*layer, m, "cluster"), absl::StrCat(step.point.tiling.cluster));
    }
    EXPECT_THAT(Explained(*layer, 128, "chosen_by"), StartsWith("the model"));
  }
}

// Tuning may pick any candidate: each must compute the layer.
TEST_F(TuneTest, EveryCandidateComputesTheLayer) {
  constexpr size_t kCandidates = 6;
  constexpr int64_t kTilesAfterTiles = 2600;  // rows of x: blocks get several tiles of every size
  for (const TunedFormat& format : Formats()) {
    const StandardTensor tensor = RandomTensor(format.spec, kShape, random_);
    ASSERT_FALSE(Tune(format.spec, {8}).empty());
    ASSERT_FALSE(store_->List().empty());
    const ElementType x_type = Sm90XTypes(format.spec).front();
    TuningEntry entry;  // of this format: its key and conditions
    for (const StoredTuning& stored : store_->List()) {
      if (stored.entry.key.spec == SpecText(format.spec)) entry = stored.entry;
    }
    ASSERT_EQ(entry.points.size(), 1u);
    for (const int64_t m : {int64_t{8}, int64_t{64}, int64_t{300}, kTilesAfterTiles}) {
      auto candidates = Sm90CandidatesAt(format.spec, kShape, x_type, m);
      const size_t most = m == kTilesAfterTiles ? 2 * kCandidates : kCandidates;
      if (candidates.size() > most) candidates.resize(most);
      for (const Sm90Choice& candidate : candidates) {
        MeasuredPoint point = entry.points.front();
        point.m = m;
        point.tiling = TilingOf(candidate);
        TuningEntry only = entry;
        only.conditions.driver = absl::StrCat("of the test ", m);  // replaces what is there
        only.points = {point};
        ASSERT_TRUE(store_->Put(only).ok());
        const auto layer = runner_->Load(tensor);
        ASSERT_NE(layer, nullptr);
        EXPECT_EQ(RunAndCompare(format, tensor, layer, m), KernelName(candidate.config));
        EXPECT_EQ(Explained(*layer, m, "cluster"), absl::StrCat(candidate.cluster));
        ASSERT_FALSE(HasFailure()) << KernelName(candidate.config) << ", cluster "
                                   << candidate.cluster << ", M " << m;
      }
    }
  }
}

}  // namespace
}  // namespace gemmd::testing

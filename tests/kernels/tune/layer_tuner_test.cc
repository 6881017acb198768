// Tuning on the fake driver: times are what a test says they are, programs are not really compiled.
#include "kernels/layer_tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "kernels/base/status.h"
#include "kernels/contract/element_format.h"
#include "kernels/cuda/context.h"
#include "kernels/gemm.h"
#include "kernels/kernel_store.h"
#include "tests/kernels/fake_compiler.h"
#include "tests/support/fake_driver.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr LayerShape kShape = {1, 512, 1024};
const DeviceClass kDevice = {"Fake GPU", 132, 1980};

QuantSpec Spec() {
  QuantSpec spec;
  spec.weight = IntegerFormat(4);
  spec.scale = kFloat16;
  spec.scale_block_k = 128;
  return spec;
}

// Microseconds that the launches between the last two events took.
float& EventMicroseconds() {
  static float microseconds = 0;
  return microseconds;
}

// Fails kernels in clusters of `bad_cluster`.
class PickyTester : public SelfTester {
 public:
  absl::Status Test(const GemmKernel& kernel, const SelfTestSubject& subject) override {
    if (!subject.is_packed) return absl::OkStatus();
    ++tests;
    if (kernel.cluster != bad_cluster) return absl::OkStatus();
    return Error(loses_context ? absl::StatusCode::kDataLoss : absl::StatusCode::kInternal,
                 "SELF_TEST_FAILED", "it is picky");
  }
  static inline int bad_cluster = 0;
  static inline bool loses_context = false;
  static inline int tests = 0;
};

std::unique_ptr<SelfTester> MakePickyTester(const cuda::DriverTable&) {
  return std::make_unique<PickyTester>();
}

class LayerTunerTest : public ::testing::Test {
 protected:
  LayerTunerTest() : context_(*cuda::PrimaryContext::Retain(fake_.table(), 0)), scope_(context_) {
    PickyTester::bad_cluster = 0;
    PickyTester::loses_context = false;
    PickyTester::tests = 0;
    table_ = fake_.table();
    table_.cuEventElapsedTime = [](float* milliseconds, CUevent, CUevent) {
      *milliseconds = EventMicroseconds() / 1000;
      return CUDA_SUCCESS;
    };
    fake_.OnLaunch([this](const cuda::FakeLaunch& launch) {
      ++launches_;
      const bool is_empty = launch.kernel.find("Empty") != std::string::npos;
      EventMicroseconds() = is_empty ? 2.5f : 2.5f + time_of(launch);
      return result_of(launch);
    });
    Reopen();
  }
  ~LayerTunerTest() override { Close(); }

  void Reopen() {
    Close();
    cache_ = *KernelStore::Open({.directory = compiler_.cache_directory(),
                                 .compile_helper = testing::FakeCompiler::Helper()});
    store_ = TuningStore::Open({.directory = compiler_.cache_directory() / "tuning",
                                .gemmd_version = "0.1.0",
                                .built_in = "{\"schema\": 2, \"entries\": []}"});
    GpuKernelsOptions options;
    options.context = context_.get();
    options.architecture = "sm_90a";
    options.cache = cache_->cache();
    options.serves_meanwhile = true;
    options.make_tester = &MakePickyTester;
    options.tuning = store_;
    options.device = kDevice;
    options.l2_bytes = 1024;
    kernels_.emplace(table_, std::move(options));
  }
  void Close() {
    if (cache_ != nullptr) cache_->Close();
    kernels_.reset();
    cache_.reset();
  }

  TuneSettings Settings(const std::vector<int64_t>& rows = {8, 64}) const {
    TuneSettings settings;
    settings.rows = rows;
    settings.samples = 3;
    settings.flush_bytes = 4096;
    return settings;
  }
  absl::Status Tune(const TuneSettings& settings, const TuningControl& control = {},
                    const std::vector<TuneLayer>& layers = {{Spec(), kShape}}) {
    steps_.clear();
    return kernels_->Tune(layers, settings, control, [this](const TuneStep& step) {
      steps_.push_back(step);
      return static_cast<int>(steps_.size()) != cancel_at_;
    });
  }
  std::optional<TuningEntry> Stored(const LayerShape& shape = kShape) const {
    return store_->Find(TuningKeyOf(kDevice, Spec(), shape, ElementType::kBFloat16));
  }
  // What a plan of the layer shows of the kernel for M.
  std::string ChosenByAt(int64_t m) {
    const auto layer = kernels_->PlanLayer(Spec(), kShape, "", absl::InfiniteFuture());
    EXPECT_TRUE(layer.ok()) << layer.status();
    const GemmKernel& kernel = (*layer)->plan()->packed.at(0).plan.KernelFor(m);
    for (const auto& [name, value] : kernel.config) {
      if (name == "chosen_by") return value;
    }
    return "";
  }

  testing::FakeCompiler compiler_;
  cuda::FakeDriver fake_;
  cuda::DriverTable table_;
  cuda::PrimaryContext context_;
  cuda::ScopedContext scope_;
  int launches_ = 0;
  int cancel_at_ = 0;
  // Large clusters are slow: others than the model's win.
  std::function<float(const cuda::FakeLaunch&)> time_of = [](const cuda::FakeLaunch& launch) {
    return 30.0f - static_cast<float>(launch.cluster_x);
  };
  std::function<CUresult(const cuda::FakeLaunch&)> result_of = [](const cuda::FakeLaunch&) {
    return CUDA_SUCCESS;
  };
  std::shared_ptr<KernelStore> cache_;
  std::shared_ptr<TuningStore> store_;
  std::optional<GpuKernels> kernels_;
  std::vector<TuneStep> steps_;
};

TEST_F(LayerTunerTest, TheFastestCandidateIsKeptAndServesFromThenOn) {
  EXPECT_THAT(ChosenByAt(8), StartsWith("the model, which expects "));
  ASSERT_TRUE(Tune(Settings()).ok());
  ASSERT_EQ(steps_.size(), 2u);
  EXPECT_EQ(steps_[1].done, 2);
  EXPECT_EQ(steps_[1].total, 2);
  const auto entry = Stored();
  ASSERT_TRUE(entry.has_value());
  ASSERT_EQ(entry->points.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const MeasuredPoint& point = entry->points[i];
    EXPECT_EQ(steps_[i].point, point);
    // The largest cluster among the candidates that were asked for.
    auto candidates = Sm90CandidatesAt(Spec(), kShape, ElementType::kBFloat16, point.m);
    candidates.resize(6);
    int most = 0;
    for (const Sm90Choice& choice : candidates) most = std::max(most, choice.cluster);
    EXPECT_EQ(point.tiling.cluster, most);
    EXPECT_NEAR(point.ns, 1000 * (30 - most), 2);
    EXPECT_NEAR(point.model_choice_ns, 1000 * (30 - candidates[0].cluster), 2);
    EXPECT_EQ(point.samples, 3);
    EXPECT_EQ(point.candidates, 6);
  }
  EXPECT_NE(entry->points[0].tiling,
            TilingOf(Sm90CandidatesAt(Spec(), kShape, ElementType::kBFloat16, 8)[0]));
  EXPECT_EQ(entry->conditions.kernels, store_->kernels_digest());
  EXPECT_EQ(entry->conditions.flush_bytes, 4096);
  EXPECT_NEAR(entry->conditions.empty_kernel_ns, 2500, 1);
  EXPECT_THAT(ChosenByAt(8), HasSubstr("measured 2"));
  EXPECT_THAT(ChosenByAt(40), HasSubstr("at M = 64"));
  EXPECT_THAT(ChosenByAt(20), HasSubstr("the model"));

  Reopen();  // the next process
  EXPECT_THAT(ChosenByAt(8), HasSubstr("measured 2"));
}

TEST_F(LayerTunerTest, LayersThatAreLoadedFollow) {
  const auto load = [this](const LayerShape& shape) {
    auto layer = kernels_->PlanLayer(Spec(), shape, "", absl::InfiniteFuture());
    EXPECT_TRUE(layer.ok()) << layer.status();
    (*layer)->Specialise();
    EXPECT_TRUE((*layer)->WaitUntilSettled(absl::Now() + absl::Minutes(1)));
    return *std::move(layer);
  };
  const auto layer = load(kShape);
  const auto same = load(kShape);
  const auto other = load({1, 256, 1024});
  const auto before = layer->plan();
  const auto other_before = other->plan();
  ASSERT_TRUE(Tune(Settings({8, 64})).ok());
  for (const auto* one : {&layer, &same}) {
    ASSERT_TRUE((*one)->WaitUntilSettled(absl::Now() + absl::Minutes(1)));
    const auto plan = (*one)->plan();
    ASSERT_EQ(plan->packed.size(), before->packed.size());
    for (size_t i = 0; i < 2; ++i) {
      const MeasuredPoint& point = steps_[i].point;
      const GemmKernel& kernel = plan->packed[0].plan.KernelFor(point.m);
      EXPECT_EQ(kernel.name, steps_[i].kernel);
      EXPECT_EQ(kernel.cluster, point.tiling.cluster);
      EXPECT_NE(kernel.kernel, nullptr);
      EXPECT_NE(kernel.numerics, 0u);
    }
    EXPECT_NE(plan->packed[0].plan.KernelFor(16).kernel, nullptr) << "the model's stay";
    EXPECT_EQ((*one)->progress().pending, 0);
    ASSERT_EQ(plan->invariant.size(), before->invariant.size());
    for (size_t i = 0; i < plan->invariant.size(); ++i) {
      EXPECT_EQ(plan->invariant[i].kernel.name, before->invariant[i].kernel.name);
      EXPECT_EQ(plan->invariant[i].kernel.numerics, before->invariant[i].kernel.numerics);
    }
  }
  EXPECT_EQ(other->plan(), other_before) << "its shape was not tuned";
}

// A kernel that requests with batch invariance wait for is not forgotten when the others are exchanged.
TEST_F(LayerTunerTest, WhatIsWaitedForIsStillToCome) {
  auto layer = *kernels_->PlanLayer(Spec(), kShape, "", absl::InfiniteFuture());
  layer->Specialise();
  ASSERT_TRUE(layer->WaitUntilSettled(absl::Now() + absl::Minutes(1)));
  const DenseRequest invariant{.m = 5, .x_type = ElementType::kFloat16, .batch_invariant = true};
  layer->Note(invariant);
  ASSERT_TRUE(Tune(Settings({8})).ok());
  ASSERT_TRUE(testing::Eventually([&] { return layer->plan()->ArmedFor(invariant) != nullptr; }));
  layer->Note({.m = 8, .x_type = ElementType::kFloat16});
  ASSERT_TRUE(testing::Eventually([&] {
    return layer->plan()->packed[1].plan.KernelFor(8).kernel != nullptr;
  }));
}

TEST_F(LayerTunerTest, EveryLaunchIsMeasuredAsOftenAsAsked) {
  ASSERT_TRUE(Tune(Settings({8})).ok());
  EXPECT_EQ(launches_, 24 + 6 * (2 + 3)) << "an empty kernel, then six lanes";
}

TEST_F(LayerTunerTest, NothingOfItStays) {
  ASSERT_TRUE(Tune(Settings()).ok());
  Close();
  EXPECT_EQ(fake_.Live(), "cuDevicePrimaryCtxRetain 1");
}

TEST_F(LayerTunerTest, ACandidateThatFailsItsSelfTestFallsOutAndIsNamed) {
  time_of = [](const cuda::FakeLaunch& launch) { return launch.cluster_x == 1 ? 1.0f : 10.0f; };
  PickyTester::bad_cluster = 1;
  TuneSettings settings = Settings({64});
  settings.candidates = 64;
  ASSERT_TRUE(Tune(settings).ok());
  ASSERT_EQ(steps_.size(), 1u);
  EXPECT_EQ(steps_[0].outcome, TuneOutcome::kMeasured);
  EXPECT_NE(steps_[0].point.tiling.cluster, 1);
  EXPECT_THAT(steps_[0].message, HasSubstr("it is picky"));
  EXPECT_EQ(kernels_->counts().quarantined, 0u) << "in another cluster it may be right";
}

TEST_F(LayerTunerTest, ACandidateThatCostsTheContextIsQuarantined) {
  PickyTester::bad_cluster =
      Sm90CandidatesAt(Spec(), kShape, ElementType::kBFloat16, 64).front().cluster;
  PickyTester::loses_context = true;
  const absl::Status status = Tune(Settings({64}));
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(ReasonOf(status), "CONTEXT_LOST");
  PickyTester::bad_cluster = 0;
  Reopen();
  ASSERT_TRUE(Tune(Settings({64})).ok());
  EXPECT_THAT(steps_[0].message, HasSubstr("it is picky")) << "it does not run again";
}

TEST_F(LayerTunerTest, KernelsAreTestedOncePerWayToLaunchThem) {
  ASSERT_TRUE(Tune(Settings({64, 128})).ok());
  std::set<std::string> ways;
  for (const int64_t m : {64, 128}) {
    auto candidates = Sm90CandidatesAt(Spec(), kShape, ElementType::kBFloat16, m);
    candidates.resize(6);
    for (const Sm90Choice& choice : candidates) {
      ways.insert(absl::StrCat(RenderProgram(choice.config), choice.cluster, " ", choice.resident));
    }
  }
  EXPECT_EQ(PickyTester::tests, static_cast<int>(ways.size()));
}

TEST_F(LayerTunerTest, WhatDoesNotCompileFallsOut) {
  const auto candidates = Sm90CandidatesAt(Spec(), kShape, ElementType::kBFloat16, 8);
  compiler_.Reject(absl::StrCat("kRowGroups = ", candidates[0].config.row_groups, ";"));
  TuneSettings settings = Settings({8});
  settings.candidates = 64;  // the first ones are the same tile with K in other parts
  ASSERT_TRUE(Tune(settings).ok());
  EXPECT_EQ(steps_[0].outcome, TuneOutcome::kMeasured);
  EXPECT_NE(steps_[0].point.tiling.row_groups, candidates[0].config.row_groups);
  EXPECT_EQ(steps_[0].point.model_choice_ns, 0) << "the model's kernel did not run";
  EXPECT_EQ(steps_[0].model_kernel, "");

  Reopen();
  compiler_.Reject("kTokens");
  ASSERT_TRUE(Tune(Settings({64})).ok());  // none of them is on disk
  EXPECT_EQ(steps_[0].outcome, TuneOutcome::kFailed);
  EXPECT_EQ(steps_[0].point.m, 64);
  EXPECT_THAT(steps_[0].message, HasSubstr("no candidate runs"));
}

TEST_F(LayerTunerTest, ALaunchThatIsRefusedFallsOut) {
  result_of = [](const cuda::FakeLaunch& launch) {
    return launch.cluster_x == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
  };
  TuneSettings settings = Settings({64});
  settings.candidates = 64;
  ASSERT_TRUE(Tune(settings).ok());
  EXPECT_EQ(steps_[0].point.tiling.cluster, 1);
  EXPECT_THAT(steps_[0].message, HasSubstr("cuLaunchKernelEx"));
}

TEST_F(LayerTunerTest, ALayerWithoutChoiceIsNamedAndOthersAreMeasured) {
  QuantSpec generic = Spec();
  generic.has_group_index = true;
  ASSERT_TRUE(Tune(Settings({8}), {}, {{generic, kShape}, {Spec(), kShape}}).ok());
  ASSERT_EQ(steps_.size(), 2u);
  EXPECT_EQ(steps_[0].outcome, TuneOutcome::kNoKernel);
  EXPECT_THAT(steps_[0].message, HasSubstr("group index"));
  EXPECT_EQ(steps_[0].total, 2);
  EXPECT_EQ(steps_[1].outcome, TuneOutcome::kMeasured);
}

TEST_F(LayerTunerTest, MemoryThatIsShortFailsTheLayer) {
  fake_.Fail("cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY, /*skip=*/1);  // after the flush buffer
  ASSERT_TRUE(Tune(Settings({8, 16}), {}, {{Spec(), kShape}, {Spec(), {1, 256, 1024}}}).ok());
  ASSERT_EQ(steps_.size(), 3u);
  EXPECT_EQ(steps_[0].outcome, TuneOutcome::kFailed);
  EXPECT_EQ(steps_[0].done, 2) << "both of its points";
  EXPECT_EQ(steps_[2].done, 4);
  EXPECT_EQ(steps_[2].outcome, TuneOutcome::kMeasured);
}

TEST_F(LayerTunerTest, TheTimeLimitEndsItAndKeepsWhatWasMeasured) {
  TuneSettings settings = Settings({8, 16, 32});
  settings.deadline = absl::Now() + absl::Hours(1);
  TuningControl control;
  // As if the limit came with the second point.
  control.wait = [this]() -> absl::Status {
    if (steps_.empty()) return absl::OkStatus();
    return Error(absl::StatusCode::kDeadlineExceeded, "TIME_LIMIT", "now");
  };
  ASSERT_TRUE(Tune(settings, control).ok());
  ASSERT_EQ(steps_.size(), 2u);
  EXPECT_EQ(steps_[1].outcome, TuneOutcome::kOutOfTime);
  EXPECT_EQ(steps_[1].done, 3);
  EXPECT_THAT(steps_[1].message, HasSubstr("2 points"));
  EXPECT_EQ(Stored()->points.size(), 1u);

  settings.deadline = absl::Now();
  ASSERT_TRUE(Tune(settings).ok());
  ASSERT_EQ(steps_.size(), 1u);
  EXPECT_EQ(steps_[0].outcome, TuneOutcome::kOutOfTime);
}

TEST_F(LayerTunerTest, ACallerThatHasGoneEndsIt) {
  cancel_at_ = 1;
  EXPECT_TRUE(absl::IsCancelled(Tune(Settings({8, 16, 32}))));
  EXPECT_EQ(steps_.size(), 1u);
  EXPECT_EQ(Stored()->points.size(), 1u);
}

TEST_F(LayerTunerTest, OneTypeOfXUnlessAllAreAskedFor) {
  ASSERT_TRUE(Tune(Settings({8})).ok());
  EXPECT_EQ(steps_.size(), 1u);
  TuneSettings settings = Settings({8});
  settings.all_x_types = true;
  ASSERT_TRUE(Tune(settings).ok());
  ASSERT_EQ(steps_.size(), 2u);
  EXPECT_EQ(steps_[1].x_type, ElementTypeName(ElementType::kFloat16));
}

TEST_F(LayerTunerTest, PointsOfAnotherGpuDecideNothing) {
  ASSERT_TRUE(Tune(Settings()).ok());
  TuningEntry other = *Stored();
  other.key.device.clock_mhz = 1755;
  const auto elsewhere = TuningStore::Open({});
  ASSERT_TRUE(elsewhere->Put(other).ok());
  std::filesystem::remove_all(compiler_.cache_directory() / "tuning");
  Reopen();
  ASSERT_TRUE(store_->Import(elsewhere->Export()).ok());
  EXPECT_THAT(ChosenByAt(8), StartsWith("the model, which expects "));
}

}  // namespace
}  // namespace gemmd

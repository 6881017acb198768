// Serve first, specialise after: a GPU's kernels on the fake driver, with a compiler that waits, fails
// or is killed.
#include "kernels/specialiser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "kernels/base/status.h"
#include "kernels/cuda/context.h"
#include "kernels/gemm.h"
#include "kernels/kernel_store.h"
#include "kernels/layer_programs.h"
#include "tests/kernels/fake_compiler.h"
#include "tests/support/fake_driver.h"

namespace gemmd {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSpecialised[] = "gemm_sm90.cuh";   // in the text of every specialised kernel
constexpr char kGeneric[] = "kernels/device/gemm.cuh";  // of every generic one

QuantSpec Spec(int64_t group = 128) {
  QuantSpec spec;
  spec.weight = IntegerFormat(4);
  spec.scale = kFloat16;
  spec.scale_block_k = group;
  return spec;
}

// Fails kernels whose launch has `bad_rows` rows in a tile.
class PickyTester : public SelfTester {
 public:
  absl::Status Test(const GemmKernel& kernel, const SelfTestSubject&) override {
    if (kernel.block_m != bad_rows) return absl::OkStatus();
    return Error(absl::StatusCode::kInternal, "SELF_TEST_FAILED", "it is picky");
  }
  static inline int bad_rows = 0;
};

std::unique_ptr<SelfTester> MakePickyTester(const cuda::DriverTable&) {
  return std::make_unique<PickyTester>();
}

constexpr LayerShape kShape = {1, 512, 1024};

// Specialised kernels of a layer for x of one type; several ranges of M may share one.
int KernelsFor(ElementType x_type, const LayerShape& shape = kShape,
               const QuantSpec& spec = Spec()) {
  std::set<std::string> kernels;
  const LayerPrograms programs = *ProgramsOf(spec, shape, "sm_90a");
  for (const PackedProgram& packed : programs.packed) {
    if (packed.x_type == x_type && !packed.half_sums) kernels.insert(packed.program.source.program);
  }
  return static_cast<int>(kernels.size());
}

class SpecialiserTest : public ::testing::Test {
 protected:
  SpecialiserTest() : context_(*cuda::PrimaryContext::Retain(fake_.table(), 0)), scope_(context_) {
    PickyTester::bad_rows = 0;
    Reopen();
  }
  ~SpecialiserTest() override { Close(); }

  // As a new process of the node: what is on disk is all that is left.
  void Reopen(bool serves_meanwhile = true) {
    Close();
    store_ = *KernelStore::Open({.directory = compiler_.cache_directory(),
                                 .compile_helper = testing::FakeCompiler::Helper(),
                                 .compile_workers = 4});
    GpuKernelsOptions options;
    options.context = context_.get();
    options.architecture = "sm_90a";
    options.cache = store_->cache();
    options.serves_meanwhile = serves_meanwhile;
    options.make_tester = &MakePickyTester;
    options.observer = [this, test = std::this_thread::get_id()](const KernelEvent& event) {
      if (std::this_thread::get_id() != test) {
        ++observers_;
        MutexLock pass(gate_);
      }
      MutexLock lock(mutex_);
      events_.push_back(event);
    };
    kernels_.emplace(fake_.table(), std::move(options));
  }
  void Close() {
    if (store_ != nullptr) store_->Close();
    kernels_.reset();
    store_.reset();
  }
  std::unique_ptr<LayerKernels> Load(const LayerShape& shape = kShape,
                                     const QuantSpec& spec = Spec()) {
    auto layer = kernels_->PlanLayer(spec, shape, "", absl::InfiniteFuture());
    EXPECT_TRUE(layer.ok()) << layer.status();
    if (!layer.ok()) return nullptr;
    (*layer)->Specialise();
    return *std::move(layer);
  }
  static std::string KernelOf(const LayerKernels& layer, const DenseRequest& request) {
    return layer.plan()->DenseKernelFor(request).name;
  }
  static bool Settles(const LayerKernels& layer) {
    return layer.WaitUntilSettled(absl::Now() + absl::Minutes(1));
  }
  std::vector<KernelEvent> Events(KernelEvent::Kind kind) {
    std::vector<KernelEvent> found;
    MutexLock lock(mutex_);
    for (const KernelEvent& event : events_) {
      if (event.kind == kind) found.push_back(event);
    }
    return found;
  }
  jit::CacheStats Cache() const { return store_->cache()->stats(); }
  // Until the cache has every compilation that the held-up compiler keeps.
  bool AllAsked(const LayerKernels& layer) const {
    const auto pending = static_cast<uint64_t>(layer.progress().pending);
    return Eventually([&] {
      const jit::CacheStats cache = Cache();
      // The generic kernels, the one that packs, and those around the GEMMs of experts.
      const bool others_are_done = cache.compilations == 3 + MoeSources("sm_90a").size();
      return others_are_done && cache.running + cache.queued == pending;
    });
  }

  testing::FakeCompiler compiler_;
  cuda::FakeDriver fake_;
  cuda::PrimaryContext context_;
  cuda::ScopedContext scope_;
  Mutex gate_;                      // whoever holds it holds up the specialiser's thread
  std::atomic<int> observers_{0};  // events on that thread
  Mutex mutex_;
  std::vector<KernelEvent> events_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<KernelStore> store_;
  std::optional<GpuKernels> kernels_;
};

TEST_F(SpecialiserTest, GenericKernelServesUntilTheSpecialisedOnesAreThere) {
  compiler_.Hold(kSpecialised);
  const auto layer = Load();
  ASSERT_NE(layer, nullptr);
  const auto before = layer->plan();
  EXPECT_THAT(KernelOf(*layer, {.m = 5}), HasSubstr("gemm_tf32"));
  KernelProgress progress = layer->progress();
  EXPECT_EQ(progress.ready, 0);
  const int guessed = KernelsFor(ElementType::kBFloat16);
  EXPECT_EQ(progress.pending, guessed) << "bfloat16 is the guess";
  EXPECT_EQ(progress.waiting, KernelsFor(ElementType::kFloat16));
  compiler_.Release();
  ASSERT_TRUE(Settles(*layer));
  progress = layer->progress();
  EXPECT_EQ(progress.ready, guessed);
  for (const int64_t m : {1, 16, 100, 1000}) {
    EXPECT_THAT(KernelOf(*layer, {.m = m}), HasSubstr("gemm_sm90_bf16")) << m;
  }
  EXPECT_THAT(before->DenseKernelFor({.m = 5}).name, HasSubstr("gemm_tf32"))
      << "a request keeps the plan that it started with";
  // An event comes a moment after its plan.
  EXPECT_TRUE(Eventually(
      [&] { return Events(KernelEvent::Kind::kReady).size() == size_t(progress.ready); }));
  EXPECT_EQ(kernels_->counts().specialised, progress.ready);
}

TEST_F(SpecialiserTest, BatchInvariantAndOtherRequestsKeepTheGenericKernel) {
  const auto layer = Load();
  ASSERT_TRUE(Settles(*layer));
  const std::string generic = KernelOf(*layer, {.m = 5, .batch_invariant = true});
  EXPECT_THAT(generic, HasSubstr("gemm_tf32"));
  EXPECT_EQ(KernelOf(*layer, {.m = 5, .x_type = ElementType::kFloat32}), generic);
  EXPECT_EQ(KernelOf(*layer, {.m = 5, .has_group_scale = true}), generic);
  EXPECT_EQ(KernelOf(*layer, {.m = 5, .x_type = ElementType::kFloat16}), generic)
      << "nobody asked for float16";
}

DenseRequest Invariant(int64_t m, uint64_t numerics = 0,
                       ElementType x_type = ElementType::kBFloat16) {
  DenseRequest request{.m = m, .x_type = x_type, .batch_invariant = true};
  request.numerics = numerics;
  return request;
}

TEST_F(SpecialiserTest, BatchInvariantRequestsChangeTheirKernelWhereTheyNameItOnly) {
  compiler_.Hold(kSpecialised);
  const auto layer = Load();
  const uint64_t generic = (*layer->plan()->Serve(Invariant(5)))->numerics;
  EXPECT_NE(generic, 0u);
  EXPECT_EQ(layer->plan()->ArmedFor(Invariant(5)), nullptr);
  EXPECT_EQ(ReasonOf(layer->plan()->Serve(Invariant(5, generic + 1)).status()),
            "NUMERICS_NOT_READY");
  compiler_.Release();
  ASSERT_TRUE(Settles(*layer));
  const auto plan = layer->plan();
  const GemmKernel* const armed = plan->ArmedFor(Invariant(5));
  ASSERT_NE(armed, nullptr);
  const uint64_t numerics = armed->numerics;
  EXPECT_NE(numerics, 0u);
  EXPECT_NE(numerics, generic);
  std::set<std::string> names;
  for (const int64_t m : {0, 1, 8, 9, 32, 33, 300, 4097, 1 << 24}) {
    EXPECT_EQ((*plan->Serve(Invariant(m)))->numerics, generic) << "nobody asked for another, M " << m;
    EXPECT_EQ((*plan->Serve(Invariant(m, generic)))->numerics, generic) << m;
    const auto served = plan->Serve(Invariant(m, numerics));
    ASSERT_TRUE(served.ok()) << served.status();
    EXPECT_EQ((*served)->numerics, numerics) << m;
    names.insert((*served)->name);
  }
  EXPECT_EQ(names.size(), 1u) << "one kernel for every M";
  DenseRequest unmapped = Invariant(5, numerics);
  unmapped.has_x_map = false;
  EXPECT_EQ(*plan->Serve(unmapped), armed) << "how x lies changes no bits";
  const absl::Status other_x = plan->Serve(Invariant(5, numerics, ElementType::kFloat16)).status();
  EXPECT_EQ(ReasonOf(other_x), "NUMERICS_NOT_READY");
  EXPECT_EQ(other_x.code(), absl::StatusCode::kFailedPrecondition);
  DenseRequest scaled = Invariant(5, numerics);
  scaled.has_group_scale = true;
  EXPECT_EQ(ReasonOf(plan->Serve(scaled).status()), "NUMERICS_NOT_READY");
}

TEST_F(SpecialiserTest, ArmedKernelIsToldOnceAndHasTheSameNumericsInTheNextProcess) {
  auto first = Load();
  ASSERT_TRUE(Settles(*first));
  const uint64_t numerics = first->plan()->ArmedFor(Invariant(1))->numerics;
  std::vector<uint64_t> told;
  ASSERT_TRUE(Eventually([&] {
    told.clear();
    for (const KernelEvent& event : Events(KernelEvent::Kind::kReady)) {
      EXPECT_TRUE(event.armed.empty() || event.x_type == ElementType::kBFloat16);
      told.insert(told.end(), event.armed.begin(), event.armed.end());
    }
    return !told.empty();
  }));
  EXPECT_THAT(told, ::testing::ElementsAre(numerics));
  first.reset();
  Reopen();
  const auto next = Load();
  ASSERT_NE(next->plan()->ArmedFor(Invariant(1)), nullptr) << "cached: ready with the layer";
  EXPECT_EQ(next->plan()->ArmedFor(Invariant(1))->numerics, numerics);
}

TEST_F(SpecialiserTest, BatchInvariantRequestsGetTheirOneKernelCompiled) {
  compiler_.Hold(kSpecialised);
  const auto layer = Load();
  ASSERT_TRUE(AllAsked(*layer));
  layer->Note(Invariant(5, 0, ElementType::kFloat16));
  ASSERT_TRUE(Eventually([&] { return Cache().cancelled > 0; })) << "bfloat16 was a wrong guess";
  compiler_.Release();
  ASSERT_TRUE(Eventually(
      [&] { return layer->plan()->ArmedFor(Invariant(5, 0, ElementType::kFloat16)) != nullptr; }));
  ASSERT_TRUE(Settles(*layer));
  EXPECT_EQ(layer->progress().ready, 1);
  EXPECT_EQ(layer->plan()->ArmedFor(Invariant(5)), nullptr);
  layer->Note({.m = 5, .x_type = ElementType::kFloat16});
  ASSERT_TRUE(Eventually(
      [&] { return layer->progress().ready == KernelsFor(ElementType::kFloat16); }));
}

TEST_F(SpecialiserTest, BatchInvariantKernelThatFailsItsSelfTestIsNeverArmed) {
  PickyTester::bad_rows =
      ProgramsOf(Spec(), kShape, "sm_90a")->invariant.front().program.launch.block_m;
  const auto layer = Load();
  ASSERT_TRUE(Settles(*layer));
  EXPECT_EQ(layer->plan()->ArmedFor(Invariant(5)), nullptr);
  for (const KernelEvent& event : Events(KernelEvent::Kind::kReady)) EXPECT_TRUE(event.armed.empty());
}

TEST_F(SpecialiserTest, FirstRequestsTypeTakesThePlaceOfTheGuess) {
  compiler_.Hold(kSpecialised);
  const auto layer = Load();
  ASSERT_TRUE(AllAsked(*layer));
  layer->Note({.m = 5, .x_type = ElementType::kFloat32});
  layer->Note({.m = 5, .x_type = ElementType::kFloat16});
  ASSERT_TRUE(Eventually([&] { return Cache().cancelled > 0; }));
  compiler_.Release();
  const int of_float16 = KernelsFor(ElementType::kFloat16);
  ASSERT_TRUE(Eventually([&] { return layer->progress().ready == of_float16; }));
  EXPECT_THAT(KernelOf(*layer, {.m = 5, .x_type = ElementType::kFloat16}), HasSubstr("sm90_f16"));
  EXPECT_THAT(KernelOf(*layer, {.m = 5}), HasSubstr("gemm_tf32"));
  // The next layer begins with what requests have; this one gets bfloat16 when it comes.
  const LayerShape next_shape = {1, 512, 2048};
  const auto next = Load(next_shape, Spec(64));
  ASSERT_TRUE(Settles(*next));
  EXPECT_THAT(KernelOf(*next, {.m = 5, .x_type = ElementType::kFloat16}), HasSubstr("sm90_f16"));
  EXPECT_EQ(next->progress().waiting, KernelsFor(ElementType::kBFloat16, next_shape, Spec(64)));
  layer->Note({.m = 5});
  ASSERT_TRUE(Eventually([&] { return layer->progress().ready == layer->progress().total; }));
  EXPECT_THAT(KernelOf(*layer, {.m = 5}), HasSubstr("sm90_bf16"));
}

TEST_F(SpecialiserTest, CachedKernelsServeFromTheStart) {
  ASSERT_TRUE(Settles(*Load()));
  Reopen();
  compiler_.Hold("");  // nothing compiles any more
  const auto layer = Load();
  ASSERT_NE(layer, nullptr);
  EXPECT_THAT(KernelOf(*layer, {.m = 5}), HasSubstr("gemm_sm90_bf16"));
  EXPECT_EQ(layer->progress().pending, 0);
  EXPECT_EQ(Cache().compilations, 0u);
}

TEST_F(SpecialiserTest, RangesWithoutTheirKernelFallBackAndSayWhy) {
  compiler_.Reject("kTokens = 16;");
  const auto layer = Load();
  ASSERT_TRUE(Settles(*layer));
  const KernelProgress progress = layer->progress();
  EXPECT_EQ(progress.failed, 1);
  EXPECT_EQ(progress.ready, KernelsFor(ElementType::kBFloat16) - 1);
  EXPECT_THAT(progress.error, HasSubstr("the log")) << "the compiler's";
  EXPECT_THAT(KernelOf(*layer, {.m = 8}), HasSubstr("gemm_sm90"));
  EXPECT_THAT(KernelOf(*layer, {.m = 16}), HasSubstr("gemm_tf32"));
  EXPECT_THAT(KernelOf(*layer, {.m = 17}), HasSubstr("gemm_sm90"));
  ASSERT_TRUE(Eventually([&] { return kernels_->counts().specialised_failed == 1; }));
  ASSERT_TRUE(Eventually([&] { return !Events(KernelEvent::Kind::kFailed).empty(); }));
  const auto failures = Events(KernelEvent::Kind::kFailed);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_THAT(failures[0].kernel, HasSubstr("_16x"));
  EXPECT_EQ(ReasonOf(failures[0].status), "COMPILE_FAILED");
  const auto second = Load();
  ASSERT_TRUE(Settles(*second));
  EXPECT_EQ(second->progress().failed, 1);
  EXPECT_EQ(Events(KernelEvent::Kind::kFailed).size(), 1u) << "said once";
}

TEST_F(SpecialiserTest, KernelThatFailsItsSelfTestIsNotUsedNorTriedAgain) {
  PickyTester::bad_rows = 32;
  auto layer = Load();
  ASSERT_TRUE(Settles(*layer));
  EXPECT_EQ(layer->progress().failed, 1);
  EXPECT_THAT(layer->progress().error, HasSubstr("it is picky"));
  EXPECT_THAT(KernelOf(*layer, {.m = 32}), HasSubstr("gemm_tf32"));
  ASSERT_EQ(Events(KernelEvent::Kind::kQuarantined).size(), 1u);
  EXPECT_EQ(kernels_->counts().quarantined, 1u);
  const auto listed = *store_->List({});
  EXPECT_EQ(std::count_if(listed.begin(), listed.end(),
                          [](const StoredKernel& kernel) {
                            return kernel.problem.find("it is picky") != std::string::npos;
                          }),
            1);
  // A new process that would find nothing wrong does not look.
  PickyTester::bad_rows = 0;
  layer.reset();
  Reopen();
  EXPECT_EQ(Load()->progress().failed, 1);
  EXPECT_TRUE(store_->Verify()->dropped.empty()) << "the entry itself is whole";
  ASSERT_TRUE(store_->Purge({}).ok());
  layer = Load();
  ASSERT_TRUE(Settles(*layer));
  EXPECT_EQ(layer->progress().failed, 0) << "purging gives it another chance";
}

TEST_F(SpecialiserTest, GenericKernelThatFailsItsSelfTestRefusesTheLayer) {
  PickyTester::bad_rows = 64;
  const auto layer = kernels_->PlanLayer(Spec(), kShape, "", absl::InfiniteFuture());
  EXPECT_EQ(ReasonOf(layer.status()), "KERNEL_QUARANTINED");
}

TEST_F(SpecialiserTest, LayersShareKernelsAndCompilations) {
  compiler_.Hold(kSpecialised);
  const auto first = Load();
  const auto second = Load();
  ASSERT_TRUE(AllAsked(*second));
  const int programs = KernelsFor(ElementType::kBFloat16);
  compiler_.Release();
  ASSERT_TRUE(Settles(*first));
  ASSERT_TRUE(Settles(*second));
  EXPECT_EQ(second->progress().ready, programs);
  EXPECT_TRUE(
      Eventually([&] { return Events(KernelEvent::Kind::kReady).size() == size_t(programs); }));
  const auto third = Load();
  EXPECT_EQ(third->progress().ready, programs) << "loaded already";
}

TEST_F(SpecialiserTest, UnloadingStopsCompilationsThatNobodyElseWaitsFor) {
  compiler_.Hold(kSpecialised);
  auto first = Load();
  auto second = Load();
  ASSERT_TRUE(AllAsked(*second));
  first.reset();
  EXPECT_EQ(Cache().cancelled, 0u) << "the other layer waits";
  const absl::Time start = absl::Now();
  second.reset();
  EXPECT_LT(absl::Now() - start, absl::Seconds(1)) << "unloading waits for nothing";
  EXPECT_TRUE(Eventually([&] { return Cache().running == 0 && Cache().queued == 0; }));
  EXPECT_GT(Cache().cancelled, 0u);
  EXPECT_TRUE(Events(KernelEvent::Kind::kFailed).empty());
  compiler_.Release();
  const auto again = Load();
  ASSERT_TRUE(Settles(*again));
  EXPECT_EQ(again->progress().failed, 0);
}

TEST_F(SpecialiserTest, CompilationThatIsWantedAgainBeforeItIsStoppedGoesOn) {
  const LayerPrograms programs = *ProgramsOf(Spec(), kShape, "sm_90a");
  ASSERT_EQ(programs.packed[0].x_type, ElementType::kBFloat16);
  compiler_.Hold(kSpecialised);
  auto layer = Load();
  ASSERT_TRUE(AllAsked(*layer));
  {
    MutexLock lock(gate_);  // the thread that asks and stops waits here with its first news
    compiler_.Hold(programs.packed[0].program.source.program);
    ASSERT_TRUE(Eventually([&] { return observers_ > 0; }));
    layer.reset();
    layer = Load();
    EXPECT_GT(layer->progress().pending, 0);
  }
  compiler_.Release();
  ASSERT_TRUE(Settles(*layer));
  EXPECT_EQ(layer->progress().ready, KernelsFor(ElementType::kBFloat16));
  EXPECT_EQ(Cache().cancelled, 0u) << "nothing is compiled twice";
}

TEST_F(SpecialiserTest, KernelsThatSumInFloat16ComeWithTheFirstRequestThatPermitsThem) {
  constexpr LayerShape kWide = {1, 8192, 8192};
  const DenseRequest plain = {.m = 512, .x_type = ElementType::kFloat16};
  DenseRequest permitted = plain;
  permitted.half_sums = true;
  const auto layer = Load(kWide);
  layer->Note(plain);
  ASSERT_TRUE(Eventually([&] { return layer->plan()->HasAllFor(plain); }));
  const std::string exact = KernelOf(*layer, plain);
  EXPECT_THAT(exact, HasSubstr("sm90_f16"));
  EXPECT_EQ(KernelOf(*layer, permitted), exact) << "serves until the other is there";

  const int before = layer->progress().total;
  layer->Note(permitted);
  ASSERT_TRUE(Eventually([&] { return layer->plan()->HasAllFor(permitted); }));
  EXPECT_EQ(KernelOf(*layer, permitted), exact + "_f16sums");
  EXPECT_GT(layer->progress().total, before);
  EXPECT_EQ(KernelOf(*layer, plain), exact);
  const DenseRequest bfloat16 = {.m = 512, .half_sums = true};
  EXPECT_EQ(KernelOf(*layer, bfloat16), KernelOf(*layer, {.m = 512}));
  permitted.m = 1;  // small tiles have none
  EXPECT_EQ(KernelOf(*layer, permitted), KernelOf(*layer, {.m = 1, .x_type = ElementType::kFloat16}));

  const auto next = Load(kWide);
  EXPECT_EQ(KernelOf(*next, {.m = 512, .x_type = ElementType::kFloat16, .half_sums = true}), exact + "_f16sums")
      << "what is compiled serves from the start";
}

// Where all kernels are waited for, those that sum in float16 still come with their first request.
TEST_F(SpecialiserTest, KernelsThatSumInFloat16AreNotWaitedForUnasked) {
  constexpr LayerShape kWide = {1, 8192, 8192};
  Reopen(/*serves_meanwhile=*/false);
  const DenseRequest permitted = {.m = 512, .x_type = ElementType::kFloat16, .half_sums = true};
  const auto layer = Load(kWide);
  ASSERT_TRUE(Settles(*layer));
  EXPECT_THAT(KernelOf(*layer, permitted), Not(HasSubstr("_f16sums")));
  layer->Note(permitted);
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(KernelOf(*layer, permitted), "_f16sums"); }));
}

TEST_F(SpecialiserTest, ClosingGivesUpWhatUnloadedLayersWanted) {
  compiler_.Hold(kSpecialised);
  auto layer = Load();
  ASSERT_TRUE(AllAsked(*layer));
  layer.reset();
  kernels_.reset();
  EXPECT_TRUE(Eventually([&] { return Cache().running + Cache().queued == 0; }));
}

TEST_F(SpecialiserTest, SpecialisedKernelsCompileBesideTheGenericOnes) {
  compiler_.Hold(kGeneric);
  std::unique_ptr<LayerKernels> layer;
  std::thread loader([&] {
    const cuda::ScopedContext scope(context_);
    layer = Load();
  });
  const auto others = MoeSources("sm_90a").size() + 1 + KernelsFor(ElementType::kBFloat16);
  EXPECT_TRUE(Eventually([&] { return Cache().compilations == others; }));
  EXPECT_TRUE(Eventually([&] { return Cache().running == 2; })) << "the two generic kernels";
  compiler_.Release();
  loader.join();
  ASSERT_NE(layer, nullptr);
  ASSERT_TRUE(Settles(*layer));
  EXPECT_EQ(layer->progress().ready, KernelsFor(ElementType::kBFloat16));
  EXPECT_EQ(Cache().compilations, others + 2) << "each once";
}

TEST_F(SpecialiserTest, LayerThatIsNotMadeLeavesNoCompilationBehind) {
  compiler_.Hold(kSpecialised);
  compiler_.Reject(kGeneric);
  EXPECT_FALSE(kernels_->PlanLayer(Spec(), kShape, "", absl::InfiniteFuture()).ok());
  EXPECT_TRUE(Eventually([&] { return Cache().running + Cache().queued == 0; }));
  EXPECT_GT(Cache().cancelled, 0u);
}

TEST_F(SpecialiserTest, ClosingIsQuickWhileKernelsCompileAndWhileALayerWaits) {
  compiler_.Hold("kernels/device/");
  absl::Status waiting;
  std::thread loader([&] {
    const cuda::ScopedContext scope(context_);
    waiting = kernels_->PlanLayer(Spec(), kShape, "", absl::InfiniteFuture()).status();
  });
  ASSERT_TRUE(Eventually([&] { return Cache().running > 0; }));
  const absl::Time start = absl::Now();
  store_->Close();
  loader.join();
  EXPECT_EQ(waiting.code(), absl::StatusCode::kCancelled);
  Close();
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST_F(SpecialiserTest, LayerAliveAtTheCloseKeepsItsPlanAndReportsNoFault) {
  compiler_.Hold(kSpecialised);
  const auto layer = Load();
  ASSERT_TRUE(AllAsked(*layer));
  store_->Close();
  EXPECT_TRUE(Settles(*layer));
  EXPECT_THAT(KernelOf(*layer, {.m = 5}), HasSubstr("gemm_tf32"));
  EXPECT_TRUE(Events(KernelEvent::Kind::kFailed).empty());
  EXPECT_EQ(kernels_->counts().specialised_failed, 0u);
}

TEST_F(SpecialiserTest, LayerWhoseWeightsCannotBePackedStaysGeneric) {
  auto layer =
      *kernels_->PlanLayer(Spec(), kShape, "weights that are no number", absl::InfiniteFuture());
  layer->Specialise();
  EXPECT_TRUE(layer->plan()->packed.empty());
  EXPECT_TRUE(layer->plan()->invariant.empty());
  EXPECT_EQ(layer->plan()->why_not_packed, "weights that are no number");
  EXPECT_EQ(layer->progress().total, 0);
  EXPECT_THAT(KernelOf(*layer, {.m = 5}), HasSubstr("gemm_tf32"));
}

TEST_F(SpecialiserTest, WhoeverWaitsGetsKernelsOfEveryType) {
  Reopen(/*serves_meanwhile=*/false);
  const auto layer = Load();
  ASSERT_TRUE(Settles(*layer));
  EXPECT_EQ(layer->progress().ready, layer->progress().total);
}

TEST_F(SpecialiserTest, ClientsCompilationsGoBeforeThoseBehindALayer) {
  compiler_.Hold(kSpecialised);
  const auto layer = Load();
  ASSERT_TRUE(AllAsked(*layer));
  // Other formats' generic kernels: had they to wait for the specialised ones, this would hang.
  QuantSpec spec = Spec();
  for (const int bits : {2, 3, 5}) {
    spec.weight = IntegerFormat(bits);
    EXPECT_TRUE(kernels_->PlanLayer(spec, {2, 64, 64}, "", absl::Now() + absl::Seconds(30)).ok());
  }
}

TEST_F(SpecialiserTest, CommonFormatsAreCompiledAheadAndServeTheFirstLayer) {
  kernels_->CompileCommonKernels();
  const size_t common = CommonSources("sm_90a").size();
  EXPECT_GT(common, 10u);
  ASSERT_TRUE(Eventually([&] { return Cache().compilations == common; }));
  compiler_.Hold("");
  EXPECT_NE(Load(), nullptr);
}

// Requests, loads and unloads against each other; ThreadSanitizer reads along.
TEST_F(SpecialiserTest, PlansChangeUnderRequestsAndUnloads) {
  std::atomic<bool> stop{false};
  const auto shared = Load();
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      while (!stop) {
        const DenseRequest request{
            .m = 1 + i, .x_type = i % 2 == 0 ? ElementType::kBFloat16 : ElementType::kFloat16};
        shared->Note(request);
        const auto plan = shared->plan();
        const GemmKernel& kernel = plan->DenseKernelFor(request);
        ASSERT_NE(kernel.kernel, nullptr);
        ASSERT_FALSE(kernel.name.empty());
      }
    });
  }
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      const cuda::ScopedContext scope(context_);
      for (int64_t n = 0; !stop; ++n) {
        const auto layer = Load({1, 512 + 64 * (n % 3), 1024}, Spec(i == 0 ? 128 : 64));
        if (n % 2 == 0) layer->Note({.m = 1, .x_type = ElementType::kFloat16});
      }
    });
  }
  absl::SleepFor(absl::Milliseconds(1500));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(Eventually([&] { return shared->progress().ready == shared->progress().total; }));
}

}  // namespace
}  // namespace gemmd

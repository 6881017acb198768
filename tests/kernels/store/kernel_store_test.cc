#include "kernels/kernel_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "kernels/base/status.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/jit/nvrtc.h"
#include "kernels/layer_programs.h"
#include "kernels/prewarm_target.h"
#include "tests/kernels/fake_compiler.h"

namespace gemmd {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

PrewarmLayer SmallLayer(int64_t experts = 1) {
  PrewarmLayer layer;
  layer.spec.weight = IntegerFormat(4);
  layer.spec.scale = kFloat16;
  layer.spec.scale_block_k = 64;
  layer.shape = {experts, 256, 256};
  return layer;
}

class KernelStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto nvrtc = jit::LoadNvrtc(); !nvrtc.ok()) GTEST_SKIP() << nvrtc.status();
    std::string pattern = (fs::temp_directory_path() / "gemmd_store_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override {
    if (!directory_.empty()) fs::remove_all(directory_);
  }
  std::shared_ptr<KernelStore> Open(const std::string& name = "a") const {
    return *KernelStore::Open({.directory = directory_ / name});
  }
  // Outcomes of a prewarm, counted.
  static std::map<PrewarmOutcome, int> Prewarm(KernelStore& store,
                                               const std::vector<PrewarmLayer>& layers,
                                               const std::vector<std::string>& architectures) {
    std::map<PrewarmOutcome, int> outcomes;
    int last = 0;
    const absl::Status status = store.Prewarm(layers, architectures, [&](const PrewarmStep& step) {
      EXPECT_EQ(step.done, ++last);
      EXPECT_LE(step.done, step.total);
      ++outcomes[step.outcome];
      return true;
    });
    EXPECT_TRUE(status.ok()) << status;
    return outcomes;
  }
  fs::path directory_;
};

TEST_F(KernelStoreTest, PrewarmedKernelsAreThereAfterwardsAndInOtherProcesses) {
  const size_t kernels = LayerSources(SmallLayer().spec, SmallLayer().shape, "sm_80")->size() + 6;
  EXPECT_EQ(Prewarm(*Open(), {SmallLayer()}, {"sm_80"})[PrewarmOutcome::kCompiled],
            static_cast<int>(kernels));
  const auto store = Open();
  EXPECT_EQ(Prewarm(*store, {SmallLayer(), SmallLayer()}, {"sm_80"})[PrewarmOutcome::kCached],
            static_cast<int>(kernels));
  const auto programs = LayerSources(SmallLayer().spec, SmallLayer().shape, "sm_80");
  for (const jit::KernelSource& program : *programs) {
    ASSERT_TRUE(store->cache()->GetOrCompile(program, absl::InfiniteFuture()).ok());
  }
  EXPECT_EQ(store->stats().compilations, 0);
}

TEST_F(KernelStoreTest, ArchitectureWithoutAKernelIsAnAnswerNotAnError) {
  const auto store = Open();
  std::string message;
  const absl::Status status =
      store->Prewarm({SmallLayer()}, {"sm_75"}, [&](const PrewarmStep& step) {
        EXPECT_EQ(step.outcome, PrewarmOutcome::kNoKernel);
        message = step.message;
        return true;
      });
  EXPECT_TRUE(status.ok());
  EXPECT_THAT(message, HasSubstr("sm_75"));
}

TEST_F(KernelStoreTest, BadArchitectureIsRefusedBeforeAnythingIsCompiled) {
  const auto status =
      Open()->Prewarm({SmallLayer()}, {"sm_80", "volta"}, [](const PrewarmStep&) { return true; });
  EXPECT_EQ(ReasonOf(status), "BAD_ARCHITECTURE");
}

TEST_F(KernelStoreTest, CancelledPrewarmStops) {
  const auto store = Open();
  int steps = 0;
  const auto status = store->Prewarm({SmallLayer()}, {"sm_80"}, [&](const PrewarmStep&) {
    ++steps;
    return false;
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(steps, 1);
}

TEST_F(KernelStoreTest, BundleWarmsAnotherMachine) {
  const auto first = Open("a");
  const int kernels = Prewarm(*first, {SmallLayer(4)}, {"sm_80"})[PrewarmOutcome::kCompiled];
  const std::string bundle = first->Export({})->bundle;
  const auto second = Open("b");
  EXPECT_EQ(second->Import(bundle)->imported, kernels);
  EXPECT_EQ(second->Import(bundle)->present, kernels);
  EXPECT_EQ(Prewarm(*second, {SmallLayer(4)}, {"sm_80"})[PrewarmOutcome::kCached], kernels);
  std::string damaged = bundle;
  damaged[damaged.size() / 2] ^= 1;
  const auto third = Open("c");
  EXPECT_EQ(ReasonOf(third->Import(damaged).status()), "BUNDLE_DAMAGED");
  EXPECT_TRUE(third->List({})->empty());
}

TEST_F(KernelStoreTest, ListsVerifiesAndPurges) {
  const auto store = Open();
  const int kernels = Prewarm(*store, {SmallLayer(4)}, {"sm_80"})[PrewarmOutcome::kCompiled];
  const auto listed = *store->List({});
  ASSERT_EQ(listed.size(), kernels);
  EXPECT_EQ(listed[0].architecture, "sm_80");
  EXPECT_THAT(listed[0].usage, HasSubstr("registers"));
  EXPECT_THAT(listed[0].compiler, HasSubstr("13."));
  EXPECT_TRUE(store->List({.architectures = {"sm_90a", "sm_86"}})->empty());
  EXPECT_EQ(store->List({.architectures = {"sm_90a", "sm_80"}})->size(), listed.size());
  EXPECT_TRUE(store->List({.other_compilers = true})->empty());
  EXPECT_EQ(store->List({.key_prefix = listed[1].key.substr(0, 16)})->size(), 1);

  std::ofstream(directory_ / "a" / (listed[0].key + ".kernel")) << "damage";
  const VerifyResult verified = *store->Verify();
  EXPECT_EQ(verified.checked, kernels);
  ASSERT_EQ(verified.dropped.size(), 1);
  EXPECT_EQ(verified.dropped[0].key, listed[0].key);

  EXPECT_EQ(store->Purge({.key_prefix = listed[1].key})->entries, 1);
  EXPECT_EQ(store->Purge({})->entries, kernels - 2);
  EXPECT_TRUE(store->List({})->empty());
}

TEST_F(KernelStoreTest, ListingReadsFactsOnlyAndVerifyingFindsDamageBehindThem) {
  const auto store = Open();
  const int kernels = Prewarm(*store, {SmallLayer(4)}, {"sm_80"})[PrewarmOutcome::kCompiled];
  const std::string key = (*store->List({}))[0].key;
  {
    std::fstream file(directory_ / "a" / (key + ".kernel"),
                      std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-100, std::ios::end);
    file.put('?');
  }
  const absl::StatusOr<std::vector<StoredKernel>> listed = store->List({});
  ASSERT_TRUE(listed.ok());
  for (const StoredKernel& kernel : *listed) EXPECT_EQ(kernel.problem, "");
  const VerifyResult verified = *store->Verify();
  EXPECT_EQ(verified.checked, kernels);
  ASSERT_EQ(verified.dropped.size(), 1u);
  EXPECT_EQ(verified.dropped[0].key, key);
  EXPECT_THAT(verified.dropped[0].problem, HasSubstr("digest"));
}

// Prewarming with a compiler that takes no time, into a directory that may be lost.
class PrewarmTest : public ::testing::Test {
 protected:
  std::shared_ptr<KernelStore> Open(const fs::path& directory) {
    return *KernelStore::Open(
        {.directory = directory, .compile_helper = testing::FakeCompiler::Helper()});
  }
  absl::Status Prewarm(KernelStore& store, const std::string& architecture = "sm_80") {
    steps_.clear();
    return store.Prewarm({SmallLayer()}, {architecture}, [this](const PrewarmStep& step) {
      steps_.push_back(step);
      return true;
    });
  }
  // Every kernel was tried, with this outcome, and what is said of each has `text` in it.
  void ExpectAll(PrewarmOutcome outcome, const std::string& text) const {
    ASSERT_FALSE(steps_.empty());
    EXPECT_EQ(steps_.back().done, steps_.back().total);
    for (const PrewarmStep& step : steps_) {
      EXPECT_EQ(step.outcome, outcome) << step.kernel << ": " << step.message;
      EXPECT_THAT(step.message, HasSubstr(text)) << step.kernel;
    }
  }

  testing::FakeCompiler compiler_;
  const fs::path directory_ = compiler_.cache_directory();
  std::vector<PrewarmStep> steps_;
};

TEST_F(PrewarmTest, KernelsThatDoNotReachTheDirectoryAreToldAndAnErrorAtTheEnd) {
  const auto store = Open(directory_);
  fs::remove_all(directory_);
  absl::Status status = Prewarm(*store);
  EXPECT_EQ(ReasonOf(status), "CACHE_WRITE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("No such file"));
  ExpectAll(PrewarmOutcome::kNotStored, "compiled, but not stored: ");
  const uint64_t kernels = steps_.size();
  EXPECT_EQ(store->stats().write_failures, kernels) << "each counts once";

  EXPECT_EQ(ReasonOf(Prewarm(*store)), "CACHE_WRITE");
  ExpectAll(PrewarmOutcome::kNotStored, "in memory, but not stored: ");

  fs::create_directory(directory_);
  status = Prewarm(*store);
  EXPECT_TRUE(status.ok()) << status;
  ExpectAll(PrewarmOutcome::kCached, "");
  EXPECT_EQ(store->List({})->size(), kernels) << "what was in memory only is on disk now";
  EXPECT_EQ(store->stats().compilations, kernels);
}

TEST_F(PrewarmTest, ADirectoryThatCannotBeUsedIsAnErrorNoneIsNot) {
  std::ofstream{directory_} << "a file";
  EXPECT_EQ(ReasonOf(Prewarm(*Open(directory_))), "CACHE_WRITE");
  ExpectAll(PrewarmOutcome::kNotStored, "no directory");
  EXPECT_TRUE(Prewarm(*Open("")).ok());
  ExpectAll(PrewarmOutcome::kCompiled, "");
}

TEST_F(PrewarmTest, AnEntryThatCannotBeOpenedSaysWhyBeforeItsPath) {
  const auto store = Open(directory_);
  // A socket opens for nobody, not even for root. Renamed, because the path of its birth may have 107 bytes only.
  const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  (directory_ / "s").string().copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  close(file);
  fs::rename(directory_ / "s", directory_ / (std::string(64, 'b') + ".kernel"));
  const auto listed = *store->List({});
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_THAT(listed[0].problem, ::testing::StartsWith("No such device or address: open " + directory_.string()));
}

TEST_F(PrewarmTest, EndsAtOnceWhenTheStoreIsClosed) {
  compiler_.Hold("include");
  const auto store = Open(directory_);
  absl::Status status;
  std::thread prewarm([&] { status = Prewarm(*store); });
  EXPECT_TRUE(testing::Eventually([&] { return store->cache()->stats().running > 0; }));
  store->Close();
  prewarm.join();
  compiler_.Release();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_TRUE(steps_.empty()) << steps_[0].message;
}

TEST_F(PrewarmTest, EndsWithoutWaitingForTheCompilerWhenItsClientHasGone) {
  compiler_.Hold("include");
  const auto store = Open(directory_);
  std::atomic<bool> has_gone{false};
  absl::Status status;
  std::thread prewarm([&] {
    status = store->Prewarm(
        {SmallLayer()}, {"sm_80"}, [](const PrewarmStep&) { return true; }, {},
        [&] { return has_gone.load(); });
  });
  EXPECT_TRUE(testing::Eventually([&] { return store->cache()->stats().running > 0; }));
  has_gone = true;
  prewarm.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_TRUE(testing::Eventually([&] { return store->cache()->stats().running == 0; }))
      << "the helpers are ended";
  compiler_.Release();
}

TEST_F(PrewarmTest, ArchitectureThatTheCompilerDoesNotKnowIsRefusedOnce) {
  const auto store = Open(directory_);
  for (const char* unknown : {"sm_99", "sm_91", "sm_91a", "sm_80a", "sm_90f"}) {
    const absl::Status status = Prewarm(*store, unknown);
    EXPECT_EQ(ReasonOf(status), "BAD_ARCHITECTURE") << unknown;
    EXPECT_THAT(std::string(status.message()), HasSubstr("sm_89, sm_90a, sm_100a, sm_120a")) << unknown;
    EXPECT_TRUE(steps_.empty());
  }
  EXPECT_EQ(store->stats().compilations + store->stats().failed_compilations, 0);
  // Known to neither: what gemmd lacks is said first, as for one that the compiler knows.
  EXPECT_TRUE(Prewarm(*store, "sm_70").ok());
  ExpectAll(PrewarmOutcome::kNoKernel, "sm_70");
}

TEST_F(PrewarmTest, ArchitectureThatNoGpuLooksForIsRefusedWithTheNameThatGpusHave) {
  const auto store = Open(directory_);
  const std::map<std::string, std::string> meant = {
      {"sm_90", "sm_90a"},   {"sm_90f", "sm_90a"},   {"sm_100", "sm_100a"}, {"sm_100f", "sm_100a"},
      {"sm_120", "sm_120a"}, {"sm_120f", "sm_120a"}, {"sm_80a", "sm_80"},   {"sm_75f", "sm_75"}};
  for (const auto& [named, device] : meant) {
    const absl::Status status = Prewarm(*store, named);
    EXPECT_EQ(ReasonOf(status), "BAD_ARCHITECTURE") << named;
    EXPECT_THAT(std::string(status.message()), HasSubstr("did you mean " + device + "?"));
    EXPECT_TRUE(steps_.empty()) << named;
  }
  EXPECT_EQ(store->stats().compilations + store->stats().failed_compilations, 0);
}

TEST_F(PrewarmTest, ArchitectureIsCheckedWhereThereIsNoLayerToo) {
  const auto store = Open(directory_);
  const auto prewarm = [&](const std::string& architecture) {
    return store->Prewarm({}, {architecture}, [](const PrewarmStep&) { return true; });
  };
  for (const char* bad : {"sm_91", "sm_91a", "sm_70", "sm_90", "sm_100f", "volta"}) {
    EXPECT_EQ(ReasonOf(prewarm(bad)), "BAD_ARCHITECTURE") << bad;
  }
  EXPECT_THAT(std::string(prewarm("sm_91").message()), HasSubstr("sm_75, sm_80, sm_86, sm_89, sm_90a"));
  EXPECT_THAT(std::string(prewarm("sm_91").message()), ::testing::Not(HasSubstr("did you mean")));
  for (const char* good : {"sm_75", "sm_80", "sm_90a", "sm_100a"}) {
    EXPECT_TRUE(prewarm(good).ok()) << good << prewarm(good);
  }
}

TEST(PrewarmTargetTest, WithoutACompilerTheNameThatGpusHaveIsAskedForOnly) {
  for (const char* good : {"sm_75", "sm_90a", "sm_103a", "sm_121a", "sm_200a"}) {
    EXPECT_TRUE(CheckPrewarmTarget(good, {}).ok()) << good;
  }
  for (const char* bad : {"sm_90", "sm_103", "sm_103f", "sm_121", "sm_121f", "sm_80a", "sm_9"}) {
    EXPECT_EQ(ReasonOf(CheckPrewarmTarget(bad, {})), "BAD_ARCHITECTURE") << bad;
  }
  EXPECT_EQ(std::string(CheckPrewarmTarget("sm_103f", {}).message()),
            "no GPU looks for kernels of sm_103f, did you mean sm_103a?");
}

TEST(LayerSourcesTest, RowRangesChooseAmongSpecialisedKernels) {
  PrewarmLayer layer = SmallLayer();
  layer.shape = {1, 4096, 4096};
  const auto count = [&](const std::vector<RowRange>& rows) {
    return LayerSources(layer.spec, layer.shape, "sm_90a", rows)->size();
  };
  const auto programs = *ProgramsOf(layer.spec, layer.shape, "sm_90a");
  constexpr size_t kGeneric = 3;  // with the one that packs
  constexpr size_t kTypes = 2;  // of x
  const int64_t first = programs.packed[0].largest_m;
  const int64_t second = programs.packed[1].largest_m;
  ASSERT_EQ(programs.packed[0].x_type, programs.packed[1].x_type);
  // The batch-invariant kernels, for any M, are those of the range with 32 rows.
  ASSERT_LT(second, 32);
  const auto of_every_request = std::count_if(programs.packed.begin(), programs.packed.end(),
                                              [](const PackedProgram& packed) { return !packed.half_sums; });
  EXPECT_LT(static_cast<size_t>(of_every_request), programs.packed.size())
      << "those that a request must permit are not among them";
  EXPECT_EQ(count({}), kGeneric + static_cast<size_t>(of_every_request));
  EXPECT_EQ(count({{1, first}}), kGeneric + 2 * kTypes) << "one range of M";
  EXPECT_EQ(count({{first, first + 1}}), kGeneric + 3 * kTypes) << "both ends count";
  EXPECT_EQ(count({{1, 1}, {32, 32}}), kGeneric + 2 * kTypes);
  EXPECT_EQ(count({{1, 1}, {2, first}}), kGeneric + 2 * kTypes);
  EXPECT_EQ(count({{0, 1 << 30}}), count({}));
}

// What a prewarm tells when `meanwhile` happens as its last kernel is told.
class PrewarmOverflowTest : public KernelStoreTest {
 protected:
  CacheOverflow Prewarm(uint64_t max_bytes, const std::function<void(KernelStore&)>& meanwhile) {
    const auto store = *KernelStore::Open(
        {.directory = directory_ / "a", .max_bytes = max_bytes, .compile_helper = testing::FakeCompiler::Helper()});
    CacheOverflow overflow;
    const absl::Status status = store->Prewarm(
        {SmallLayer()}, {"sm_80"},
        [&](const PrewarmStep& step) {
          kernels_ = step.total;
          if (step.done == step.total) meanwhile(*store);
          return true;
        },
        {}, nullptr, {}, &overflow);
    EXPECT_TRUE(status.ok()) << status;
    return overflow;
  }
  testing::FakeCompiler compiler_;
  int kernels_ = 0;
};

TEST_F(PrewarmOverflowTest, AllStayWhereNothingHappens) {
  const CacheOverflow overflow = Prewarm(4 << 20, [](KernelStore&) {});
  EXPECT_EQ(overflow.entries, 0);
  EXPECT_EQ(overflow.removed, 0);
}

TEST_F(PrewarmOverflowTest, APurgeIsNotBlamedOnTheLimit) {
  const auto purge = [](KernelStore& store) { EXPECT_TRUE(store.Purge({}).ok()); };
  CacheOverflow overflow = Prewarm(4 << 20, purge);
  EXPECT_EQ(overflow.entries, 0);
  EXPECT_EQ(overflow.removed, kernels_);
  // With so little room it could be either: that this process purged is known.
  overflow = Prewarm(overflow.needed_bytes + overflow.needed_bytes / 20, purge);
  EXPECT_EQ(overflow.entries, 0);
  EXPECT_EQ(overflow.removed, kernels_);
}

TEST_F(PrewarmOverflowTest, WhatAnotherProcessRemovedIsNotBlamedOnTheLimitEither) {
  const CacheOverflow overflow = Prewarm(4 << 20, [this](KernelStore& store) {
    fs::remove(directory_ / "a" / ((*store.List({}))[0].key + ".kernel"));
  });
  EXPECT_EQ(overflow.entries, 0);
  EXPECT_EQ(overflow.removed, 1);
}

TEST_F(PrewarmOverflowTest, WhatTheLimitEvictsIs) {
  const CacheOverflow overflow = Prewarm(2048, [](KernelStore&) {});
  EXPECT_GT(overflow.entries, 0);
  EXPECT_EQ(overflow.removed, 0);
  EXPECT_GT(overflow.needed_bytes, overflow.limit_bytes);
}

TEST_F(KernelStoreTest, WithoutADirectoryThereIsNothingToList) {
  const auto store = *KernelStore::Open({});
  EXPECT_EQ(ReasonOf(store->List({}).status()), "NO_CACHE_DIRECTORY");
  EXPECT_EQ(ReasonOf(store->Import("").status()), "NO_CACHE_DIRECTORY");
}

TEST_F(KernelStoreTest, AnArchitectureOfACompilerThatWasReplacedIsNotRefused) {
  testing::FakeCompiler compiler;
  setenv("FAKE_NVRTC_NEWEST", "86", 1);
  const auto store = *KernelStore::Open({.compile_helper = testing::FakeCompiler::Helper()});
  const auto prewarm = [&store] {
    return store->Prewarm({SmallLayer()}, {"sm_89"}, [](const PrewarmStep&) { return true; });
  };
  (void)store->cache()->GetOrCompile({"CRASH", "Kernel", "sm_80"}, absl::InfiniteFuture());  // no helper is alive
  unsetenv("FAKE_NVRTC_NEWEST");
  const absl::Status status = prewarm();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(KernelStoreTest, WithoutADirectoryAPurgeForgetsFailures) {
  testing::FakeCompiler compiler;
  const auto store = *KernelStore::Open({.compile_helper = testing::FakeCompiler::Helper()});
  const auto get = [&store] { return store->cache()->GetOrCompile({"program", "Kernel", "sm_80"}, absl::InfiniteFuture()); };
  compiler.Reject("program");
  EXPECT_FALSE(get().ok());
  compiler.Accept();
  EXPECT_FALSE(get().ok()) << "remembered";
  EXPECT_EQ(ReasonOf(store->Purge({}).status()), "NO_CACHE_DIRECTORY");
  EXPECT_TRUE(get().ok());
}

}  // namespace
}  // namespace gemmd

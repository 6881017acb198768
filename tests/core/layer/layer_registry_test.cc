#include "core/layer/layer_registry.h"

#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "tests/support/fake_device.h"
#include "tests/support/tensors.h"

namespace gemmd {
namespace {

using testing::Barrier;
using testing::FakeDevice;
using testing::FakeState;

// The end of one registration.
class Outcome {
 public:
  void Set(absl::StatusOr<LayerInfo> info) {
    MutexLock lock(mutex_);
    ++calls_;
    info_ = std::move(info);
    changed_.NotifyAll();
  }
  absl::StatusOr<LayerInfo> Wait() {
    MutexLock lock(mutex_);
    changed_.WaitUntil(mutex_, absl::Now() + absl::Seconds(20), [this] { return calls_ > 0; });
    return info_.value_or(absl::DeadlineExceededError("no outcome"));
  }
  int calls() {
    MutexLock lock(mutex_);
    return calls_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::StatusOr<LayerInfo>> info_ ABSL_GUARDED_BY(mutex_);
};

class LayerRegistryTest : public ::testing::Test {
 protected:
  LayerRegistryTest() {
    for (uint64_t session = 1; session <= 10; ++session) registry.AddSession(session);
  }

  // `seed` decides the content.
  LayerOrigin Origin(uint64_t seed, const std::string& identity = "") {
    LayerOrigin origin;
    origin.device = &device;
    origin.identity = identity;
    origin.read = [this,
                   seed](const ReadProgress& progress) -> absl::StatusOr<CheckpointLayer> {
      ++reads;
      if (on_read) on_read();
      if (!progress.reading(1, 2)) {
        return Error(absl::StatusCode::kCancelled, "CANCELLED", "cancelled");
      }
      return CheckpointLayer{testing::RandomTensor(testing::Int4Spec(), {1, 4, 32}, seed), "fake"};
    };
    return origin;
  }

  // One content from a source of that format, quantized with that error; 0: it was so.
  LayerOrigin From(const std::string& format, double error, const std::string& identity = "") {
    LayerOrigin origin = Origin(5, identity);
    origin.read = [read = origin.read, format, error](const ReadProgress& progress) {
      absl::StatusOr<CheckpointLayer> layer = read(progress);
      layer->format = format;
      if (error != 0) layer->quantized = QuantizedHere{ScaleRule::kOcp, {error * error, 1}};
      return layer;
    };
    return origin;
  }
  static std::string TextOf(const LayerInfo& info) {
    if (!info.quantized.has_value()) return info.source_format;
    return absl::StrCat(info.source_format, ", error ", info.quantized->error.relative());
  }

  std::shared_ptr<Outcome> Start(uint64_t session, const std::string& name, LayerOrigin origin,
                                 std::function<bool(const LayerProgress&)> progress = nullptr) {
    auto outcome = std::make_shared<Outcome>();
    registry.Register(
        {session, name, std::move(progress),
         [outcome](absl::StatusOr<LayerInfo> info) { outcome->Set(std::move(info)); }},
        std::move(origin));
    return outcome;
  }
  absl::StatusOr<LayerInfo> Register(uint64_t session, const std::string& name, uint64_t seed,
                                     const std::string& identity = "") {
    return Start(session, name, Origin(seed, identity))->Wait();
  }

  std::shared_ptr<FakeState> state = std::make_shared<FakeState>();
  FakeDevice device{state};
  std::atomic<int> reads{0};
  std::function<void()> on_read;
  Barrier gate;
  LayerRegistry registry{{2, 3, nullptr, 1000}};
};

TEST_F(LayerRegistryTest, TheSameContentFromSeveralSessionsIsOneLayer) {
  const LayerInfo first = Register(1, "a", 5).value();
  const LayerInfo second = Register(2, "b", 5).value();
  EXPECT_EQ(first.layer_id, second.layer_id);
  EXPECT_EQ(second.references, 2);
  EXPECT_EQ(second.name, "b");
  EXPECT_EQ(first.state, LayerState::kReady);
  EXPECT_EQ(state->loads, 1);
  EXPECT_EQ(registry.totals().layers, 1);
  EXPECT_EQ(registry.totals().references, 2);
}

TEST_F(LayerRegistryTest, TenSessionsAtOnceReadAndLoadOnce) {
  on_read = [&] { gate.Wait(); };
  std::vector<std::shared_ptr<Outcome>> outcomes;
  for (uint64_t session = 1; session <= 10; ++session) {
    outcomes.push_back(Start(session, "layer", Origin(5, "same files")));
  }
  gate.Open();
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome->Wait().ok());
  EXPECT_EQ(reads, 1);
  EXPECT_EQ(state->loads, 1);
  EXPECT_EQ(registry.totals().references, 10);
}

TEST_F(LayerRegistryTest, AKnownFileIsInstantForTheSecondClient) {
  const LayerInfo first = Register(1, "a", 5, "files").value();
  const auto second = Start(2, "a", Origin(5, "files"));
  EXPECT_EQ(second->calls(), 1) << "answered inside the call";
  EXPECT_EQ(second->Wait()->layer_id, first.layer_id);
  EXPECT_EQ(reads, 1);
}

TEST_F(LayerRegistryTest, EqualContentOfOtherFilesIsReadButLoadedOnce) {
  state->on_load = [&] {
    gate.Wait();
    return absl::OkStatus();
  };
  const auto first = Start(1, "a", Origin(5, "files 1"));
  gate.WaitForArrivals(1);
  const auto second = Start(2, "a", Origin(5, "files 2"));
  while (reads < 2) absl::SleepFor(absl::Milliseconds(1));
  gate.Open();
  EXPECT_EQ(first->Wait()->layer_id, second->Wait()->layer_id);
  EXPECT_EQ(state->loads, 1);
  EXPECT_EQ(Start(3, "a", Origin(5, "files 2"))->calls(), 1) << "both file sets are known now";
}

TEST_F(LayerRegistryTest, EveryRegistrationIsToldOfTheSourceItNamed) {
  const LayerInfo first = Start(1, "a", From("gptq", 0, "files 1"))->Wait().value();
  const LayerInfo second = Start(2, "b", From("unquantized", 3, "files 2"))->Wait().value();
  ASSERT_EQ(first.layer_id, second.layer_id);
  EXPECT_EQ(TextOf(first), "gptq");
  EXPECT_EQ(TextOf(second), "unquantized, error 3");
  EXPECT_EQ(TextOf(*Start(3, "a", From("tensors", 0))->Wait()), "tensors");
  EXPECT_EQ(TextOf(*Start(4, "a", From("", 0, "files 2"))->Wait()), TextOf(second)) << "known by its files";
  EXPECT_EQ(TextOf(*Start(5, "a", From("", 0, "files 1"))->Wait()), TextOf(first));
  EXPECT_EQ(reads, 3);
  EXPECT_EQ(TextOf(*registry.Info(1, first.layer_id)), TextOf(first));
  EXPECT_EQ(TextOf(registry.List(4).at(0)), TextOf(second));
  ASSERT_EQ(registry.ListAll().size(), 1u);
  EXPECT_EQ(TextOf(registry.ListAll()[0]), "gptq, tensors, unquantized, error 3") << "of all sessions";
  registry.RemoveSession(2);
  registry.RemoveSession(4);
  EXPECT_EQ(TextOf(registry.ListAll()[0]), "gptq, tensors");
}

TEST_F(LayerRegistryTest, ASessionIsToldOfTheSourceOfEachNameItGave) {
  const LayerInfo first = Start(1, "b", From("gptq", 0))->Wait().value();
  EXPECT_EQ(TextOf(*Start(1, "a", From("unquantized", 2))->Wait()), "unquantized, error 2");
  EXPECT_EQ(TextOf(*Start(1, "", From("awq", 0))->Wait()), "awq");
  EXPECT_EQ(TextOf(*registry.Info(1, first.layer_id)), "gptq") << "of the name that is shown";
  EXPECT_EQ(TextOf(*Start(1, "b", From("unquantized", 4))->Wait()), "unquantized, error 4");
  EXPECT_EQ(TextOf(*registry.Info(1, first.layer_id)), "unquantized, error 4") << "its last registration";
}

TEST_F(LayerRegistryTest, WhoWaitsForAnothersLoadIsToldOfTheirOwnSource) {
  state->on_load = [&] {
    gate.Wait();
    return absl::OkStatus();
  };
  const auto first = Start(1, "a", From("gptq", 0, "files 1"));
  gate.WaitForArrivals(1);
  const auto second = Start(2, "a", From("unquantized", 3, "files 2"));
  const auto third = Start(3, "a", From("tensors", 0));
  while (reads < 3 || registry.ListAll().size() > 1) absl::SleepFor(absl::Milliseconds(1));
  const auto joined = Start(4, "a", From("", 0, "files 2"));  // its files are known to be of the first load
  const auto like_first = Start(5, "a", From("", 0, "files 1"));
  gate.Open();
  EXPECT_EQ(TextOf(*first->Wait()), "gptq");
  EXPECT_EQ(TextOf(*second->Wait()), "unquantized, error 3");
  EXPECT_EQ(TextOf(*third->Wait()), "tensors");
  EXPECT_EQ(TextOf(*joined->Wait()), "unquantized, error 3");
  EXPECT_EQ(TextOf(*like_first->Wait()), "gptq");
  EXPECT_EQ(state->loads, 1);
  EXPECT_EQ(TextOf(*Start(6, "a", From("", 0, "files 2"))->Wait()), "unquantized, error 3") << "afterwards too";
}

TEST_F(LayerRegistryTest, RegisteringAgainGivesTheSameLayerAndOneReference) {
  const LayerInfo first = Register(1, "a", 5).value();
  const LayerInfo again = Register(1, "a", 5).value();
  EXPECT_EQ(again.layer_id, first.layer_id);
  EXPECT_EQ(again.references, 1);
  ASSERT_TRUE(registry.Release(1, first.layer_id).ok());
  EXPECT_EQ(state->live_layers, 0);
}

TEST_F(LayerRegistryTest, AReleasedLayerGoesWithItsLastHolder) {
  const uint64_t id = Register(1, "a", 5).value().layer_id;
  ASSERT_TRUE(Register(2, "a", 5).ok());
  auto in_flight = registry.Find(2, id).value();
  ASSERT_TRUE(registry.Release(1, id).ok());
  EXPECT_EQ(ReasonOf(registry.Find(1, id).status()), "NOT_OWNER");
  EXPECT_TRUE(registry.Release(1, id).ok()) << "a repeated call, while another session holds the layer";
  EXPECT_TRUE(registry.Find(2, id).ok());
  ASSERT_TRUE(registry.Release(2, id).ok());
  EXPECT_EQ(ReasonOf(registry.Find(2, id).status()), "LAYER_NOT_FOUND");
  EXPECT_TRUE(registry.Release(2, id).ok()) << "releasing twice is no error";
  EXPECT_EQ(state->live_layers, 1) << "a request still uses it";
  in_flight.layer.reset();
  EXPECT_EQ(state->live_layers, 0);
  EXPECT_TRUE(Register(1, "a", 6).ok()) << "the name is free again";
}

TEST_F(LayerRegistryTest, ANameMayMeanOneContentPerDevice) {
  auto other_state = std::make_shared<FakeState>();
  FakeDevice other(other_state, "cuda:other");
  ASSERT_TRUE(Register(1, "a", 5).ok());
  LayerOrigin elsewhere = Origin(5);
  elsewhere.device = &other;
  const absl::StatusOr<LayerInfo> twin = Start(1, "a", std::move(elsewhere))->Wait();
  ASSERT_TRUE(twin.ok()) << twin.status();
  EXPECT_EQ(twin->name, "a");
  EXPECT_TRUE(registry.Release(1, twin->layer_id).ok());
}

TEST_F(LayerRegistryTest, ANameMeansOneContentPerSession) {
  ASSERT_TRUE(Register(1, "a", 5).ok());
  const absl::Status conflict = Register(1, "a", 6).status();
  EXPECT_EQ(conflict.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReasonOf(conflict), "LAYER_CONFLICT");
  EXPECT_EQ(state->live_layers, 1) << "what was loaded for it is gone";
  EXPECT_TRUE(Register(2, "a", 6).ok()) << "another session is free to";
  EXPECT_TRUE(Register(1, "", 7).ok());
  EXPECT_TRUE(Register(1, "", 8).ok()) << "no name, no conflict";
}

TEST_F(LayerRegistryTest, ReleasingALayerFreesAllItsNames) {
  const uint64_t id = Register(1, "a", 5).value().layer_id;
  EXPECT_EQ(Register(1, "b", 5)->name, "b");
  ASSERT_TRUE(Register(1, "c", 6).ok());
  EXPECT_EQ(Register(1, "", 5)->name, "");
  EXPECT_EQ(registry.Info(1, id)->name, "b") << "the last in the alphabet";
  ASSERT_TRUE(registry.Release(1, id).ok());
  EXPECT_TRUE(Register(1, "a", 7).ok());
  EXPECT_TRUE(Register(1, "b", 8).ok());
  EXPECT_EQ(ReasonOf(Register(1, "c", 9).status()), "LAYER_CONFLICT") << "the other layer's name";
}

TEST_F(LayerRegistryTest, BoundsTheLayersOfASession) {
  for (uint64_t seed = 0; seed < 3; ++seed) ASSERT_TRUE(Register(1, "", seed).ok());
  EXPECT_EQ(ReasonOf(Register(1, "", 3).status()), "QUOTA");
  EXPECT_EQ(state->live_layers, 3);
  EXPECT_TRUE(Register(1, "again", 0).ok()) << "held already";
}

TEST_F(LayerRegistryTest, OneCancelledClientDoesNotDisturbTheOthers) {
  on_read = [&] { gate.Wait(); };
  std::atomic<bool> cancel{false};
  const auto quitter =
      Start(1, "a", Origin(5, "files"), [&](const LayerProgress&) { return !cancel.load(); });
  const auto stayer = Start(2, "a", Origin(5, "files"));
  gate.WaitForArrivals(1);
  cancel = true;
  gate.Open();
  EXPECT_EQ(quitter->Wait().status().code(), absl::StatusCode::kCancelled);
  const auto info = stayer->Wait();
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->references, 1);
}

TEST_F(LayerRegistryTest, WhenAllCancelNothingIsLoadedAndTheNextStartsAfresh) {
  const auto outcome = Start(1, "a", Origin(5, "files"), [](const LayerProgress& progress) {
    return progress.bytes_total == 0;  // the first report, before reading
  });
  EXPECT_EQ(outcome->Wait().status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Register(2, "a", 5, "files").ok());
  EXPECT_EQ(state->loads, 1);
  EXPECT_EQ(outcome->calls(), 1);
}

TEST_F(LayerRegistryTest, TheEndOfASessionEndsItsRegistrationsAtOnce) {
  on_read = [&] { gate.Wait(); };
  const auto reading = Start(1, "a", Origin(5));
  const auto other = Start(2, "a", Origin(6));
  const auto queued = Start(1, "b", Origin(7));  // both loaders are busy
  gate.WaitForArrivals(2);
  registry.RemoveSession(1);
  EXPECT_EQ(reading->calls(), 1);
  EXPECT_EQ(ReasonOf(queued->Wait().status()), "SESSION_ENDED");
  gate.Open();
  EXPECT_TRUE(other->Wait().ok());
  registry.RemoveSession(2);
  EXPECT_EQ(reading->calls(), 1);
  EXPECT_EQ(state->live_layers, 0);
}

TEST_F(LayerRegistryTest, AfterItsEndASessionLearnsThatItEnded) {
  const uint64_t id = Register(1, "a", 5).value().layer_id;
  ASSERT_TRUE(Register(2, "a", 5).ok());
  registry.RemoveSession(1);
  EXPECT_EQ(ReasonOf(registry.Find(1, id).status()), "SESSION_ENDED");
  EXPECT_EQ(ReasonOf(registry.Info(1, id).status()), "SESSION_ENDED");
  EXPECT_TRUE(registry.Release(1, id).ok()) << "nothing is left to release";
  EXPECT_TRUE(registry.Find(2, id).ok());
}

TEST_F(LayerRegistryTest, ASessionThatEndsWhileTheDeviceLoadsHoldsNothing) {
  state->on_load = [&] {
    gate.Wait();
    return absl::OkStatus();
  };
  const auto outcome = Start(1, "a", Origin(5));
  gate.WaitForArrivals(1);
  registry.RemoveSession(1);
  EXPECT_EQ(ReasonOf(outcome->Wait().status()), "SESSION_ENDED");
  gate.Open();
  for (int i = 0;
       i < 1000 && registry.ListAll().size() + static_cast<size_t>(state->live_layers) > 0; ++i) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(state->live_layers, 0);
  EXPECT_EQ(registry.totals().layers, 0);
}

TEST_F(LayerRegistryTest, AFailureReachesEveryWaiterAndIsNotRemembered) {
  std::atomic<bool> fail{true};
  state->on_load = [&]() -> absl::Status {
    gate.Wait();
    if (fail.exchange(false)) return Error(absl::StatusCode::kResourceExhausted, "GPU_OOM", "full");
    return absl::OkStatus();
  };
  const auto first = Start(1, "a", Origin(5, "files"));
  const auto second = Start(2, "a", Origin(5, "files"));
  gate.Open();
  EXPECT_EQ(ReasonOf(first->Wait().status()), "GPU_OOM");
  EXPECT_EQ(ReasonOf(second->Wait().status()), "GPU_OOM");
  EXPECT_TRUE(Register(3, "a", 5, "files").ok());
}

TEST_F(LayerRegistryTest, AnInvalidTensorOrAThrowIsAnErrorOfTheRegistration) {
  LayerOrigin bad = Origin(5);
  bad.read = [](const ReadProgress&) {
    CheckpointLayer layer{testing::RandomTensor(testing::Int4Spec(), {1, 4, 32}, 5), "fake"};
    layer.tensor.codes.pop_back();
    return absl::StatusOr<CheckpointLayer>(std::move(layer));
  };
  EXPECT_EQ(ReasonOf(Start(1, "a", std::move(bad))->Wait().status()), "SHAPE_MISMATCH");
  state->on_load = []() -> absl::Status { throw std::bad_alloc(); };
  const absl::Status no_memory = Register(1, "a", 5).status();
  EXPECT_EQ(no_memory.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(no_memory), "HOST_MEMORY");
  state->on_load = []() -> absl::Status { throw std::runtime_error("of the test"); };
  EXPECT_EQ(Register(1, "a", 5).status().code(), absl::StatusCode::kInternal);
}

TEST_F(LayerRegistryTest, LoadsStartOnlyWhileTheirBytesFitTogether) {
  std::atomic<int> most{0}, running{0};
  on_read = [&] {
    const int now = ++running;
    int seen = most;
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
    absl::SleepFor(absl::Milliseconds(5));
    --running;
  };
  bool measured = false;
  const auto most_at_once = [&](uint64_t bytes, uint64_t first_seed) {
    most = 0;
    std::vector<std::shared_ptr<Outcome>> outcomes;
    for (uint64_t session = 1; session <= 6; ++session) {
      registry.RemoveSession(session);  // and its layers, which would reach the quota
      registry.AddSession(session);
      LayerOrigin origin = Origin(first_seed + session);
      if (measured) {
        origin.measure = [bytes] { return bytes; };
      } else {
        origin.bytes = bytes;
      }
      outcomes.push_back(Start(session, "", std::move(origin)));
    }
    for (const auto& outcome : outcomes) EXPECT_TRUE(outcome->Wait().ok());
    return most.load();
  };
  EXPECT_EQ(most_at_once(501, 100), 1);
  EXPECT_EQ(most_at_once(5000, 200), 1) << "too large for the budget: alone, but not never";
  EXPECT_LE(most_at_once(500, 300), 2);
  measured = true;
  EXPECT_EQ(most_at_once(501, 400), 1);
  EXPECT_EQ(most_at_once(5000, 500), 1);
  EXPECT_LE(most_at_once(500, 600), 2);
}

TEST_F(LayerRegistryTest, LoadsWhoseBytesAreMeasuredAndFitRunTogether) {
  on_read = [this] { gate.Wait(); };
  LayerOrigin one = Origin(1), other = Origin(2);
  std::atomic<int> measured{0};
  one.measure = other.measure = [&measured] { return ++measured, uint64_t{500}; };
  const auto first = Start(1, "", std::move(one));
  const auto second = Start(2, "", std::move(other));
  gate.WaitForArrivals(2);
  gate.Open();
  EXPECT_TRUE(first->Wait().ok());
  EXPECT_TRUE(second->Wait().ok());
  EXPECT_EQ(measured, 2) << "once each";
}

TEST_F(LayerRegistryTest, ALoadWhoseBytesCannotBeMeasuredRuns) {
  LayerOrigin origin = Origin(1);
  origin.measure = []() -> uint64_t { throw std::bad_alloc(); };
  EXPECT_TRUE(Start(1, "", std::move(origin))->Wait().ok());
}

TEST(LayerRegistryMemoryTest, WithoutLoadsNoBuffersAreKept) {
  LayerRegistry idle{{.loader_threads = 2, .keep_buffers = absl::Milliseconds(1)}};
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  { const Buffer given_up = Buffer::Uninitialized(Buffer::kLargeBlock); }
  ASSERT_GT(Buffer::kept_bytes(), 0u);
  // A load wakes a loader, which then waits for the next one.
  FakeDevice device{std::make_shared<FakeState>()};
  idle.AddSession(1);
  LayerOrigin origin;
  origin.device = &device;
  origin.read = [](const ReadProgress&) {
    return absl::StatusOr<CheckpointLayer>(
        CheckpointLayer{testing::RandomTensor(testing::Int4Spec(), {1, 4, 32}, 1), "fake"});
  };
  Outcome outcome;
  idle.Register({1, "", nullptr, [&](absl::StatusOr<LayerInfo> info) { outcome.Set(std::move(info)); }},
                std::move(origin));
  EXPECT_TRUE(outcome.Wait().ok());
  while (Buffer::kept_bytes() > 0 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(Buffer::kept_bytes(), 0u);
}

TEST_F(LayerRegistryTest, TwoLoadsThatFitRunTogether) {
  on_read = [this] { gate.Wait(); };
  LayerOrigin one = Origin(1), other = Origin(2);
  one.bytes = other.bytes = 500;
  const auto first = Start(1, "", std::move(one));
  const auto second = Start(2, "", std::move(other));
  gate.WaitForArrivals(2);
  gate.Open();
  EXPECT_TRUE(first->Wait().ok());
  EXPECT_TRUE(second->Wait().ok());
}

TEST_F(LayerRegistryTest, ShowsLoadsInProgress) {
  on_read = [&] { gate.Wait(); };
  const auto outcome = Start(1, "a", Origin(5));
  gate.WaitForArrivals(1);
  const auto infos = registry.ListAll();
  ASSERT_EQ(infos.size(), 1u);
  EXPECT_EQ(infos[0].state, LayerState::kLoading);
  EXPECT_EQ(infos[0].layer_id, 0u);
  gate.Open();
  ASSERT_TRUE(outcome->Wait().ok());
  ASSERT_EQ(registry.ListAll().size(), 1u);
  EXPECT_EQ(registry.ListAll()[0].state, LayerState::kReady);
}

TEST_F(LayerRegistryTest, ManySessionsAtOnceAlwaysEndWithNothingHeld) {
  std::vector<std::thread> threads;
  for (uint64_t session = 1; session <= 10; ++session) {
    threads.emplace_back([&, session] {
      for (uint64_t round = 0; round < 20; ++round) {
        const auto info = Register(session, "", round % 2, "files " + std::to_string(round % 2));
        ASSERT_TRUE(info.ok()) << info.status();
        ASSERT_TRUE(registry.Find(session, info->layer_id).ok());
        ASSERT_TRUE(registry.Release(session, info->layer_id).ok());
      }
      registry.RemoveSession(session);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(registry.totals().layers, 0);
  EXPECT_EQ(state->live_layers, 0);
}

}  // namespace
}  // namespace gemmd

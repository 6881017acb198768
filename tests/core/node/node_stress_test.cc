// Many clients doing everything at once, and dying at any moment. Run it under TSan.
#include <atomic>
#include <random>
#include <thread>

#include "tests/core/node/node_fixture.h"

namespace gemmd {
namespace {

constexpr int kThreads = 16;

// Codes that a client may get while others and its own end interfere.
bool IsExpected(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  return status.ok() || reason == "SESSION_ENDED" || reason == "REGION_NOT_FOUND" ||
         reason == "LAYER_NOT_FOUND" || reason == "QUEUE_FULL" || reason == "NOT_OWNER";
}

TEST_F(NodeTest, SixteenClientsRegisterSubmitAndDieWithoutLeavingAnything) {
  Create();
  std::atomic<int> answered{0};
  std::atomic<int> asked{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int life = 0; life < 4; ++life) {
        Client client(*node, "socket", 100 + t);
        client.Prepare("cuda:fake", /*seed=*/random() % 3);
        for (int i = 0; i < 10; ++i) {
          ++asked;
          node->SubmitGemm(client.session(), client.Request(), absl::InfiniteFuture(), nullptr,
                           [&](const absl::StatusOr<GemmResult>& result) {
                             EXPECT_TRUE(IsExpected(result.status())) << result.status();
                             ++answered;
                           });
          if (random() % 8 == 0) (void)node->UnregisterRegion(*client.session(), client.x);
          if (random() % 16 == 0) (void)node->ReleaseLayer(*client.session(), client.layer_id);
        }
        client.End();
      }
    });
  }
  std::atomic<bool> stop{false};
  std::thread watcher([&] {
    while (!stop) {
      (void)node->Status();
      (void)node->ListSessions();
      (void)node->ListAllLayers();
    }
  });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  watcher.join();
  EXPECT_TRUE(Soon([&] { return NothingHeld() && answered == asked; }));
  EXPECT_EQ(asked, kThreads * 4 * 10);
}

TEST_F(NodeTest, ASessionEndedFromAnotherThreadAnswersEachRequestOnce) {
  Create();
  for (int round = 0; round < 30; ++round) {
    Client client(*node);
    client.Prepare();
    std::vector<std::shared_ptr<Outcome<GemmResult>>> outcomes;
    std::thread killer([&] {
      absl::SleepFor(absl::Microseconds(50 * (round % 10)));
      client.End();
    });
    for (int i = 0; i < 20; ++i) outcomes.push_back(client.Start(client.Request()));
    killer.join();
    for (const auto& outcome : outcomes) {
      EXPECT_TRUE(IsExpected(outcome->Wait().status()));
    }
    absl::SleepFor(absl::Milliseconds(1));
    for (const auto& outcome : outcomes) EXPECT_EQ(outcome->calls(), 1);
  }
  EXPECT_TRUE(Soon([&] { return NothingHeld(); }));
}

}  // namespace
}  // namespace gemmd

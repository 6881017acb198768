#include <gmock/gmock.h>

#include <thread>

#include "absl/time/clock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/server/fixture.h"

namespace gemmd {
namespace {

using DrainTest = DaemonTest;

TEST_F(DrainTest, FinishesInTimeAlthoughStreamsStayOpen) {
  v1::OpenSessionResponse opened;
  ASSERT_TRUE(sessions_->OpenSession(Context("").get(), {}, &opened).ok());
  const auto keep_context = Context(opened.token());
  const auto keep = sessions_->KeepSession(keep_context.get());
  v1::SessionEvent event;
  ASSERT_TRUE(keep->Read(&event));
  const std::string token = OpenBySocket();
  const auto submit_context = Context(token);
  const auto submit = gemms_->Submit(submit_context.get());  // idle: never writes
  const auto health = grpc::health::v1::Health::NewStub(channel_);
  const auto watch_context = Context("");
  grpc::health::v1::HealthCheckRequest watch_request;
  watch_request.set_service("gemmd.v1.GemmService");
  const auto watch = health->Watch(watch_context.get(), watch_request);
  grpc::health::v1::HealthCheckResponse state;
  ASSERT_TRUE(watch->Read(&state));

  const absl::Time start = absl::Now();
  std::thread stopper([this] { daemon_->Stop(absl::Now() + absl::Seconds(5)); });
  ASSERT_TRUE(keep->Read(&event));
  EXPECT_EQ(event.kind(), v1::SessionEvent::KIND_DRAINING);
  ASSERT_TRUE(watch->Read(&state));
  EXPECT_EQ(state.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(keep->Read(&event));
  EXPECT_EQ(keep->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  submit->Finish();
  stopper.join();
  EXPECT_LT(absl::Now() - start, absl::Seconds(3));
  daemon_.reset();
  EXPECT_FALSE(std::filesystem::exists(directory_ / "g.sock"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "s.sock"));
}

TEST_F(DrainTest, RequestsInFlightAreAnswered) {
  const std::string token = OpenBySocket();
  const v1::GemmRequest gemm = MakeGemm(token, RegisterLayer(token).layer_id(), 4);
  std::atomic<int> ok{0}, draining{0}, other{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100000; ++i) {
        v1::GemmResponse response;
        const grpc::Status status = gemms_->Gemm(Context(token).get(), gemm, &response);
        if (status.ok()) {
          ++ok;
          continue;
        }
        const bool expected = ReasonOf(status) == "DRAINING" ||
                              ReasonOf(status) == "UNKNOWN_SESSION" ||
                              ReasonOf(status) == "SESSION_ENDED" ||
                              status.error_code() == grpc::StatusCode::UNAVAILABLE;
        ++(expected ? draining : other);
        if (!expected) ADD_FAILURE() << status.error_code() << " " << status.error_message();
        return;
      }
    });
  }
  while (ok < 20) absl::SleepFor(absl::Milliseconds(1));
  daemon_->Stop(absl::Now() + absl::Seconds(10));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(other, 0);
  EXPECT_EQ(draining, 4);
}

TEST_F(DrainTest, ANewDaemonTakesOverThePath) {
  for (int i = 0; i < 3; ++i) {
    StartDaemon();
    v1::HelloResponse hello;
    const auto context = Context("");
    context->set_wait_for_ready(true);
    ASSERT_TRUE(sessions_->Hello(context.get(), {}, &hello).ok());
  }
}

}  // namespace
}  // namespace gemmd

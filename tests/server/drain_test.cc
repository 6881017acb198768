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
  const grpc::Status submitted = submit->Finish();
  EXPECT_EQ(submitted.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(submitted), "DRAINING");
  stopper.join();
  EXPECT_LT(absl::Now() - start, absl::Seconds(3));
  daemon_.reset();
  EXPECT_FALSE(std::filesystem::exists(directory_ / "g.sock"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "s.sock"));
}

// Calls of every kind, one after the other, on connections of its own; a pause only after a refusal.
class Hammer {
 public:
  Hammer(const std::string& target, std::string token, v1::GemmRequest gemm)
      : token_(std::move(token)), gemm_(std::move(gemm)) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                     1);  // tries to get in to the last moment
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1);
    const auto channel =
        grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
    sessions_ = v1::SessionService::NewStub(channel);
    regions_ = v1::RegionService::NewStub(channel);
    layers_ = v1::LayerService::NewStub(channel);
    gemms_ = v1::GemmService::NewStub(channel);
    admin_ = v1::AdminService::NewStub(channel);
    thread_ = std::thread([this] { Run(); });
  }
  ~Hammer() { Stop(); }

  void Stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int answered() const { return answered_; }
  int refused() const { return refused_; }
  // Failures that are none of a drain. After Stop.
  const std::vector<std::string>& undocumented() const { return undocumented_; }

 private:
  void Run() {
    for (int i = 0; !stopping_; ++i) {
      const grpc::Status status = Call(i % 8);
      if (status.ok()) {
        ++answered_;
      } else if (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                 ReasonOf(status) == "SESSION_ENDED") {  // its session ended in the middle of it
        ++refused_;
        absl::SleepFor(absl::Milliseconds(1));
      } else {
        undocumented_.push_back(std::to_string(i % 8) + ": " + std::to_string(status.error_code()) +
                                " " + ReasonOf(status) + " " + status.error_message());
      }
    }
  }

  grpc::Status Call(int kind) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    if (kind > 2) context.AddMetadata("gemmd-session-bin", token_);
    switch (kind) {
      case 0: {
        v1::HelloResponse response;
        return sessions_->Hello(&context, {}, &response);
      }
      case 1: {
        v1::OpenSessionResponse response;
        return sessions_->OpenSession(&context, {}, &response);
      }
      case 2: {
        v1::GetStatusResponse response;
        return admin_->GetStatus(&context, {}, &response);
      }
      case 3: {
        v1::GemmResponse response;
        return gemms_->Gemm(&context, gemm_, &response);
      }
      case 4: {
        v1::ListLayersResponse response;
        return layers_->ListLayers(&context, {}, &response);
      }
      case 5: {
        v1::ReadRegionRequest request;
        v1::ReadRegionResponse response;
        *request.mutable_region() = gemm_.y().region();
        request.set_size(8);
        return regions_->ReadRegion(&context, request, &response);
      }
      case 6: {
        const auto stream = sessions_->KeepSession(&context);
        v1::SessionEvent event;
        stream->Read(&event);
        stream->WritesDone();
        while (stream->Read(&event)) {
        }
        return stream->Finish();
      }
      default: {
        const auto stream = gemms_->Submit(&context);
        v1::SubmitRequest request;
        v1::SubmitResponse response;
        *request.mutable_gemm() = gemm_;
        stream->Write(request);
        stream->WritesDone();
        if (stream->Read(&response) && response.code() != 0) {
          return grpc::Status(static_cast<grpc::StatusCode>(response.code()), response.message());
        }
        return stream->Finish();
      }
    }
  }

  const std::string token_;
  const v1::GemmRequest gemm_;
  std::unique_ptr<v1::SessionService::Stub> sessions_;
  std::unique_ptr<v1::RegionService::Stub> regions_;
  std::unique_ptr<v1::LayerService::Stub> layers_;
  std::unique_ptr<v1::GemmService::Stub> gemms_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> answered_{0}, refused_{0};
  std::vector<std::string> undocumented_;  // touched by the thread until it is joined
  std::thread thread_;
};

TEST_F(DrainTest, EveryCallThatADrainRefusesSaysSo) {
  for (int round = 0; round < 2; ++round) {
    StartDaemon();
    const std::string token = OpenBySocket();
    const v1::GemmRequest gemm = MakeGemm(token, RegisterLayer(token).layer_id(), 4);
    std::vector<std::unique_ptr<Hammer>> hammers;
    for (int i = 0; i < 3; ++i) {
      hammers.push_back(std::make_unique<Hammer>("unix:" + directory_ / "g.sock", token, gemm));
    }
    for (const auto& hammer : hammers) {
      while (hammer->answered() < 20) absl::SleepFor(absl::Milliseconds(1));
    }
    daemon_->Stop(absl::Now() + absl::Seconds(10));
    for (const auto& hammer : hammers) {
      hammer->Stop();
      EXPECT_GT(hammer->refused(), 0);
      EXPECT_THAT(hammer->undocumented(), ::testing::IsEmpty());
    }
  }
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
        const bool expected = status.error_code() == grpc::StatusCode::UNAVAILABLE;
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

// A session with more work than a drain waits for: single calls and a stream.
class DrainDeadlineTest : public DrainTest {
 protected:
  static constexpr int kSingle = 20, kStreamed = 10;

  void SetUp() override {
    DrainTest::SetUp();
    token_ = OpenBySocket();
    gemm_ = MakeGemm(token_, RegisterLayer(token_).layer_id(), 100000);
    for (int i = 0; i < kSingle; ++i) {
      threads_.emplace_back([this, i] {
        v1::GemmResponse response;
        single_[i] = gemms_->Gemm(Context(token_).get(), gemm_, &response);
      });
    }
    stream_context_ = Context(token_);
    stream_ = gemms_->Submit(stream_context_.get());
    v1::SubmitRequest request;
    *request.mutable_gemm() = gemm_;
    for (int i = 0; i < kStreamed; ++i) ASSERT_TRUE(stream_->Write(request));
  }
  void TearDown() override {
    for (std::thread& thread : threads_) thread.join();
    DrainTest::TearDown();
  }

  // Stops the daemon at once, in the middle of the requests.
  void StopInTheMiddle() {
    while (daemon_->node().ListSessions()[0].requests < kSingle + kStreamed) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    daemon_->Stop(absl::Now());
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // Reads one answer of the stream, which must be there; whether the deadline cut its request off.
  bool ReadCutOff() {
    v1::SubmitResponse response;
    EXPECT_TRUE(stream_->Read(&response));
    if (response.code() == 0) return false;
    EXPECT_EQ(response.reason(), "SESSION_ENDED") << response.code() << " " << response.message();
    return true;
  }

  std::string token_;
  v1::GemmRequest gemm_;
  std::vector<std::thread> threads_;
  grpc::Status single_[kSingle];
  std::unique_ptr<grpc::ClientContext> stream_context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SubmitRequest, v1::SubmitResponse>> stream_;
};

TEST_F(DrainDeadlineTest, WhatItCutsOffSaysSo) {
  StopInTheMiddle();
  int cut_off = 0;
  for (const grpc::Status& status : single_) {
    if (status.ok()) continue;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
    EXPECT_EQ(ReasonOf(status), "SESSION_ENDED") << status.error_message();
    ++cut_off;
  }
  for (int i = 0; i < kStreamed; ++i) cut_off += ReadCutOff() ? 1 : 0;
  EXPECT_GT(cut_off, 0) << "the requests were too short";
  v1::SubmitResponse response;
  EXPECT_FALSE(stream_->Read(&response));
  const grpc::Status ended = stream_->Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(ended), "DRAINING") << ended.error_message();
}

TEST_F(DrainDeadlineTest, AStreamThatItsClientClosedEndsOk) {
  stream_->WritesDone();
  StopInTheMiddle();
  for (int i = 0; i < kStreamed; ++i) ReadCutOff();
  v1::SubmitResponse response;
  EXPECT_FALSE(stream_->Read(&response));
  const grpc::Status ended = stream_->Finish();
  EXPECT_TRUE(ended.ok()) << ended.error_message();
}

TEST_F(DrainTest, PrewarmIsRefused) {
  const std::string token = OpenBySocket();
  ASSERT_TRUE(daemon_->node().Drain(absl::Now() + absl::Seconds(1)).ok());
  const auto context = Context(token);
  v1::PrewarmRequest request;
  request.set_architecture("sm_80");
  const auto reader = admin_->Prewarm(context.get(), request);
  v1::PrewarmProgress progress;
  EXPECT_FALSE(reader->Read(&progress));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(status), "DRAINING");
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

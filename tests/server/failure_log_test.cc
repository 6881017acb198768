// What a client does to its own calls is no warning in the daemon's log, whichever call it is.
#include "server/failure_log.h"

#include <gmock/gmock.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gemmd/v1/model.grpc.pb.h"
#include "tests/server/fixture.h"
#include "tests/support/eventually.h"

namespace gemmd {
namespace {

TEST(FailureLogTest, OnlyWhatAClientDidToItselfIsNoWarning) {
  const auto level = [](absl::StatusCode code, const std::string& reason) {
    return LevelOf({"rpc", code, reason, "message", absl::ZeroDuration()});
  };
  EXPECT_EQ(level(absl::StatusCode::kCancelled, "CANCELLED"), LogLevel::kDebug);
  EXPECT_EQ(level(absl::StatusCode::kCancelled, ""), LogLevel::kDebug);
  EXPECT_EQ(level(absl::StatusCode::kAborted, "SESSION_ENDED"), LogLevel::kDebug);
  EXPECT_EQ(level(absl::StatusCode::kAborted, "STALE_EPOCH"), LogLevel::kWarn);
  EXPECT_EQ(level(absl::StatusCode::kUnimplemented, "NO_KERNEL"), LogLevel::kWarn);
  EXPECT_EQ(LevelOf({"rpc", absl::StatusCode::kUnimplemented, "", "", absl::ZeroDuration()}),
            LogLevel::kDebug);
  EXPECT_EQ(level(absl::StatusCode::kDeadlineExceeded, ""), LogLevel::kWarn);
  EXPECT_EQ(level(absl::StatusCode::kInvalidArgument, "BAD_CHECKPOINT"), LogLevel::kWarn);
}

class CancelledCallsTest : public DaemonTest {
 protected:
  void SetUp() override {
    StartDaemon({{"checkpoint_roots", kCheckpoints}});
    StartLogging(LogFormat::kJson, LogLevel::kWarn);
    warnings_ = LogMessages(LogLevel::kWarn);
  }
  void TearDown() override {
    StopLogging();
    DaemonTest::TearDown();
  }

  // How many calls of `rpc` ended with CANCELLED.
  int Cancelled(const std::string& rpc) {
    v1::GetMetricsResponse response;
    EXPECT_TRUE(admin_->GetMetrics(Context("").get(), {}, &response).ok());
    for (const absl::string_view line : absl::StrSplit(response.text(), '\n')) {
      const bool is_it = absl::StartsWith(line, "gemmd_rpc_duration_seconds_count{") &&
                         absl::StrContains(line, absl::StrCat("/", rpc, "\"")) &&
                         absl::StrContains(line, "\"CANCELLED\"");
      if (is_it) return std::stoi(std::string(line.substr(line.rfind(' ') + 1)));
    }
    return 0;
  }
  // `call` begins one and cancels it; it may be over before.
  template <typename Call>
  void ExpectNoWarning(const std::string& rpc, Call call) {
    const absl::Time limit = absl::Now() + absl::Seconds(20);
    while (Cancelled(rpc) == 0 && absl::Now() < limit) {
      call();
      absl::SleepFor(absl::Milliseconds(20));
    }
    EXPECT_GT(Cancelled(rpc), 0) << rpc;
    EXPECT_EQ(LogMessages(LogLevel::kWarn), warnings_) << rpc;
  }

  static inline const std::string kCheckpoints =
      std::filesystem::canonical(std::filesystem::path(GEMMD_TEST_DATA) / "checkpoints");
  uint64_t warnings_ = 0;
};

TEST_F(CancelledCallsTest, LeaveNoWarning) {
  const std::string token = OpenBySocket();
  v1::SubmitRequest request;
  *request.mutable_gemm() = MakeGemm(token, RegisterLayer(token).layer_id(), 3);
  ExpectNoWarning("Submit", [&] {
    const auto context = Context(token);
    const auto stream = gemms_->Submit(context.get());
    for (int i = 0; i < 100; ++i) stream->Write(request);
    context->TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  });
  const auto models = v1::ModelService::NewStub(channel_);
  ExpectNoWarning("RegisterModel", [&] {
    const auto context = Context(token);
    v1::RegisterModelRequest model;
    model.set_path(kCheckpoints + "/modelopt_fp8_qwen3moe");
    const auto stream = models->RegisterModel(context.get(), model);
    v1::RegisterModelProgress response;
    EXPECT_TRUE(stream->Read(&response)) << "the call is under way";
    context->TryCancel();
    (void)stream->Finish();
  });
  ExpectNoWarning("ImportCache", [&] {
    const auto context = Context(token);
    v1::ImportCacheResponse response;
    const auto stream = admin_->ImportCache(context.get(), &response);
    context->TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  });
}

// Its requests end with it, and that is all.
TEST_F(CancelledCallsTest, NorDoesAClientThatGoesAway) {
  const std::string token = OpenBySocket();
  v1::SubmitRequest request;
  *request.mutable_gemm() = MakeGemm(token, RegisterLayer(token).layer_id(), 3);
  const auto context = Context(token);
  const auto stream = gemms_->Submit(context.get());
  for (int i = 0; i < 100; ++i) stream->Write(request);
  v1::SubmitResponse response;
  ASSERT_TRUE(stream->Read(&response)) << "the call is under way";
  connections_.clear();
  stream->WritesDone();
  while (stream->Read(&response)) {
    EXPECT_TRUE(response.code() == 0 || response.reason() == "SESSION_ENDED") << response.message();
  }
  (void)stream->Finish();
  EXPECT_EQ(LogMessages(LogLevel::kWarn), warnings_);
}

TEST_F(CancelledCallsTest, WhatTheDaemonRefusesIsAWarning) {
  const std::string token = OpenBySocket();
  // A second has room for ten lines, which tests before may have taken.
  EXPECT_TRUE(testing::Eventually([&] {
    v1::GemmResponse response;
    EXPECT_FALSE(gemms_->Gemm(Context(token).get(), v1::GemmRequest(), &response).ok());
    return LogMessages(LogLevel::kWarn) > warnings_;
  }));
}

}  // namespace
}  // namespace gemmd

// The pipelined stream: order, one answer for every request, recovery.
#include "client/submitter.h"

#include <filesystem>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"
#include "tests/client/fake_daemon.h"

namespace gemmd::client {
namespace {

class SubmitterTest : public testing::Test {
 protected:
  SubmitterTest() {
    char pattern[] = "/tmp/gmsXXXXXX";
    directory_ = mkdtemp(pattern);
    daemon_ = std::make_unique<FakeDaemon>(directory_);
    daemon_->Start();
    SessionOptions options;
    options.address = daemon_->socket_path();
    session_ = std::make_unique<Session>(*Session::Open(options));
    region_ = *session_->AllocateHost(4096);
    layer_ = *session_->RegisterCheckpoint("/c", "m");
  }
  ~SubmitterTest() override {
    region_.Release();
    layer_.Release();
    session_ = nullptr;
    daemon_ = nullptr;
    std::filesystem::remove_all(directory_);
  }
  Gemm gemm() const {
    const Tensor tensor{.region = &region_, .rows = 1, .columns = 8};
    return Gemm{.layer = &layer_, .x = tensor, .y = tensor};
  }

  std::string directory_;
  std::unique_ptr<FakeDaemon> daemon_;
  std::unique_ptr<Session> session_;
  Region region_;
  Layer layer_;
};

TEST_F(SubmitterTest, AnswersInOrderOfSubmission) {
  Submitter submitter(*session_, 8);
  for (uint64_t tag = 0; tag < 100; ++tag) ASSERT_TRUE(submitter.Submit(tag * 3, gemm()).ok());
  for (uint64_t tag = 0; tag < 100; ++tag) {
    const auto answer = submitter.Next(absl::Now() + absl::Seconds(5));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->tag, tag * 3);
    EXPECT_TRUE(answer->status.ok());
    EXPECT_EQ(answer->gemm->report().kernel(), "fake");
  }
  EXPECT_EQ(ReasonOf(submitter.Next().status()), "NOTHING_SUBMITTED");
}

TEST_F(SubmitterTest, GivesEveryRequestOneAnswerWhenTheStreamEnds) {
  daemon_->gemms_before_break = 3;
  Submitter submitter(*session_, 64);
  int submitted = 0;
  for (uint64_t tag = 0; tag < 8; ++tag) submitted += submitter.Submit(tag, gemm()).ok() ? 1 : 0;
  int good = 0;
  int failed = 0;
  for (int i = 0; i < submitted; ++i) {
    const auto answer = submitter.Next(absl::Now() + absl::Seconds(5));
    ASSERT_TRUE(answer.ok()) << answer.status();
    good += answer->status.ok() ? 1 : 0;
    failed += answer->status.code() == absl::StatusCode::kUnavailable ? 1 : 0;
  }
  EXPECT_EQ(good + failed, submitted);
  EXPECT_GE(good, 3);
  EXPECT_GE(failed, 1);
  EXPECT_EQ(ReasonOf(submitter.Next().status()), "NOTHING_SUBMITTED");
}

// Its stream is cancelled by us, which is no sign of a daemon that is gone.
TEST_F(SubmitterTest, LeavesTheSessionAsItWas) {
  for (uint64_t tag = 0; tag < 3; ++tag) {
    Submitter submitter(*session_, 4);
    ASSERT_TRUE(submitter.Submit(tag, gemm()).ok());
    ASSERT_TRUE(submitter.Next(absl::Now() + absl::Seconds(5)).ok());
  }
  EXPECT_TRUE(session_->connected());
  EXPECT_TRUE(session_->AllocateHost(4096).ok());
  EXPECT_EQ(session_->reopened(), 0u);
  EXPECT_EQ(daemon_->calls("RegisterLayer"), 1);
}

TEST_F(SubmitterTest, GoesOnAfterARestartOfTheDaemon) {
  Submitter submitter(*session_, 4);
  ASSERT_TRUE(submitter.Submit(1, gemm()).ok());
  ASSERT_TRUE(submitter.Next()->status.ok());
  daemon_->Stop();
  daemon_->Start();
  ASSERT_TRUE(submitter.Submit(2, gemm()).ok());
  const auto answer = submitter.Next(absl::Now() + absl::Seconds(5));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(answer->status.ok()) << answer->status;
  EXPECT_EQ(answer->tag, 2u);
}

}  // namespace
}  // namespace gemmd::client

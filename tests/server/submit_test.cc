#include <gmock/gmock.h>

#include <thread>

#include "absl/time/clock.h"
#include "tests/server/fixture.h"

namespace gemmd {
namespace {

class SubmitTest : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    token_ = OpenBySocket();
    gemm_ = MakeGemm(token_, RegisterLayer(token_).layer_id(), 3);
  }

  v1::SubmitRequest Good(uint64_t tag) const {
    v1::SubmitRequest request;
    request.set_tag(tag);
    *request.mutable_gemm() = gemm_;
    return request;
  }

  std::string token_;
  v1::GemmRequest gemm_;
};

TEST_F(SubmitTest, AnswersInOrderAndGoesOnAfterErrors) {
  const auto context = Context(token_);
  const auto stream = gemms_->Submit(context.get());
  const auto spoil = [this](uint64_t tag) {
    v1::SubmitRequest request = Good(tag);
    switch (tag % 10) {
      case 3:
        request.clear_gemm();
        break;
      case 5:
        request.mutable_gemm()->set_layer_id(99);
        break;
      case 7:
        request.mutable_gemm()->mutable_x()->set_dtype(static_cast<v1::DataType>(50));
        break;
      default:
        break;
    }
    return request;
  };
  constexpr uint64_t kRequests = 500;
  std::thread writer([&] {
    for (uint64_t tag = 0; tag < kRequests; ++tag) stream->Write(spoil(tag));
    stream->WritesDone();
  });
  v1::SubmitResponse response;
  for (uint64_t tag = 0; tag < kRequests; ++tag) {
    ASSERT_TRUE(stream->Read(&response)) << tag;
    ASSERT_EQ(response.tag(), tag);
    const char* reason = tag % 10 == 3   ? "MISSING_FIELD"
                         : tag % 10 == 5 ? "LAYER_NOT_FOUND"
                         : tag % 10 == 7 ? "UNKNOWN_ENUM"
                                         : "";
    EXPECT_EQ(response.reason(), reason) << tag << ": " << response.message();
    EXPECT_EQ(response.code() == 0, response.has_gemm()) << tag;
  }
  writer.join();
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
  ExpectResult(token_, gemm_);
}

TEST_F(SubmitTest, AClientThatOnlyWritesIsStoppedNotBuffered) {
  const auto context = Context(token_, absl::Minutes(4));
  const auto stream = gemms_->Submit(context.get());
  std::atomic<int> written{0};
  std::atomic<bool> enough{false};
  std::thread writer([&] {
    for (int i = 0; i < 1000000 && !enough && stream->Write(Good(i)); ++i) ++written;
    stream->WritesDone();
  });
  // Stopped: nothing more is taken for half a second.
  int before = -1;
  for (int i = 0; i < 120 && before != written; ++i) {
    before = written;
    absl::SleepFor(absl::Milliseconds(500));
  }
  EXPECT_LT(written, 1000000) << "flow control did not stop the client";
  enough = true;
  v1::SubmitResponse response;
  int read = 0;
  for (; stream->Read(&response); ++read) {
    ASSERT_EQ(response.tag(), static_cast<uint64_t>(read));
    ASSERT_EQ(response.code(), 0) << response.message();
  }
  writer.join();
  EXPECT_EQ(read, written);
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(SubmitTest, ACancelledStreamLeavesTheSessionUsable) {
  for (int round = 0; round < 20; ++round) {
    const auto context = Context(token_);
    const auto stream = gemms_->Submit(context.get());
    for (int i = 0; i < 50; ++i) stream->Write(Good(i));
    context->TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  v1::GemmResponse response;
  const grpc::Status status = gemms_->Gemm(Context(token_).get(), gemm_, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(SubmitTest, ManyClientsAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      SessionSocketClient client(directory_ / "s.sock");
      const std::string token = client.Open();
      const v1::GemmRequest gemm = MakeGemm(token, RegisterLayer(token).layer_id(), 2);
      for (int i = 0; i < 50; ++i) {
        v1::GemmResponse response;
        const grpc::Status status = gemms_->Gemm(Context(token).get(), gemm, &response);
        ASSERT_TRUE(status.ok()) << status.error_message();
      }
      ExpectResult(token, gemm);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gemmd

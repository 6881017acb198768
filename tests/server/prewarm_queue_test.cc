// How many prewarms a daemon lets wait. They are about an architecture without kernels: nothing is compiled.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/base/mutex.h"
#include "tests/client/gemmctl/tool.h"
#include "tests/server/fixture.h"

namespace gemmd {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int kMostWaiting = 64;

v1::PrewarmRequest RequestOf(int layers) {
  v1::PrewarmRequest request;
  request.set_architecture("sm_75");
  for (int i = 0; i < layers; ++i) {
    v1::PrewarmLayer* layer = request.add_shapes();
    layer->mutable_spec()->mutable_weight()->set_kind(v1::NUMBER_KIND_INTEGER);
    layer->mutable_spec()->mutable_weight()->set_bits(4);
    layer->set_n(64 * (i + 1));
    layer->set_k(64);
  }
  return request;
}

// A prewarm that runs until it is destroyed: nobody reads its steps, which are more than the connection takes.
class RunningPrewarm {
 public:
  RunningPrewarm(const std::string& socket, std::unique_ptr<grpc::ClientContext> context)
      : context_(std::move(context)), channel_(Connect(socket)) {
    stub_ = v1::AdminService::NewStub(channel_);
    reader_ = stub_->Prewarm(context_.get(), RequestOf(4000));
    v1::PrewarmProgress plan;
    EXPECT_TRUE(reader_->Read(&plan)) << "it runs";
  }
  ~RunningPrewarm() {
    context_->TryCancel();
    EXPECT_EQ(reader_->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }

 private:
  static std::shared_ptr<grpc::Channel> Connect(const std::string& socket) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // the window stays small
    return grpc::CreateCustomChannel(socket, grpc::InsecureChannelCredentials(), arguments);
  }

  const std::unique_ptr<grpc::ClientContext> context_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::AdminService::Stub> stub_;
  std::unique_ptr<grpc::ClientReader<v1::PrewarmProgress>> reader_;
};

class PrewarmQueueTest : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    token_ = OpenBySocket();
    running_ = std::make_unique<RunningPrewarm>("unix:" + directory_ / "g.sock", Context(token_, absl::Minutes(5)));
  }
  void TearDown() override {
    running_ = nullptr;
    for (std::thread& thread : threads_) thread.join();
    DaemonTest::TearDown();
  }
  void Start(int prewarms) {
    for (int i = 0; i < prewarms; ++i) {
      threads_.emplace_back([this] {
        const auto context = Context(token_, absl::Minutes(5));
        const auto reader = admin_->Prewarm(context.get(), RequestOf(1));
        v1::PrewarmProgress message;
        while (reader->Read(&message)) continue;
        const grpc::Status status = reader->Finish();
        MutexLock lock(mutex_);
        ended_.push_back(status);
      });
    }
  }
  std::vector<grpc::Status> ended() {
    MutexLock lock(mutex_);
    return ended_;
  }
  // Of those that were started, once so many have ended.
  std::vector<grpc::Status> WaitForEnds(size_t count) {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    while (ended().size() < count && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(2));
    return ended();
  }

  std::string token_;
  std::unique_ptr<RunningPrewarm> running_;
  std::vector<std::thread> threads_;
  Mutex mutex_;
  std::vector<grpc::Status> ended_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(PrewarmQueueTest, SixtyFourWaitForTheOneThatRunsTheNextIsRefused) {
  Start(kMostWaiting + 1);
  std::vector<grpc::Status> ends = WaitForEnds(1);
  ASSERT_EQ(ends.size(), 1u) << "the others wait";
  EXPECT_EQ(ends[0].error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(ends[0]), "QUEUE_FULL");
  EXPECT_EQ(ends[0].error_message(),
            "64 prewarms already wait, and one runs at a time: try again when some are done");
  const gemmctl::ToolRun refused =
      gemmctl::Tool({"--socket", daemon_->config().socket, "prewarm", "--running", "--arch", "sm_75"});
  EXPECT_EQ(refused.code, gemmctl::kFailed);
  EXPECT_THAT(refused.err, HasSubstr("64 prewarms already wait"));

  running_ = nullptr;
  ends = WaitForEnds(kMostWaiting + 1);
  ASSERT_EQ(ends.size(), kMostWaiting + 1u);
  for (size_t i = 1; i < ends.size(); ++i) EXPECT_TRUE(ends[i].ok()) << ends[i].error_message();
}

// How many go first, as the stream's first message says; 0: it says nothing of it.
uint32_t FirstWaitsBehind(grpc::ClientReader<v1::PrewarmProgress>& reader) {
  v1::PrewarmProgress first;
  EXPECT_TRUE(reader.Read(&first));
  return first.waits_behind();
}

TEST_F(PrewarmQueueTest, OneThatWaitsSaysBehindHowMany) {
  const auto second_context = Context(token_, absl::Minutes(5));
  const auto second = admin_->Prewarm(second_context.get(), RequestOf(1));
  EXPECT_EQ(FirstWaitsBehind(*second), 1u);
  const auto third_context = Context(token_, absl::Minutes(5));
  const auto third = admin_->Prewarm(third_context.get(), RequestOf(1));
  EXPECT_EQ(FirstWaitsBehind(*third), 2u);
  running_ = nullptr;
  for (auto* reader : {second.get(), third.get()}) {
    v1::PrewarmProgress plan;
    ASSERT_TRUE(reader->Read(&plan));
    EXPECT_EQ(plan.waits_behind(), 0u);
    EXPECT_EQ(plan.layers_size(), 1);
    while (reader->Read(&plan)) EXPECT_EQ(plan.waits_behind(), 0u);
    EXPECT_TRUE(reader->Finish().ok());
  }
}

TEST_F(PrewarmQueueTest, OneThatComesWhenAnotherHasEndedDoesNotWait) {
  running_ = nullptr;
  Start(1);
  ASSERT_EQ(WaitForEnds(1).size(), 1u) << "the one that ran is over";
  for (int i = 0; i < 100; ++i) {
    const auto context = Context(token_, absl::Minutes(1));
    const auto reader = admin_->Prewarm(context.get(), RequestOf(1));
    ASSERT_EQ(FirstWaitsBehind(*reader), 0u) << i;
    v1::PrewarmProgress message;
    while (reader->Read(&message)) continue;
    ASSERT_TRUE(reader->Finish().ok());
  }
}

TEST_F(PrewarmQueueTest, TheToolSaysThatItWaits) {
  gemmctl::ToolRun run;
  std::thread tool([&] {
    run = gemmctl::Tool({"--socket", daemon_->config().socket, "prewarm", "--running", "--arch", "sm_75"});
  });
  // Each probe waits behind one more than the one before, and behind one more still when the tool came between.
  bool waits = false;
  for (uint32_t probes = 0; !waits && probes < kMostWaiting - 1; ++probes) {
    const auto context = Context(token_, absl::Minutes(5));
    const auto reader = admin_->Prewarm(context.get(), RequestOf(1));
    waits = FirstWaitsBehind(*reader) == probes + 2;
    context->TryCancel();
    (void)reader->Finish();
    if (!waits) absl::SleepFor(absl::Milliseconds(100));
  }
  running_ = nullptr;
  tool.join();
  EXPECT_TRUE(waits);
  EXPECT_THAT(run.err, ContainsRegex("waiting: [0-9]+ other prewarms? goe?s? before this one"));
}

}  // namespace
}  // namespace gemmd

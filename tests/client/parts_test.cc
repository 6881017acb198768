// Address resolution, backoff, status conversion, shared host memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/time/clock.h"
#include "client/address.h"
#include "client/host_arena.h"
#include "client/layer.h"
#include "client/retry.h"
#include "client/rpc_status.h"
#include "client/session_state.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"

namespace gemmd::client {
namespace {

class AddressTest : public testing::Test {
 protected:
  AddressTest() {
    unsetenv("GEMMD_SOCKET");
    char pattern[] = "/tmp/gmaXXXXXX";
    runtime_ = mkdtemp(pattern);
    setenv("XDG_RUNTIME_DIR", runtime_.c_str(), 1);
  }
  ~AddressTest() override {
    unsetenv("GEMMD_SOCKET");
    unsetenv("XDG_RUNTIME_DIR");
    std::filesystem::remove_all(runtime_);
  }
  std::string runtime_;
};

TEST_F(AddressTest, PrefersTheExplicitAddressThenTheEnvironmentThenTheRuntimeFolder) {
  std::filesystem::create_directories(runtime_ + "/gemmd");
  std::ofstream(runtime_ + "/gemmd/gemmd.sock") << "";
  EXPECT_EQ(ResolveAddress("")->path, runtime_ + "/gemmd/gemmd.sock");
  setenv("GEMMD_SOCKET", "/from/environment", 1);
  EXPECT_EQ(ResolveAddress("")->path, "/from/environment");
  EXPECT_EQ(ResolveAddress("")->Text(), "/from/environment ($GEMMD_SOCKET)");
  EXPECT_EQ(ResolveAddress("/given")->target, "unix:/given");
}

TEST_F(AddressTest, TakesUnixUrisAndOtherTargets) {
  EXPECT_EQ(ResolveAddress("unix:/a/../b")->path, "/b");
  EXPECT_EQ(ResolveAddress("unix:///c")->path, "/c");
  EXPECT_EQ(ResolveAddress("localhost:50051")->target, "localhost:50051");
  EXPECT_EQ(ResolveAddress("dns:///host:1")->path, "");
  EXPECT_EQ(ResolveAddress("relative.sock")->path,
            std::filesystem::current_path() / "relative.sock");
}

TEST_F(AddressTest, RefusesAPathThatNoSocketAddressHolds) {
  EXPECT_EQ(ReasonOf(ResolveAddress("/" + std::string(120, 'a')).status()), "BAD_ADDRESS");
}

TEST(BackoffTest, GrowsAndEndsWithTheAttempts) {
  Backoff backoff({.max_attempts = 4, .initial_pause = absl::Milliseconds(100)});
  const absl::Status failure = absl::UnavailableError("x");
  absl::Duration last;
  for (int i = 0; i < 3; ++i) {
    const absl::Duration pause = backoff.Next(failure, absl::InfiniteFuture());
    EXPECT_GE(pause, absl::Milliseconds(50) * (1 << i));
    EXPECT_LE(pause, absl::Milliseconds(100) * (1 << i));
    last = pause;
  }
  EXPECT_LT(backoff.Next(failure, absl::InfiniteFuture()), absl::ZeroDuration());
}

TEST(BackoffTest, RepeatsUnavailableOnlyAndNeverPastTheDeadline) {
  Backoff backoff(RetryPolicy{});
  EXPECT_LT(backoff.Next(absl::ResourceExhaustedError("x"), absl::InfiniteFuture()),
            absl::ZeroDuration());
  EXPECT_LT(backoff.Next(absl::UnavailableError("x"), absl::Now()), absl::ZeroDuration());
}

// The daemon takes 256 bytes, and calls equal names of other content a conflict.
TEST(LayerNameTest, LongDefaultNamesAreCutAndStayDifferent) {
  EXPECT_EQ(DefaultLayerName("model.down_proj", ""), "model.down_proj");
  EXPECT_EQ(DefaultLayerName("model.down_proj", "rows 0/2"), "model.down_proj rows 0/2");
  EXPECT_EQ(DefaultLayerName(std::string(256, 'a'), "").size(), 256u);
  const std::string first = DefaultLayerName(std::string(300, 'a'), "rows 0/2");
  const std::string second = DefaultLayerName(std::string(300, 'a'), "rows 1/2");
  EXPECT_EQ(first.size(), 256u);
  EXPECT_NE(first, second);
  EXPECT_EQ(first, DefaultLayerName(std::string(300, 'a'), "rows 0/2"));
  std::string accents;
  for (int i = 0; i < 150; ++i) accents += "\u00e9";  // two bytes each
  const std::string cut = DefaultLayerName(accents, "");
  EXPECT_EQ(cut.size(), 238u + 17u) << "239 would end within a character";
  EXPECT_EQ(cut[238], '~');
}

TEST(RpcStatusTest, KeepsReasonAndRetryDelay) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  info.set_reason("DRAINING");
  details.add_details()->PackFrom(info);
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(2);
  details.add_details()->PackFrom(retry);
  const absl::Status status =
      FromGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "later", details.SerializeAsString()));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(status), "DRAINING");
  EXPECT_EQ(RetryDelayOf(status), absl::Seconds(2));
  EXPECT_FALSE(IsTransportFailure(status));
}

TEST(RpcStatusTest, TellsABrokenTransportFromAnAnswer) {
  const absl::Status status =
      FromGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed"));
  EXPECT_EQ(ReasonOf(status), "CONNECTION_LOST");
  EXPECT_TRUE(IsTransportFailure(status));
  EXPECT_TRUE(FromGrpc(grpc::Status(grpc::StatusCode::NOT_FOUND, "x", "not a message")).code() ==
              absl::StatusCode::kNotFound);
}

TEST(RpcStatusTest, SaysWhatADeadlineWaitedFor) {
  const grpc::Status late(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded");
  EXPECT_EQ(FromGrpc(late, "RegisterLayer").message(), "gemmd did not answer RegisterLayer in time");
  EXPECT_TRUE(absl::IsDeadlineExceeded(FromGrpc(late)));
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  info.set_reason("DEADLINE");
  details.add_details()->PackFrom(info);
  const grpc::Status told(grpc::StatusCode::DEADLINE_EXCEEDED, "row 5 of 9", details.SerializeAsString());
  EXPECT_EQ(FromGrpc(told, "Gemm").message(), "row 5 of 9") << "the daemon's own words stay";
}

TEST(RpcStatusTest, TakesACancellationWithoutReasonForAServerThatShutsDown) {
  const absl::Status status = FromGrpc(grpc::Status(grpc::StatusCode::CANCELLED, "CANCELLED"));
  EXPECT_TRUE(IsTransportFailure(status)) << status;
}

TEST(HostArenaTest, CannotChangeItsSizeAnyMore) {
  const auto arena = HostArena::Create(10000, "test");
  ASSERT_TRUE(arena.ok());
  (*arena)->data()[9999] = std::byte{7};
  EXPECT_NE(ftruncate((*arena)->fd(), 1), 0);
  EXPECT_EQ(fcntl((*arena)->fd(), F_GET_SEALS) & F_SEAL_SHRINK, F_SEAL_SHRINK);
  EXPECT_FALSE(HostArena::Create(0, "test").ok());
}

TEST(LayerUsesTest, ReleasesAfterRegistrationsInFlight) {
  LayerUses uses;
  uses.BeginRegister(5);
  EXPECT_TRUE(uses.EndRegister(5, 42).empty());
  uses.BeginRegister(5);  // may return 42 again
  EXPECT_FALSE(uses.Drop(5, 42));
  EXPECT_EQ(uses.EndRegister(5, 7), (std::set<uint64_t>{42}));
  uses.BeginRegister(5);
  EXPECT_FALSE(uses.Drop(5, 7));
  EXPECT_TRUE(uses.EndRegister(5, 7).empty());  // taken up again: nothing to release
  EXPECT_TRUE(uses.Drop(5, 7));
}

TEST(LayerUsesTest, KnowsWhatNobodyUses) {
  LayerUses uses;
  EXPECT_EQ(uses.Unused(5, {7, 42}), (std::set<uint64_t>{7, 42})) << "a link without registrations";
  uses.BeginRegister(5);
  uses.EndRegister(5, 42);
  EXPECT_EQ(uses.Unused(5, {7, 42}), (std::set<uint64_t>{7}));
  uses.BeginRegister(5);  // may return 7
  EXPECT_TRUE(uses.Unused(5, {7, 42}).empty());
  uses.EndRegister(5, 0);
  EXPECT_TRUE(uses.Drop(5, 42));
  EXPECT_EQ(uses.Unused(5, {7, 42}), (std::set<uint64_t>{7, 42}));
  EXPECT_TRUE(uses.Unused(4, {7, 42}).empty()) << "a link that is gone";
}

TEST(LayerUsesTest, ForgetsCountsOfALostLink) {
  LayerUses uses;
  uses.BeginRegister(5);
  uses.EndRegister(5, 42);
  uses.BeginRegister(6);
  EXPECT_TRUE(uses.EndRegister(6, 42).empty());
  EXPECT_FALSE(uses.Drop(5, 42));
  EXPECT_TRUE(uses.Drop(6, 42));
}

}  // namespace
}  // namespace gemmd::client

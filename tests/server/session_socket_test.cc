#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "server/logging.h"
#include "tests/server/fixture.h"

namespace gemmd {
namespace {

using SessionSocketTest = DaemonTest;

v1::SessionSocketRequest OpenRequest(const std::string& name = "test") {
  v1::SessionSocketRequest request;
  request.mutable_open()->set_name(name);
  return request;
}

v1::SessionSocketRequest PassRequest(uint64_t bytes) {
  v1::SessionSocketRequest request;
  request.mutable_pass_memory()->set_bytes(bytes);
  return request;
}

// Those whose name begins with `kind`; all when it is empty.
int OpenDescriptors(const std::string& kind = "") {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // another thread has closed it
    const std::string name = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!gone && name.compare(0, kind.size(), kind) == 0) ++count;
  }
  return count;
}

// What clients pass, and their connections. The daemon's search for a compiler opens files meanwhile.
int PassedDescriptors() { return OpenDescriptors("/memfd:") + OpenDescriptors("socket:"); }

TEST_F(SessionSocketTest, OpensASessionWithTheKernelsIdentity) {
  SessionSocketClient client(directory_ / "s.sock");
  EXPECT_EQ(client.Open("worker").size(), 16u);
  const auto sessions = daemon_->node().ListSessions();
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].pid, getpid());
  EXPECT_EQ(sessions[0].uid, geteuid());
  EXPECT_EQ(sessions[0].transport, "socket");
}

TEST_F(SessionSocketTest, EndOfFileEndsTheSession) {
  auto client = std::make_unique<SessionSocketClient>(directory_ / "s.sock");
  client->Open();
  client.reset();
  for (int i = 0; i < 200 && daemon_->node().Status().sessions != 0; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(daemon_->node().Status().sessions, 0);
}

TEST_F(SessionSocketTest, ASessionClosedByRpcIsLoggedAsEndedOnce) {
  ::testing::internal::CaptureStderr();
  StartLogging(LogFormat::kJson, LogLevel::kInfo);
  auto client = std::make_unique<SessionSocketClient>(directory_ / "s.sock");
  const std::string token = client->Open();
  v1::CloseSessionResponse response;
  EXPECT_TRUE(sessions_->CloseSession(Context(token).get(), {}, &response).ok());
  client.reset();
  SessionSocketClient next(directory_ / "s.sock");
  next.Open();  // answered by the thread that has served the end of the first by then
  StopLogging();
  std::vector<std::string> ends;
  for (const auto line : absl::StrSplit(::testing::internal::GetCapturedStderr(), '\n')) {
    if (absl::StrContains(line, "session ended")) ends.emplace_back(line);
  }
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_THAT(ends[0], ::testing::HasSubstr("\"close\""));
}

// Opens a session, leaves the connection to a child of its own, and ends. Only system calls: the caller has
// threads.
[[noreturn]] void OpenForkAndExit(const sockaddr_un& address, const std::string& packet) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  char answer[4096];
  const bool opened =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      send(fd, packet.data(), packet.size(), 0) > 0 && recv(fd, answer, sizeof answer, 0) > 0;
  if (opened && fork() == 0) {
    for (int i = 0; i < 3; ++i)
      close(i);  // whoever waits for the test's output does not wait for it
    sleep(10);
    _exit(0);
  }
  _exit(opened ? 0 : 1);
}

TEST_F(SessionSocketTest, TheEndOfTheProcessEndsTheSessionThoughAForkedChildHoldsItsSocket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = std::string(directory_ / "s.sock");
  ASSERT_LT(path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path.data(), path.size());
  const std::string packet = OpenRequest("forks").SerializeAsString();
  const pid_t client = fork();
  if (client == 0) OpenForkAndExit(address, packet);
  int status = 0;
  ASSERT_EQ(waitpid(client, &status, 0), client);
  ASSERT_EQ(status, 0) << "the client could not open its session";
  for (int i = 0; i < 200 && daemon_->node().Status().sessions != 0; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(daemon_->node().Status().sessions, 0);
}

TEST_F(SessionSocketTest, APassedMemfdServesAGemm) {
  SessionSocketClient client(directory_ / "s.sock");
  const std::string token = client.Open();
  SharedMemory memory(4096);
  constexpr uint64_t kY = 2048;
  for (int k = 0; k < kK; ++k) memory.as<float>()[k] = Input(0, k);
  v1::RegisterRegionRequest region;
  v1::RegisterRegionResponse registered;
  region.set_device("cpu");
  region.mutable_passed()->set_ticket(client.PassMemory(memory.fd(), memory.size()));
  grpc::Status status = regions_->RegisterRegion(Context(token).get(), region, &registered);
  ASSERT_TRUE(status.ok()) << status.error_message();
  v1::GemmRequest gemm = MakeGemm(token, RegisterLayer(token).layer_id(), 1);
  *gemm.mutable_x()->mutable_region() = registered.region();
  *gemm.mutable_y()->mutable_region() = registered.region();
  gemm.mutable_y()->set_byte_offset(kY);
  v1::GemmResponse response;
  status = gemms_->Gemm(Context(token).get(), gemm, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  for (int n = 0; n < kN; ++n) EXPECT_EQ(memory.as<float>(kY)[n], Expected(0, n));
}

TEST_F(SessionSocketTest, BadPacketsAreAnsweredAndTheConnectionLives) {
  SessionSocketClient client(directory_ / "s.sock");
  v1::SessionSocketResponse response;
  client.Send("\xff\xff\xff not a message");
  ASSERT_TRUE(client.Receive(response));
  EXPECT_EQ(response.reason(), "BAD_PACKET");
  client.Send(std::string(5000, 'x'));
  ASSERT_TRUE(client.Receive(response));
  EXPECT_EQ(response.reason(), "OUT_OF_RANGE");
  v1::SessionSocketRequest without_kind;
  without_kind.GetReflection()->MutableUnknownFields(&without_kind)->AddVarint(99, 1);
  EXPECT_EQ(client.Call(without_kind).reason(), "MISSING_FIELD");
  EXPECT_EQ(client.Call(PassRequest(1)).reason(), "NO_SESSION");
  EXPECT_EQ(client.Call(OpenRequest(std::string(300, 'n'))).reason(), "OUT_OF_RANGE");
  client.Open();
  EXPECT_EQ(client.Call(OpenRequest()).reason(), "ALREADY_OPEN");
}

TEST_F(SessionSocketTest, MemoryTakesExactlyOneDescriptorAndNoneLeaks) {
  SessionSocketClient client(directory_ / "s.sock");
  client.Open();
  SharedMemory memory(4096);
  const int before = PassedDescriptors();
  EXPECT_EQ(client.Call(PassRequest(4096)).reason(), "BAD_DESCRIPTOR");
  EXPECT_EQ(client.Call(PassRequest(4096), {memory.fd(), memory.fd()}).reason(), "BAD_DESCRIPTOR");
  const std::vector<int> many(20, memory.fd());
  EXPECT_EQ(client.Call(PassRequest(4096), many).reason(), "BAD_DESCRIPTOR");
  EXPECT_EQ(client.Call(OpenRequest(), {memory.fd()}).reason(), "ALREADY_OPEN");
  EXPECT_EQ(PassedDescriptors(), before);
}

TEST_F(SessionSocketTest, TheRefusalCountsDescriptorsRightlyHoweverManyCame) {
  SessionSocketClient client(directory_ / "s.sock");
  client.Open();
  SharedMemory memory(4096);
  for (const size_t count : {0, 2, 4, 5, 20, 200}) {
    const auto refused = client.Call(PassRequest(4096), std::vector<int>(count, memory.fd()));
    EXPECT_EQ(refused.reason(), "BAD_DESCRIPTOR") << count;
    EXPECT_THAT(refused.message(), ::testing::EndsWith(count == 0 ? "got none" : "got several"));
  }
}

TEST_F(SessionSocketTest, ASessionHoldsAtMostSixteenTicketsAndGetsThemBack) {
  SessionSocketClient client(directory_ / "s.sock"), other(directory_ / "s.sock");
  const std::string token = client.Open();
  other.Open();
  SharedMemory memory(4096);
  uint64_t ticket = 0;
  for (int i = 0; i < 16; ++i) ticket = client.PassMemory(memory.fd(), memory.size());
  EXPECT_EQ(client.Call(PassRequest(4096), {memory.fd()}).reason(), "QUOTA");
  EXPECT_EQ(other.Call(PassRequest(4096), {memory.fd()}).reason(), "");
  v1::RegisterRegionRequest request;
  v1::RegisterRegionResponse response;
  request.set_device("cpu");
  request.mutable_passed()->set_ticket(ticket);
  ASSERT_TRUE(regions_->RegisterRegion(Context(token).get(), request, &response).ok());
  EXPECT_EQ(client.Call(PassRequest(4096), {memory.fd()}).reason(), "");
}

// While it lives, this process (the client and the daemon) can open `free` descriptors more.
class FewDescriptors {
 public:
  explicit FewDescriptors(int free) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit tight = {static_cast<rlim_t>(OpenDescriptors() + 64), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &tight);
    for (int fd = dup(0); fd >= 0; fd = dup(0)) taken_.emplace_back(fd);
    EXPECT_EQ(errno, EMFILE);
    for (int i = 0; i < free; ++i) taken_.pop_back();
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<UniqueFd> taken_;
};

TEST_F(SessionSocketTest, PassingMemoryToADaemonWithoutFreeDescriptorsIsAQuotaError) {
  SessionSocketClient client(directory_ / "s.sock");
  client.Open();
  SharedMemory memory(4096);
  const int before = PassedDescriptors();
  // None left: the kernel drops the descriptor (MSG_CTRUNC). One left: it arrives, and the daemon
  // cannot keep it.
  for (const int free : {0, 1}) {
    const FewDescriptors few(free);
    const v1::SessionSocketResponse refused = client.Call(PassRequest(4096), {memory.fd()});
    EXPECT_EQ(refused.code(), static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED)) << free;
    EXPECT_EQ(refused.reason(), "QUOTA") << free;
    EXPECT_EQ(refused.message(), "the daemon has no file descriptors left") << free;
  }
  EXPECT_EQ(PassedDescriptors(), before);
  client.PassMemory(memory.fd(), memory.size());
  EXPECT_EQ(PassedDescriptors(), before + 1) << "one ticket, one descriptor";
}

TEST_F(SessionSocketTest, WithoutFreeDescriptorsAConnectionIsClosedAndLaterOnesAreServed) {
  SessionSocketClient served(directory_ / "s.sock");
  served.Open("served");
  {
    const FewDescriptors few(1);  // for the client's end
    SessionSocketClient refused(directory_ / "s.sock");
    ASSERT_TRUE(refused.connected());
    v1::SessionSocketResponse response;
    EXPECT_FALSE(refused.Receive(response));
    EXPECT_EQ(served.Call(OpenRequest()).reason(), "ALREADY_OPEN") << "the others are served on";
  }
  SessionSocketClient later(directory_ / "s.sock");
  EXPECT_EQ(later.Open("later").size(), 16u);
}

TEST_F(SessionSocketTest, MemoryLargerThanItsFileIsRefusedWhenItIsRegistered) {
  SessionSocketClient client(directory_ / "s.sock");
  const std::string token = client.Open();
  SharedMemory memory(4096);
  RegisterDaemonRegion(token, 16);  // connects the channel, which takes descriptors too
  const int before = PassedDescriptors();
  v1::RegisterRegionRequest request;
  v1::RegisterRegionResponse response;
  request.set_device("cpu");
  request.mutable_passed()->set_ticket(client.PassMemory(memory.fd(), 1 << 30));
  EXPECT_EQ(ReasonOf(regions_->RegisterRegion(Context(token).get(), request, &response)),
            "REGION_OUT_OF_BOUNDS");
  EXPECT_EQ(ReasonOf(regions_->RegisterRegion(Context(token).get(), request, &response)),
            "TICKET_NOT_FOUND");
  EXPECT_EQ(PassedDescriptors(), before);
}

TEST_F(SessionSocketTest, AnEmptyPacketEndsTheConnection) {
  SessionSocketClient client(directory_ / "s.sock");
  client.Open();
  client.Send("");
  char byte = 0;
  EXPECT_EQ(recv(client.fd(), &byte, 1, 0), 0);
}

TEST_F(SessionSocketTest, AClientThatNeverReadsBlocksNobody) {
  SessionSocketClient deaf(directory_ / "s.sock");
  fcntl(deaf.fd(), F_SETFL, O_NONBLOCK);
  for (int i = 0; i < 5000; ++i) deaf.Send("\xff");
  SessionSocketClient other(directory_ / "s.sock");
  EXPECT_EQ(other.Open().size(), 16u);
}

TEST_F(SessionSocketTest, SurvivesAStormOfConnections) {
  for (int i = 0; i < 10000; ++i) {
    SessionSocketClient client(directory_ / "s.sock");
    if (i % 16 == 0) client.Send(OpenRequest().SerializeAsString());
  }
  SessionSocketClient client(directory_ / "s.sock");
  EXPECT_EQ(client.Open().size(), 16u);
  for (int i = 0; i < 200 && daemon_->node().Status().sessions != 1; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(daemon_->node().Status().sessions, 1);
}

TEST_F(SessionSocketTest, SessionsOpenedByRpcAndNotKeptLeaveRoomForTheSocket) {
  StartDaemon({{"max_sessions", "8"}});
  v1::OpenSessionResponse opened;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(sessions_->OpenSession(Context("").get(), {}, &opened).ok());
  }
  const grpc::Status refused = sessions_->OpenSession(Context("").get(), {}, &opened);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(refused), "QUOTA");
  EXPECT_FALSE(OpenBySocket().empty());
  const auto context = Context(opened.token());
  const auto keep = sessions_->KeepSession(context.get());
  v1::SessionEvent event;
  ASSERT_TRUE(keep->Read(&event));
  EXPECT_TRUE(sessions_->OpenSession(Context("").get(), {}, &opened).ok());
  keep->WritesDone();
  keep->Finish();
}

TEST_F(SessionSocketTest, SessionsBeyondTheLimitAreRefused) {
  StartDaemon({{"max_sessions", "2"}});
  SessionSocketClient one(directory_ / "s.sock"), two(directory_ / "s.sock"),
      three(directory_ / "s.sock");
  one.Open();
  two.Open();
  const v1::SessionSocketResponse refused = three.Call(OpenRequest());
  EXPECT_EQ(refused.code(), static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_EQ(refused.reason(), "QUOTA");
  EXPECT_FALSE(refused.has_opened());
}

}  // namespace
}  // namespace gemmd

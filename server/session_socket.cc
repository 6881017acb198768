#include "server/session_socket.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "server/convert_errors.h"
#include "server/exit_codes.h"
#include "server/logging.h"
#include "server/open_session.h"
#include "server/status.h"
#include "server/unix_socket.h"

namespace gemmd {
namespace {

constexpr absl::Duration kOpenWithin = absl::Seconds(10);
constexpr int kTickMilliseconds = 1000;
constexpr int kEventsAtOnce = 64;
constexpr size_t kMaxConnections = 70000;  // above the largest max_sessions

absl::Status Watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.fd = fd;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return SystemError(errno, "cannot watch a session socket");
}

absl::StatusOr<UniqueFd> Listen(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un address = UnixAddress(path);
  if (fd.get() < 0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return SystemError(errno, absl::StrCat("cannot create session socket ", path));
  }
  if (chmod(path.c_str(), 0660) != 0 || listen(fd.get(), SOMAXCONN) != 0) {
    const int error = errno;
    unlink(path.c_str());
    return SystemError(error, absl::StrCat("cannot listen at session socket ", path));
  }
  return fd;
}

UniqueFd OpenSpare() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// Readable once the process has ended. -1 where the kernel or a PID namespace has no such process.
int OpenProcess(pid_t pid) {
  return pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1;
}

}  // namespace

struct SessionSocket::Connection {
  UniqueFd fd;
  UniqueFd process;  // pidfd, or none where the kernel gives none
  absl::Time accepted;
  pid_t pid = 0;
  uid_t uid = 0;
  std::shared_ptr<Session> session;  // once opened
};

absl::StatusOr<std::unique_ptr<SessionSocket>> SessionSocket::Start(const std::string& path,
                                                                    Node* node, Metrics* metrics) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (epoll.get() < 0 || wake.get() < 0)
    return SystemError(errno, "cannot create the session socket's poll");
  GEMMD_ASSIGN_OR_RETURN(UniqueFd listener, Listen(path));
  GEMMD_RETURN_IF_ERROR(Watch(epoll.get(), listener.get()));
  GEMMD_RETURN_IF_ERROR(Watch(epoll.get(), wake.get()));
  return std::unique_ptr<SessionSocket>(new SessionSocket(path, node, metrics, std::move(listener),
                                                          std::move(epoll), std::move(wake)));
}

SessionSocket::SessionSocket(std::string path, Node* node, Metrics* metrics, UniqueFd listener,
                             UniqueFd epoll, UniqueFd wake)
    : path_(std::move(path)),
      node_(node),
      metrics_(metrics),
      listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      spare_(OpenSpare()),
      thread_([this] { Run(); }) {}

SessionSocket::~SessionSocket() {
  stopping_ = true;
  eventfd_write(wake_.get(), 1);
  thread_.join();
  unlink(path_.c_str());
  for (auto& [fd, connection] : connections_) {
    if (connection.session != nullptr) node_->EndSession(connection.session, "close");
  }
}

void SessionSocket::Run() {
  absl::Time next_check = absl::Now() + absl::Seconds(1);
  while (!stopping_) {
    epoll_event events[kEventsAtOnce];
    const int count = epoll_wait(epoll_.get(), events, kEventsAtOnce, kTickMilliseconds);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == listener_.get()) {
        Accept();
      } else if (fd != wake_.get() && !ServeExit(fd)) {
        Serve(fd);
      }
    }
    const absl::Time now = absl::Now();
    if (now < next_check) continue;
    CloseIdle(now);
    next_check = now + absl::Seconds(1);
  }
}

void SessionSocket::Accept() {
  UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.get() < 0) {
    if (errno != EMFILE && errno != ENFILE) return;
    // Out of descriptors: without taking the connection off the queue, epoll would report it for ever.
    spare_ = UniqueFd();
    UniqueFd refused(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    refused = UniqueFd();
    spare_ = OpenSpare();
    LogWarn("session connection refused: no file descriptors left");
    return;
  }
  if (connections_.size() >= kMaxConnections) return;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  const int key = fd.get();
  if (!Watch(epoll_.get(), key).ok()) return;
  UniqueFd process(OpenProcess(peer.pid));
  if (process.get() >= 0 && Watch(epoll_.get(), process.get()).ok())
    processes_[process.get()] = key;
  connections_[key] =
      Connection{std::move(fd), std::move(process), absl::Now(), peer.pid, peer.uid, nullptr};
}

bool SessionSocket::ServeExit(int fd) {
  const auto process = processes_.find(fd);
  if (process == processes_.end()) return false;
  Close(process->second, "exit");
  return true;
}

void SessionSocket::Serve(int fd) {
  const auto connection = connections_.find(fd);
  if (connection == connections_.end()) return;
  if (!Receive(connection->second)) Close(fd, "eof");
}

bool SessionSocket::Receive(Connection& connection) {
  Packet packet = ReceivePacket(connection.fd.get());
  if (packet.kind == Packet::Kind::kNothing) return true;
  if (packet.kind == Packet::Kind::kEnd) return false;
  v1::SessionSocketResponse response;
  if (packet.cut) {
    const absl::Status status =
        OutOfRange("the packet", "too long", absl::StrCat("at most ", kMaxPacketBytes, " bytes"));
    response.set_code(static_cast<int>(status.code()));
    response.set_reason(WireReason(status));
    response.set_message(std::string(status.message()));
  } else {
    response = Handle(connection, packet);
  }
  packet.fds.clear();  // a client that has its answer finds nothing held
  return SendPacket(connection.fd.get(), response.SerializeAsString());
}

v1::SessionSocketResponse SessionSocket::Handle(Connection& connection, const Packet& packet) {
  v1::SessionSocketResponse response;
  v1::SessionSocketRequest request;
  absl::Status status;
  if (!request.ParseFromString(packet.data)) {
    status = Error(absl::StatusCode::kInvalidArgument, "BAD_PACKET",
                   "the packet is no SessionSocketRequest");
  } else if (request.has_open()) {
    status = Open(connection, request.open(), response);
  } else if (request.has_pass_memory()) {
    status = PassMemory(connection, request.pass_memory(), packet, response);
  } else {
    status = MissingField("request (open or pass_memory)");
  }
  if (status.ok()) return response;
  metrics_->OnRejected(WireReason(status));
  response.Clear();
  response.set_code(static_cast<int>(status.code()));
  response.set_reason(WireReason(status));
  response.set_message(std::string(status.message()));
  return response;
}

absl::Status SessionSocket::Open(Connection& connection, const v1::OpenSessionRequest& request,
                                 v1::SessionSocketResponse& response) {
  if (connection.session != nullptr) {
    return Error(
        absl::StatusCode::kFailedPrecondition, "ALREADY_OPEN",
        "this connection has a session already; open another connection for another session");
  }
  const SessionIdentity identity = {request.name(), connection.pid, connection.uid, "socket"};
  GEMMD_ASSIGN_OR_RETURN(connection.session,
                         OpenSession(*node_, identity, *response.mutable_opened()));
  return absl::OkStatus();
}

absl::Status SessionSocket::PassMemory(Connection& connection, const v1::PassMemory& request,
                                       const Packet& packet, v1::SessionSocketResponse& response) {
  if (connection.session == nullptr) {
    return Error(absl::StatusCode::kUnauthenticated, "NO_SESSION", "open a session first");
  }
  const absl::Status no_room = Error(absl::StatusCode::kResourceExhausted, "QUOTA",
                                     "the daemon has no file descriptors left");
  if (packet.fds_cut && packet.fds.empty()) return no_room;
  if (packet.fds_cut || packet.fds.size() != 1) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_DESCRIPTOR",
                 absl::StrCat("pass_memory takes exactly one file descriptor, got ",
                              packet.fds.empty() ? "none" : "several"));
  }
  const int owned =
      fcntl(packet.fds[0].get(), F_DUPFD_CLOEXEC, 0);  // the node takes over a descriptor
  if (owned < 0) return no_room;
  GEMMD_ASSIGN_OR_RETURN(const uint64_t ticket,
                         node_->PassMemory(*connection.session, owned, request.bytes()));
  response.set_memory_ticket(ticket);
  return absl::OkStatus();
}

void SessionSocket::Close(int fd, const char* why) {
  const auto connection = connections_.find(fd);
  const std::shared_ptr<Session> session = std::move(connection->second.session);
  processes_.erase(connection->second.process.get());
  connections_.erase(connection);  // closing the descriptor takes it out of the epoll set
  if (session != nullptr) CloseSession(*node_, session, why);
}

void SessionSocket::CloseIdle(absl::Time now) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const int fd = it->first;
    const Connection& connection = (it++)->second;
    if (connection.session == nullptr && now - connection.accepted > kOpenWithin) Close(fd, "idle");
  }
}

}  // namespace gemmd

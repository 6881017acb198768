#include "client/session_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status.h"

namespace gemmd::client {
namespace {

absl::Status Lost(absl::string_view what) {
  return Error(absl::StatusCode::kUnavailable, "CONNECTION_LOST",
               absl::StrCat("session socket: ", what, ": ", std::strerror(errno)));
}

absl::Status Send(int fd, const std::string& bytes, int passed_fd) {
  iovec part{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (passed_fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &passed_fd, sizeof(int));
  }
  while (sendmsg(fd, &message, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return Lost("sendmsg");
  }
  return absl::OkStatus();
}

absl::Status WaitReadable(int fd, absl::Time deadline) {
  while (true) {
    const absl::Duration left = std::min(deadline - absl::Now(), absl::Hours(1));
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready =
        poll(&entry, 1, std::max<int>(0, static_cast<int>(absl::ToInt64Milliseconds(left))));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Lost("poll");
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError("the session socket gave no answer in time");
    }
  }
}

absl::StatusOr<v1::SessionSocketResponse> Receive(int fd, absl::Time deadline) {
  GEMMD_RETURN_IF_ERROR(WaitReadable(fd, deadline));
  std::array<char, 64 * 1024> buffer;
  ssize_t size = 0;
  while ((size = recv(fd, buffer.data(), buffer.size(), 0)) < 0) {
    if (errno != EINTR) return Lost("recv");
  }
  if (size == 0) {
    return Error(absl::StatusCode::kUnavailable, "CONNECTION_LOST",
                 "session socket: closed by the daemon");
  }
  v1::SessionSocketResponse response;
  if (!response.ParseFromArray(buffer.data(), static_cast<int>(size))) {
    return absl::InternalError(
        absl::StrCat("session socket: a packet of ", size, " bytes does not parse"));
  }
  return response;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionSocket>> SessionSocket::Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_ADDRESS",
                 absl::StrCat("session socket path has ", path.size(), " bytes"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ResourceExhaustedError(absl::StrCat("socket: ", std::strerror(errno)));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int cause = errno;
    close(fd);
    return Error(absl::StatusCode::kUnavailable, "NOT_RUNNING",
                 absl::StrCat("session socket ", path, ": ", std::strerror(cause)));
  }
  return std::unique_ptr<SessionSocket>(new SessionSocket(fd));
}

SessionSocket::~SessionSocket() { close(fd_); }

absl::StatusOr<v1::SessionSocketResponse> SessionSocket::Exchange(
    const v1::SessionSocketRequest& request, int passed_fd, absl::Time deadline) {
  MutexLock lock(mutex_);
  if (broken_) {
    return Error(absl::StatusCode::kUnavailable, "CONNECTION_LOST", "session socket: out of step");
  }
  broken_ = true;
  GEMMD_RETURN_IF_ERROR(Send(fd_, request.SerializeAsString(), passed_fd));
  GEMMD_ASSIGN_OR_RETURN(v1::SessionSocketResponse response, Receive(fd_, deadline));
  broken_ = false;
  if (response.code() != 0) {
    return Error(static_cast<absl::StatusCode>(response.code()), response.reason(),
                 response.message());
  }
  return response;
}

absl::StatusOr<v1::OpenSessionResponse> SessionSocket::Open(const std::string& name,
                                                            absl::Time deadline) {
  v1::SessionSocketRequest request;
  request.mutable_open()->set_name(name);
  GEMMD_ASSIGN_OR_RETURN(const v1::SessionSocketResponse response, Exchange(request, -1, deadline));
  return response.opened();
}

absl::StatusOr<uint64_t> SessionSocket::PassMemory(int fd, uint64_t bytes, absl::Time deadline) {
  v1::SessionSocketRequest request;
  request.mutable_pass_memory()->set_bytes(bytes);
  GEMMD_ASSIGN_OR_RETURN(const v1::SessionSocketResponse response, Exchange(request, fd, deadline));
  return response.memory_ticket();
}

bool SessionSocket::alive() const {
  pollfd entry{.fd = fd_, .events = POLLRDHUP, .revents = 0};
  return poll(&entry, 1, 0) >= 0 &&
         (entry.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) == 0;
}

}  // namespace gemmd::client

#include "server/packet.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

namespace gemmd {
namespace {

constexpr size_t kMaxDescriptors = 4;  // one is ever wanted; a few more are taken to be closed

void TakeDescriptors(msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
}

}  // namespace

Packet ReceivePacket(int socket) {
  Packet packet;
  packet.data.resize(kMaxPacketBytes);
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
  iovec buffer = {packet.data.data(), packet.data.size()};
  msghdr message{};
  message.msg_iov = &buffer;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t size = 0;
  do {
    size = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0) {
    packet.kind = errno == EAGAIN ? Packet::Kind::kNothing : Packet::Kind::kEnd;
    return packet;
  }
  TakeDescriptors(message, packet.fds);
  packet.cut = (message.msg_flags & MSG_TRUNC) != 0;
  packet.fds_cut = (message.msg_flags & MSG_CTRUNC) != 0;
  packet.data.resize(static_cast<size_t>(size));
  // A packet of no bytes reads like the end of the connection; a message of ours never is empty.
  packet.kind = size == 0 ? Packet::Kind::kEnd : Packet::Kind::kData;
  return packet;
}

bool SendPacket(int socket, const std::string& data) {
  ssize_t size = 0;
  do {
    size = send(socket, data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (size < 0 && errno == EINTR);
  return size == static_cast<ssize_t>(data.size());
}

}  // namespace gemmd

// What    One packet of a SOCK_SEQPACKET connection, with the file descriptors that came along.
#ifndef GEMMD_SERVER_PACKET_H_
#define GEMMD_SERVER_PACKET_H_

#include <string>
#include <vector>

#include "core/session/unique_fd.h"

namespace gemmd {

inline constexpr size_t kMaxPacketBytes = 4096;  // a session name and a few numbers

struct Packet {
  enum class Kind { kData, kNothing, kEnd };  // kNothing: none waits; kEnd: the peer has gone
  Kind kind = Kind::kEnd;
  std::string data;
  std::vector<UniqueFd> fds;
  bool cut = false;      // longer than kMaxPacketBytes
  bool fds_cut = false;  // more descriptors than we take, or than this process may hold
};

// Never blocks.
Packet ReceivePacket(int socket);

// False when the peer has gone or has not made room for the packet. Never blocks.
bool SendPacket(int socket, const std::string& data);

}  // namespace gemmd

#endif  // GEMMD_SERVER_PACKET_H_

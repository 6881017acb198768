// What    The session socket: SOCK_SEQPACKET, one SessionSocketRequest or SessionSocketResponse a
//         packet. It gives what gRPC cannot: who the peer is, file descriptors, and its end-of-file
//         as the sign that the client is gone. The peer's process is watched too (pidfd): a child
//         that it forked keeps the connection open after its end.
// Rules   A bad packet gets an answer and harms nobody; a client that does not read its answers, or
//         opens no session within 10 seconds, is disconnected. Descriptors that come unasked are
//         closed.
// Errors  Start: CANNOT_CREATE or NOT_PERMITTED.
// Threads One thread serves all connections and never blocks on one.
#ifndef GEMMD_SERVER_SESSION_SOCKET_H_
#define GEMMD_SERVER_SESSION_SOCKET_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/node.h"
#include "core/session/unique_fd.h"
#include "gemmd/v1/session.pb.h"
#include "server/metrics/metrics.h"
#include "server/packet.h"

namespace gemmd {

class SessionSocket {
 public:
  // Listens at `path`, whose lock the caller holds. `node` and `metrics` outlive the socket.
  static absl::StatusOr<std::unique_ptr<SessionSocket>> Start(const std::string& path, Node* node,
                                                              Metrics* metrics);
  ~SessionSocket();  // ends every session of the socket

 private:
  struct Connection;
  SessionSocket(std::string path, Node* node, Metrics* metrics, UniqueFd listener, UniqueFd epoll,
                UniqueFd wake);

  void Run();
  void Accept();
  void Serve(int fd);
  // Ends the connection of a process that ended. False when `fd` is no pidfd of ours.
  bool ServeExit(int fd);
  // False when the connection must end.
  bool Receive(Connection& connection);
  v1::SessionSocketResponse Handle(Connection& connection, const Packet& packet);
  absl::Status Open(Connection& connection, const v1::OpenSessionRequest& request,
                    v1::SessionSocketResponse& response);
  absl::Status PassMemory(Connection& connection, const v1::PassMemory& request,
                          const Packet& packet, v1::SessionSocketResponse& response);
  void Close(int fd, const char* why);
  void CloseIdle(absl::Time now);

  const std::string path_;
  Node* const node_;
  Metrics* const metrics_;
  const UniqueFd listener_, epoll_, wake_;
  UniqueFd spare_;  // given up for a moment when descriptors run out
  std::atomic<bool> stopping_{false};
  std::map<int, Connection> connections_;  // touched by the thread only
  std::map<int, int> processes_;           // pidfd -> its connection; touched by the thread only
  std::thread thread_;
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_SESSION_SOCKET_H_

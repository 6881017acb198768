// What    One session with one run of the daemon. When either ends, the link is dead for good;
//         SessionState opens the next one.
// Order   The session socket is tried first: it carries descriptors and its end-of-file is exact.
//         Where it cannot be reached, OpenSession by RPC and a KeepSession stream read by a thread.
// Errors  Unavailable NOT_RUNNING with the address tried; else what the daemon answered.
// Threads Thread-safe. The destructor ends the session and returns within two seconds.
#ifndef GEMMD_CLIENT_LINK_H_
#define GEMMD_CLIENT_LINK_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "client/channel.h"
#include "client/session_socket.h"
#include "kernels/base/mutex.h"

namespace gemmd::client {

struct LinkOptions {
  std::string address;  // empty: client/address.h
  std::string name;
  bool use_session_socket = true;
};

class Link : public std::enable_shared_from_this<Link> {
 public:
  static absl::StatusOr<std::shared_ptr<Link>> Open(const LinkOptions& options,
                                                    absl::Time deadline);
  // At `address`, whatever options.address says.
  static absl::StatusOr<std::shared_ptr<Link>> Open(Address address, const LinkOptions& options,
                                                    absl::Time deadline);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  const v1::HelloResponse& hello() const { return hello_; }
  const Channel& channel() const { return channel_; }
  const Stubs& stubs() const { return channel_.stubs(); }
  uint64_t serial() const { return serial_; }
  uint64_t session_id() const { return opened_.session_id(); }
  bool has_session_socket() const { return socket_ != nullptr; }

  // Token and deadline of one call.
  void Prepare(grpc::ClientContext& context, absl::Time deadline) const;

  // False once the daemon ended the session or the connection broke.
  bool alive() const;
  void MarkLost() { lost_ = true; }

  // FailedPrecondition NO_SESSION_SOCKET without one.
  absl::StatusOr<uint64_t> PassMemory(int fd, uint64_t bytes, absl::Time deadline);

 private:
  struct Keeper;  // stream, its context and the thread that reads it

  Link(Address address, uint64_t serial);
  absl::Status OpenBySocket(const LinkOptions& options, absl::Time deadline);
  absl::Status OpenByRpc(const LinkOptions& options, absl::Time deadline);
  void Close();

  Channel channel_;
  const uint64_t serial_;  // grows with every link of one session
  v1::HelloResponse hello_;
  v1::OpenSessionResponse opened_;
  std::unique_ptr<SessionSocket> socket_;
  std::unique_ptr<Keeper> keeper_;
  std::atomic<bool> lost_{false};
};

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_LINK_H_

// What    The client's end of the session socket (SOCK_SEQPACKET): opens a session, passes file
//         descriptors. The daemon takes its end-of-file for the end of this process, and the other
//         way round.
// Errors  Unavailable NOT_RUNNING: nothing listens there.  Otherwise the code and reason the daemon
//         sent.
// Threads Calls are serialised inside; every method is thread-safe.
#ifndef GEMMD_CLIENT_SESSION_SOCKET_H_
#define GEMMD_CLIENT_SESSION_SOCKET_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gemmd/v1/session.pb.h"
#include "kernels/base/mutex.h"

namespace gemmd::client {

class SessionSocket {
 public:
  static absl::StatusOr<std::unique_ptr<SessionSocket>> Connect(const std::string& path);
  ~SessionSocket();
  SessionSocket(const SessionSocket&) = delete;
  SessionSocket& operator=(const SessionSocket&) = delete;

  absl::StatusOr<v1::OpenSessionResponse> Open(const std::string& name, absl::Time deadline);

  // Hands over `bytes` of `fd` and returns the ticket that RegisterRegion takes.
  absl::StatusOr<uint64_t> PassMemory(int fd, uint64_t bytes, absl::Time deadline);

  // Whether the daemon still holds its end.
  bool alive() const;

 private:
  explicit SessionSocket(int fd) : fd_(fd) {}
  absl::StatusOr<v1::SessionSocketResponse> Exchange(const v1::SessionSocketRequest& request,
                                                     int passed_fd, absl::Time deadline);

  const int fd_;
  Mutex mutex_;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;  // an answer was missed: the next would be its
};

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_SESSION_SOCKET_H_

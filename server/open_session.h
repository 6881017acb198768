// What    Opens a session, whichever way it was asked for: by RPC or on the session socket.
// Errors  InvalidArgument OUT_OF_RANGE for a name that is too long; what Node::OpenSession returns.
#ifndef GEMMD_SERVER_OPEN_SESSION_H_
#define GEMMD_SERVER_OPEN_SESSION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/node.h"
#include "gemmd/v1/session.pb.h"

namespace gemmd {

inline constexpr size_t kMaxSessionName = 256;  // bytes

// Fills `response`, and logs the session without its token.
absl::StatusOr<std::shared_ptr<Session>> OpenSession(Node& node, const SessionIdentity& identity,
                                                     v1::OpenSessionResponse& response);

// Ends `session` and says so in the log, unless it has ended already: who closes by RPC closes its socket
// next.
void CloseSession(Node& node, const std::shared_ptr<Session>& session, const char* why);

}  // namespace gemmd

#endif  // GEMMD_SERVER_OPEN_SESSION_H_

// What    grpc::Status as absl::Status. The reason of ErrorInfo becomes the Status' reason
//         (ReasonOf), the delay of RetryInfo is kept beside it.
// Reasons added by this library, beside those of proto/README.md:
//           NOT_RUNNING      Unavailable: nothing answers at the address tried
//           SOCKET_NOT_ALLOWED  PermissionDenied: this user may not connect to the daemon's socket
//           CONNECTION_LOST  Unavailable: the connection broke during the call, which may have run
//           NO_SESSION_SOCKET  FailedPrecondition: memory cannot be passed in this session
//           FORKED           FailedPrecondition: made by another process, before a fork
//           SOURCE_GONE      FailedPrecondition: a layer cannot be restored after a restart
//           CONTENT_LOST     Aborted: a daemon-owned region came back empty after a restart
// Threads Pure functions.
#ifndef GEMMD_CLIENT_RPC_STATUS_H_
#define GEMMD_CLIENT_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gemmd::client {

// `call` is what was waited for, which a deadline that passed in this process does not tell by itself.
absl::Status FromGrpc(const grpc::Status& status, absl::string_view call = "the call");

// What the server asked to wait before the same call is repeated.
std::optional<absl::Duration> RetryDelayOf(const absl::Status& status);

// Whether the transport failed, as opposed to an answer of the daemon.
bool IsTransportFailure(const absl::Status& status);

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_RPC_STATUS_H_

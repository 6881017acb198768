// What    Ends the connections that a Unix socket of this process has accepted, whoever owns their
//         descriptors.
// Why     gRPC answers a call that arrives once its server shuts down with a bare CANCELLED, which
//         a client cannot tell from a cancellation of its own. On a connection that closes, the
//         same call ends UNAVAILABLE, and clients retry.
// Threads Beside threads that accept and close: they see end of file.
#ifndef GEMMD_SERVER_CONNECTIONS_H_
#define GEMMD_SERVER_CONNECTIONS_H_

#include <string>

#include "absl/time/time.h"

namespace gemmd {

// Removes the socket file, so that nobody connects any more, and shuts down what is connected to
// the listener of `path` or waits in its backlog. Returns once the owners have closed all of it, or
// at `deadline`; whether nothing is left.
bool CloseConnections(const std::string& path, absl::Time deadline);

}  // namespace gemmd

#endif  // GEMMD_SERVER_CONNECTIONS_H_

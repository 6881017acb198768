// What    Where the daemon listens.
// Order   explicit address, $GEMMD_SOCKET, $XDG_RUNTIME_DIR/gemmd/gemmd.sock,
//         /run/gemmd/gemmd.sock. Of the last two the first that exists is taken; when neither does,
//         the first, so that an error names it.
// Forms   A path, "unix:path", or any other gRPC target such as "dns:///host:port".
// Errors  InvalidArgument BAD_ADDRESS: a path longer than a socket address can hold.
// Threads Pure, apart from reading the environment and the file system.
#ifndef GEMMD_CLIENT_ADDRESS_H_
#define GEMMD_CLIENT_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace gemmd::client {

struct Address {
  std::string target;  // for gRPC
  std::string path;    // of the Unix socket; empty for other targets
  std::string origin;  // "given", "$GEMMD_SOCKET" or "default", for messages

  // "/run/gemmd/gemmd.sock (default)".
  std::string Text() const;
};

absl::StatusOr<Address> ResolveAddress(const std::string& explicit_address);

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_ADDRESS_H_

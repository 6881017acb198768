// What    The one place where a Status becomes a gRPC status.
// Wire    "grpc-status-details-bin" holds a google.rpc.Status with one ErrorInfo (domain "gemmd", the stable
//         reason of proto/README.md) and, for UNAVAILABLE and RESOURCE_EXHAUSTED, a RetryInfo.
#ifndef GEMMD_SERVER_STATUS_H_
#define GEMMD_SERVER_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace gemmd {

grpc::Status ToGrpcStatus(const absl::Status& status);

// The reason a client sees: the status's own, else the name of its code. Empty for OK.
std::string WireReason(const absl::Status& status);

}  // namespace gemmd

#endif  // GEMMD_SERVER_STATUS_H_

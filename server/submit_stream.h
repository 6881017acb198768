// What    The Submit stream: requests are queued as they arrive, executed in order, answered in
//         order. At most kMaxInFlight are unanswered: then the stream stops reading, and gRPC's
//         flow control stops the client. An error answers its request; the stream goes on.
// Threads See services.h. The stream finishes when the client has closed its side, or a drain has
//         ended it (then Unavailable DRAINING), and everything that was read is answered.
#ifndef GEMMD_SERVER_SUBMIT_STREAM_H_
#define GEMMD_SERVER_SUBMIT_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gemmd/v1/gemm.pb.h"
#include "server/service_context.h"

namespace gemmd {

inline constexpr size_t kMaxInFlight = 64;

grpc::ServerBidiReactor<v1::SubmitRequest, v1::SubmitResponse>* NewSubmitStream(
    const ServiceContext* context, absl::StatusOr<std::shared_ptr<Session>> session,
    absl::Time deadline);

}  // namespace gemmd

#endif  // GEMMD_SERVER_SUBMIT_STREAM_H_

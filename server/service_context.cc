#include "server/service_context.h"

#include <chrono>

#include "kernels/base/status.h"
#include "server/status.h"

namespace gemmd {
namespace {

constexpr char kTokenKey[] = "gemmd-session-bin";

absl::Status NoSession(absl::string_view message) {
  return Error(absl::StatusCode::kUnauthenticated, "NO_SESSION", message);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> ServiceContext::SessionOf(
    const grpc::CallbackServerContext& call) const {
  const auto [first, last] = call.client_metadata().equal_range(kTokenKey);
  if (first == last) {
    return Refuse(NoSession("the metadata key gemmd-session-bin holds no session token"));
  }
  if (std::next(first) != last) {
    return Refuse(NoSession("the metadata key gemmd-session-bin is given more than once"));
  }
  absl::StatusOr<std::shared_ptr<Session>> session =
      node->FindSession(absl::string_view(first->second.data(), first->second.size()));
  if (!session.ok()) return Refuse(session.status());
  return session;
}

absl::Status ServiceContext::Refuse(absl::Status status) const {
  metrics->OnRejected(WireReason(status));
  return status;
}

absl::Time DeadlineOf(const grpc::CallbackServerContext& call) {
  const std::chrono::system_clock::time_point deadline = call.deadline();
  return deadline == std::chrono::system_clock::time_point::max() ? absl::InfiniteFuture()
                                                                  : absl::FromChrono(deadline);
}

grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* call, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace gemmd

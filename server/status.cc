#include "server/status.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/rpc/error_details.pb.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

// How long a client should wait before it tries again. A full queue empties in microseconds to
// milliseconds; a drain means a restart.
int RetryDelayMilliseconds(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ? 1000 : 20;
}

// gRPC refuses more than 8 KiB of metadata in one answer, and the message travels twice in it. A compiler's
// log is longer.
constexpr size_t kLongestMessage = 2048;

std::string Shorten(absl::string_view message) {
  if (message.size() <= kLongestMessage) return std::string(message);
  return absl::StrCat(message.substr(0, kLongestMessage), " [", message.size() - kLongestMessage,
                      " more bytes]");
}

bool IsRetryable(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kResourceExhausted;
}

}  // namespace

std::string WireReason(const absl::Status& status) {
  if (status.ok()) return "";
  std::string reason = ReasonOf(status);
  return reason.empty() ? absl::StatusCodeToString(status.code()) : reason;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(Shorten(status.message()));
  google::rpc::ErrorInfo info;
  info.set_reason(WireReason(status));
  info.set_domain("gemmd");
  details.add_details()->PackFrom(info);
  if (IsRetryable(status)) {
    google::rpc::RetryInfo retry;
    const int milliseconds = RetryDelayMilliseconds(status);
    retry.mutable_retry_delay()->set_seconds(milliseconds / 1000);
    retry.mutable_retry_delay()->set_nanos(milliseconds % 1000 * 1000000);
    details.add_details()->PackFrom(retry);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), details.message(),
                      details.SerializeAsString());
}

}  // namespace gemmd

#include "client/rpc_status.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "kernels/base/status.h"

namespace gemmd::client {
namespace {

constexpr char kRetryDelayUrl[] = "gemmd.retry_delay_us";

struct Details {
  std::string reason;
  std::optional<absl::Duration> retry_delay;
};

Details ParseDetails(const std::string& bytes) {
  Details details;
  google::rpc::Status status;
  if (bytes.empty() || !status.ParseFromString(bytes)) return details;
  for (const google::protobuf::Any& any : status.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    if (any.Is<google::rpc::ErrorInfo>() && any.UnpackTo(&info)) details.reason = info.reason();
    if (any.Is<google::rpc::RetryInfo>() && any.UnpackTo(&retry)) {
      details.retry_delay = absl::Seconds(retry.retry_delay().seconds()) +
                            absl::Nanoseconds(retry.retry_delay().nanos());
    }
  }
  return details;
}

}  // namespace

absl::Status FromGrpc(const grpc::Status& status, absl::string_view call) {
  if (status.ok()) return absl::OkStatus();
  auto code = static_cast<absl::StatusCode>(status.error_code());
  Details details = ParseDetails(status.error_details());
  if (details.reason.empty() &&
      (code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kCancelled)) {
    // No answer of the daemon. A server that shuts down cancels what reaches it last; this library
    // cancels no call whose status anyone looks at.
    code = absl::StatusCode::kUnavailable;
    details.reason = "CONNECTION_LOST";
  }
  if (details.reason.empty() && code == absl::StatusCode::kDeadlineExceeded) {
    return absl::DeadlineExceededError(absl::StrCat("gemmd did not answer ", call, " in time"));
  }
  absl::Status result = details.reason.empty()
                            ? absl::Status(code, status.error_message())
                            : Error(code, details.reason, status.error_message());
  if (details.retry_delay) {
    result.SetPayload(kRetryDelayUrl,
                      absl::Cord(absl::StrCat(absl::ToInt64Microseconds(*details.retry_delay))));
  }
  return result;
}

std::optional<absl::Duration> RetryDelayOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryDelayUrl);
  int64_t microseconds = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &microseconds)) return std::nullopt;
  return absl::Microseconds(microseconds);
}

bool IsTransportFailure(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable &&
         (ReasonOf(status) == "CONNECTION_LOST" || ReasonOf(status) == "NOT_RUNNING");
}

}  // namespace gemmd::client

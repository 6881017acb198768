#include "server/status.h"

#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

google::rpc::Status DetailsOf(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  return details;
}

TEST(StatusTest, OkStaysOk) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_EQ(WireReason(absl::OkStatus()), "");
}

TEST(StatusTest, CarriesCodeMessageAndReason) {
  const grpc::Status status =
      ToGrpcStatus(Error(absl::StatusCode::kNotFound, "LAYER_NOT_FOUND", "layer 7 is not here"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "layer 7 is not here");
  const google::rpc::Status details = DetailsOf(status);
  EXPECT_EQ(details.code(), 5);
  EXPECT_EQ(details.message(), "layer 7 is not here");
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.ErrorInfo");
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "LAYER_NOT_FOUND");
  EXPECT_EQ(info.domain(), "gemmd");
}

TEST(StatusTest, ALongMessageIsCutBelowTheMetadataLimit) {
  const std::string log(16384, 'x');
  const grpc::Status status =
      ToGrpcStatus(Error(absl::StatusCode::kInternal, "COMPILE_FAILED", log));
  EXPECT_LT(status.error_message().size() + status.error_details().size(), 8192u);
  EXPECT_EQ(status.error_message().substr(2048), " [14336 more bytes]");
}

TEST(StatusTest, RetryableErrorsSayWhenToTryAgain) {
  for (const absl::StatusCode code :
       {absl::StatusCode::kUnavailable, absl::StatusCode::kResourceExhausted}) {
    const google::rpc::Status details = DetailsOf(ToGrpcStatus(Error(code, "R", "m")));
    ASSERT_EQ(details.details_size(), 2);
    google::rpc::RetryInfo retry;
    ASSERT_TRUE(details.details(1).UnpackTo(&retry));
    EXPECT_GT(retry.retry_delay().seconds() + retry.retry_delay().nanos(), 0);
  }
}

TEST(StatusTest, AStatusWithoutAReasonGetsTheNameOfItsCode) {
  EXPECT_EQ(WireReason(absl::InternalError("x")), "INTERNAL");
}

}  // namespace
}  // namespace gemmd

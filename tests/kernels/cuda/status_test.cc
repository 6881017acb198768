#include "kernels/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/driver.h"
#include "tests/support/fake_driver.h"

namespace gemmd::cuda {
namespace {

using ::testing::HasSubstr;

struct Row {
  CUresult result;
  absl::StatusCode code;
  const char* reason;
};

class ToStatusTest : public ::testing::TestWithParam<Row> {};

TEST_P(ToStatusTest, MapsCodeAndReason) {
  const FakeDriver fake;
  const absl::Status status = ToStatus(fake.table(), GetParam().result, "cuAnything");
  EXPECT_EQ(status.code(), GetParam().code);
  EXPECT_EQ(ReasonOf(status), GetParam().reason);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("(" + std::to_string(GetParam().result) + ")"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("cuAnything: "));
}

constexpr auto kLost = absl::StatusCode::kDataLoss;
constexpr auto kInternal = absl::StatusCode::kInternal;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

INSTANTIATE_TEST_SUITE_P(
    Table, ToStatusTest,
    ::testing::Values(Row{CUDA_ERROR_OUT_OF_MEMORY, absl::StatusCode::kResourceExhausted,
                          "GPU_OOM"},
                      Row{CUDA_ERROR_ILLEGAL_ADDRESS, kLost, "CONTEXT_LOST"},
                      Row{CUDA_ERROR_LAUNCH_TIMEOUT, kLost, "CONTEXT_LOST"},
                      Row{CUDA_ERROR_ASSERT, kLost, "CONTEXT_LOST"},
                      Row{CUDA_ERROR_HARDWARE_STACK_ERROR, kLost, "CONTEXT_LOST"},
                      Row{CUDA_ERROR_ILLEGAL_INSTRUCTION, kLost, "CONTEXT_LOST"},
                      Row{CUDA_ERROR_MISALIGNED_ADDRESS, kLost, "CONTEXT_LOST"},
                      Row{CUDA_ERROR_INVALID_ADDRESS_SPACE, kLost, "CONTEXT_LOST"},
                      Row{CUDA_ERROR_INVALID_PC, kLost, "CONTEXT_LOST"},
                      Row{CUDA_ERROR_LAUNCH_FAILED, kLost, "CONTEXT_LOST"},
                      Row{CUDA_ERROR_ECC_UNCORRECTABLE, kLost, "CONTEXT_LOST"},
                      Row{CUDA_ERROR_MPS_CLIENT_TERMINATED, kLost, "CONTEXT_LOST"},
                      Row{CUDA_ERROR_NO_DEVICE, kUnavailable, "DRIVER_UNSUPPORTED"},
                      Row{CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, kUnavailable, "DRIVER_UNSUPPORTED"},
                      Row{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, kPrecondition, "STREAM_CAPTURING"},
                      Row{CUDA_ERROR_NO_BINARY_FOR_GPU, kPrecondition, "DRIVER_UNSUPPORTED"},
                      Row{CUDA_ERROR_NOT_SUPPORTED, kPrecondition, "DRIVER_UNSUPPORTED"},
                      Row{CUDA_ERROR_INVALID_VALUE, kInternal, "DRIVER_ERROR"},
                      Row{CUDA_ERROR_INVALID_HANDLE, kInternal, "DRIVER_ERROR"},
                      Row{CUDA_ERROR_UNKNOWN, kInternal, "DRIVER_ERROR"}));

TEST(StatusTest, SuccessIsOk) {
  const FakeDriver fake;
  EXPECT_TRUE(ToStatus(fake.table(), CUDA_SUCCESS, "cuMemFree").ok());
}

TEST(StatusTest, MessageNamesCallNameNumberAndText) {
  const FakeDriver fake;
  EXPECT_EQ(ToStatus(fake.table(), CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate").message(),
            "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2), out of memory");
}

TEST(StatusTest, CodesTheDriverDoesNotKnowKeepTheirNumber) {
  const FakeDriver fake;
  EXPECT_EQ(ResultText(fake.table(), static_cast<CUresult>(12345)), "unknown CUDA error (12345)");
}

TEST(StatusTest, EmptyTableStillGivesText) {
  EXPECT_EQ(ResultText(DriverTable{}, CUDA_ERROR_ASSERT), "unknown CUDA error (710)");
}

TEST(LoadDriverTest, MissingLibraryTellsWhy) {
  const auto driver = LoadDriverLibrary("libno-such-driver.so.1");
  EXPECT_EQ(driver.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(driver.status()), "DRIVER_UNSUPPORTED");
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("libno-such-driver.so.1"));
}

TEST(LoadDriverTest, LibraryWithoutTheCallsNamesTheFirstMissingOne) {
  const auto driver = LoadDriverLibrary("libc.so.6");
  EXPECT_EQ(ReasonOf(driver.status()), "DRIVER_UNSUPPORTED");
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("libc.so.6 has no cuInit"));
}

TEST(LoadDriverTest, TestingDriverReplacesTheRealOne) {
  const FakeDriver fake;
  SetDriverForTesting(&fake.table());
  const auto driver = LoadDriver();
  SetDriverForTesting(nullptr);
  ASSERT_TRUE(driver.ok());
  EXPECT_EQ(*driver, &fake.table());
}

TEST(FakeDriverTest, ImplementsEveryCallOfTheTable) {
  const FakeDriver fake;
#define GEMMD_EXPECT_CALL(call) EXPECT_NE(fake.table().call, nullptr) << #call;
  GEMMD_CUDA_DRIVER_FUNCTIONS(GEMMD_EXPECT_CALL)
#undef GEMMD_EXPECT_CALL
}

}  // namespace
}  // namespace gemmd::cuda

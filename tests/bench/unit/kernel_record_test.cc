#include "tests/bench/host/kernel_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmd::bench {
namespace {

using ::testing::ElementsAre;

TEST(KernelRecordTest, SumsTheKernelsOfEachOperation) {
  const auto times =
      SumPerSample({{"gemm", 0, 5}, {"reduce", 10, 1}, {"gemm", 20, 7}, {"reduce", 30, 2}}, 2);
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_THAT(times->microseconds, ElementsAre(6, 9));
  EXPECT_THAT(times->kernels, ElementsAre("gemm", "reduce"));
}

TEST(KernelRecordTest, RefusesARecordThatBelongsToNoOperation) {
  EXPECT_EQ(SumPerSample({{"gemm", 0, 5}, {"gemm", 1, 5}, {"gemm", 2, 5}}, 2).status().code(),
            absl::StatusCode::kInternal);
}

TEST(KernelRecordTest, RefusesOperationsThatRanDifferentKernels) {
  EXPECT_EQ(SumPerSample({{"gemm", 0, 5}, {"other", 1, 5}}, 2).status().code(),
            absl::StatusCode::kInternal);
}

TEST(KernelRecordTest, RefusesNoRecordsAtAll) {
  EXPECT_EQ(SumPerSample({}, 21).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace gemmd::bench

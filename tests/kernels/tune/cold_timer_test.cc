#include "kernels/tune/cold_timer.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/cuda/context.h"
#include "tests/support/fake_driver.h"

namespace gemmd {
namespace {

// What happened on the stream, and what the events say.
std::string& Log() {
  static std::string log;
  return log;
}
float& Milliseconds() {
  static float milliseconds = 0;
  return milliseconds;
}

class ColdTimerTest : public ::testing::Test {
 protected:
  ColdTimerTest() : context_(*cuda::PrimaryContext::Retain(fake_.table(), 0)), scope_(context_) {
    Log().clear();
    table_ = fake_.table();
    table_.cuMemsetD32Async = [](CUdeviceptr, unsigned value, size_t count, CUstream) {
      Log() += absl::StrCat("flush ", count * 4, value == 0 ? " zeros; " : " ones; ");
      return CUDA_SUCCESS;
    };
    table_.cuEventRecord = [](CUevent, CUstream) {
      Log() += "event; ";
      return CUDA_SUCCESS;
    };
    table_.cuStreamSynchronize = [](CUstream) {
      Log() += "wait; ";
      return CUDA_SUCCESS;
    };
    table_.cuEventElapsedTime = [](float* milliseconds, CUevent, CUevent) {
      *milliseconds = Milliseconds();
      return CUDA_SUCCESS;
    };
  }
  static absl::Status Launch() {
    Log() += "launch; ";
    return absl::OkStatus();
  }

  cuda::FakeDriver fake_;
  cuda::PrimaryContext context_;
  cuda::ScopedContext scope_;
  cuda::DriverTable table_;
};

TEST_F(ColdTimerTest, FlushesWithAnotherValueBeforeEveryLaunch) {
  auto timer = ColdTimer::Create(table_, 4096);
  ASSERT_TRUE(timer.ok()) << timer.status();
  Milliseconds() = 0.0125f;
  EXPECT_NEAR(*timer->Time(&Launch), 12500, 1);
  EXPECT_NEAR(*timer->Time(&Launch), 12500, 1);
  EXPECT_EQ(Log(), "flush 4096 ones; event; launch; event; wait; "
                   "flush 4096 zeros; event; launch; event; wait; ");
}

TEST_F(ColdTimerTest, TakesAnEmptyKernelOff) {
  auto timer = ColdTimer::Create(table_, 4096);
  Milliseconds() = 0.0026f;
  ASSERT_TRUE(timer->Calibrate(&Launch).ok());
  EXPECT_NEAR(timer->empty_ns(), 2600, 1);
  EXPECT_NEAR(*timer->Time(&Launch), 0, 1);
  Milliseconds() = 0.0126f;
  EXPECT_NEAR(*timer->Time(&Launch), 10000, 1);
  Milliseconds() = 0.001f;
  EXPECT_EQ(*timer->Time(&Launch), 0) << "never negative";
}

TEST_F(ColdTimerTest, AFailedLaunchLeavesNothingOnTheStream) {
  auto timer = ColdTimer::Create(table_, 4096);
  const auto failing = [] { return absl::InternalError("no"); };
  EXPECT_FALSE(timer->Time(failing).ok());
  EXPECT_EQ(Log(), "flush 4096 ones; event; event; wait; ");
}

TEST_F(ColdTimerTest, ADeviceWithoutMemoryForTheBufferIsTold) {
  fake_.Fail("cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ReasonOf(ColdTimer::Create(fake_.table(), 4096).status()), "GPU_OOM");
}

}  // namespace
}  // namespace gemmd

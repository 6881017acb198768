// Memory of this process on a GPU: what can be named for the daemon, and what is refused. Skips on
// the CPU.
#include "client/cuda_memory.h"

#include <signal.h>

#include "absl/time/clock.h"
#include "client/session.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"
#include "kernels/cuda/device_info.h"
#include "kernels/cuda/vmm.h"
#include "tests/e2e/environment.h"

namespace gemmd::e2e {
namespace {

class CudaMemoryTest : public DaemonTest {
 protected:
  void SetUp() override {
    if (!OnCuda()) GTEST_SKIP() << "GEMMD_E2E_DEVICE is not cuda";
    StartDaemon();
    auto session = client::Session::Open({.address = socket(), .name = "cuda memory"});
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = std::make_unique<client::Session>(*std::move(session));
    const auto hello = session_->hello();
    ASSERT_TRUE(hello.ok());
    device_ = hello->devices(0).id();
  }
  void TearDown() override { session_ = nullptr; }

  std::unique_ptr<client::Session> session_;
  std::string device_;
};

const void* At(uintptr_t address) { return reinterpret_cast<const void*>(address); }

TEST_F(CudaMemoryTest, RegistersAPointerInsideAnAllocationAndCopiesThroughIt) {
  const auto buffer = client::CudaBuffer::Create(device_, 1 << 20);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  auto region = session_->RegisterCuda(At(buffer->address() + 1026), 5000);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(region->device(), device_);
  std::vector<std::byte> bytes(5000, std::byte{42}), back(5000);
  EXPECT_TRUE(region->Write(0, bytes).ok());
  EXPECT_TRUE(region->Read(0, absl::MakeSpan(back)).ok());
  EXPECT_EQ(back, bytes);
}

TEST_F(CudaMemoryTest, RefusesBytesBeyondTheAllocationAndHostMemory) {
  const auto buffer = client::CudaBuffer::Create(device_, 1 << 20);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(ReasonOf(session_->RegisterCuda(At(buffer->address()), uint64_t{1} << 40).status()),
            "REGION_OUT_OF_BOUNDS");
  int on_the_stack = 0;
  EXPECT_FALSE(session_->RegisterCuda(&on_the_stack, 4).ok());
}

TEST_F(CudaMemoryTest, RefusesMappedMemoryWithAHint) {
  const auto driver = cuda::LoadDriver();
  ASSERT_TRUE(driver.ok());
  const auto context = cuda::PrimaryContext::Retain(**driver, 0);
  ASSERT_TRUE(context.ok());
  const cuda::ScopedContext scope(*context);
  const auto memory = cuda::VmmAllocation::Create(**driver, 0, 1 << 20);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const absl::Status status = session_->RegisterCuda(At(memory->address()), 4096).status();
  EXPECT_EQ(ReasonOf(status), "NOT_IPC_CAPABLE") << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("expandable_segments"));
}

TEST_F(CudaMemoryTest, FreesTheClientsMemoryAfterTheDaemonDied) {
  auto buffer = client::CudaBuffer::Create(device_, 64 << 20);
  ASSERT_TRUE(buffer.ok());
  {
    const auto region = session_->RegisterCuda(At(buffer->address()), 64 << 20);
    ASSERT_TRUE(region.ok()) << region.status();
    KillDaemon();
  }
  { const client::CudaBuffer freed = *std::move(buffer); }
  EXPECT_TRUE(client::CudaBuffer::Create(device_, 64 << 20).ok());
}

}  // namespace
}  // namespace gemmd::e2e

// Memory and layers of a GPU as a Device.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/base/status.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/device_info.h"
#include "kernels/cuda/vmm.h"
#include "tests/gpu/gpu_fixture.h"

namespace gemmd::testing {
namespace {

class MemoryTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (device().description().kind != DeviceKind::kCuda) GTEST_SKIP() << "needs CUDA memory";
  }
};

Buffer Bytes(size_t size) {
  Buffer bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 3);
  return bytes;
}

TEST_F(MemoryTest, SmallCopiesComeBack) {
  const Buffer bytes = Bytes(100001);
  auto memory = device().Allocate(bytes.size());
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  EXPECT_STREQ((*memory)->kind(), "daemon");
  EXPECT_EQ((*memory)->size(), bytes.size());
  ASSERT_TRUE(device().CopyIn((*memory)->address(), bytes).ok());
  Buffer back(bytes.size() - 5);
  ASSERT_TRUE(device().CopyOut((*memory)->address() + 5, absl::MakeSpan(back)).ok());
  EXPECT_TRUE(std::equal(back.begin(), back.end(), bytes.begin() + 5));
}

TEST_F(MemoryTest, SmallImportedAllocationsAreTheSameMemory) {
  const auto driver = cuda::LoadDriver();
  ASSERT_TRUE(driver.ok());
  const auto gpus = cuda::ListGpus(**driver);
  ASSERT_TRUE(gpus.ok());
  for (const cuda::DeviceInfo& info : *gpus) {
    if (device().description().id != "cuda:" + info.uuid) continue;
    auto context = cuda::PrimaryContext::Retain(**driver, info.ordinal);
    ASSERT_TRUE(context.ok());
    const cuda::ScopedContext scope(*context);
    auto owned = cuda::VmmAllocation::Create(**driver, info.ordinal, 1000);
    ASSERT_TRUE(owned.ok()) << owned.status().ToString();
    auto fd = owned->ExportFd();
    ASSERT_TRUE(fd.ok()) << fd.status().ToString();
    auto imported = device().OpenFd(fd->get(), 1000);
    ASSERT_TRUE(imported.ok()) << imported.status().ToString();
    EXPECT_STREQ((*imported)->kind(), "vmm");
    const Buffer bytes = Bytes(1000);
    ASSERT_TRUE(device().CopyIn((*imported)->address(), bytes).ok());
    Buffer back(1000);
    ASSERT_TRUE(device().CopyOut(owned->address(), absl::MakeSpan(back)).ok());
    EXPECT_EQ(back, bytes);
    return;
  }
  FAIL() << device().description().id << " is not among the driver's GPUs";
}

TEST_F(MemoryTest, RefusedHandlesLeaveTheDeviceHealthy) {
  const Buffer random = Bytes(64);
  EXPECT_FALSE(device().OpenCudaIpc(random, 4096).ok());
  for (const size_t size : {0, 63, 65}) {
    EXPECT_EQ(ReasonOf(device().OpenCudaIpc(Bytes(size), 4096).status()), "BAD_HANDLE_SIZE")
        << size;
  }
  EXPECT_FALSE(device().OpenFd(0, 4096).ok());
  EXPECT_TRUE(device().health().ok()) << device().health().ToString();
}

TEST_F(MemoryTest, AFullGpuSaysSoAndGoesOn) {
  EXPECT_EQ(ReasonOf(device().Allocate(uint64_t{1} << 44).status()), "GPU_OOM");
  EXPECT_TRUE(device().health().ok());
  EXPECT_TRUE(device().Allocate(4096).ok());
}

TEST_F(MemoryTest, ReleasedLayersGiveTheirMemoryBack) {
  QuantSpec spec;
  spec.weight = IntegerFormat(4);
  spec.scale = kFloat16;
  spec.scale_block_k = 32;
  const uint64_t before = device().weights_bytes();
  auto layer = runner().Load(RandomTensor(spec, {1, 64, 64}, random_));
  ASSERT_NE(layer, nullptr);
  EXPECT_EQ(device().weights_bytes(), before + layer->bytes());
  layer.reset();
  EXPECT_EQ(device().weights_bytes(), before);
}

}  // namespace
}  // namespace gemmd::testing

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "core/exec/cpu_device.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

class CpuMemoryTest : public ::testing::Test {
 protected:
  static int Memfd(off_t size, bool sealed) {
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd, size), 0);
    if (sealed) {
      EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    }
    return fd;
  }
  std::unique_ptr<Device> device = CreateCpuDevice({1});
};

TEST_F(CpuMemoryTest, MapsASealedMemfdSharedWithItsOwner) {
  const int fd = Memfd(8192, true);
  auto memory = device->OpenFd(fd, 8192);
  ASSERT_TRUE(memory.ok()) << memory.status();
  close(fd);
  EXPECT_STREQ((*memory)->kind(), "memfd");
  EXPECT_EQ((*memory)->size(), 8192u);
  const char text[] = "hello";
  const auto* bytes = reinterpret_cast<const std::byte*>(text);
  ASSERT_TRUE(device->CopyIn((*memory)->address() + 100, absl::MakeConstSpan(bytes, 5)).ok());
  EXPECT_EQ(std::memcmp(reinterpret_cast<const char*>((*memory)->address()) + 100, "hello", 5), 0);
}

TEST_F(CpuMemoryTest, RefusesAMemfdThatCouldShrink) {
  const int fd = Memfd(4096, false);
  const absl::Status status = device->OpenFd(fd, 4096).status();
  close(fd);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "NOT_IPC_CAPABLE");
}

TEST_F(CpuMemoryTest, RefusesMoreThanTheFileHas) {
  const int fd = Memfd(4096, true);
  EXPECT_EQ(ReasonOf(device->OpenFd(fd, 4097).status()), "REGION_OUT_OF_BOUNDS");
  EXPECT_EQ(ReasonOf(device->OpenFd(fd, 0).status()), "REGION_OUT_OF_BOUNDS");
  EXPECT_EQ(ReasonOf(device->OpenFd(fd, ~uint64_t{0}).status()), "REGION_OUT_OF_BOUNDS");
  close(fd);
}

TEST_F(CpuMemoryTest, RefusesWhatIsNoMemfd) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  EXPECT_EQ(ReasonOf(device->OpenFd(pipes[0], 1).status()), "NOT_IPC_CAPABLE");
  EXPECT_EQ(ReasonOf(device->OpenFd(-1, 1).status()), "IPC_OPEN_FAILED");
  close(pipes[0]);
  close(pipes[1]);
}

TEST_F(CpuMemoryTest, RefusesMoreThanTheMachineHas) {
  EXPECT_EQ(ReasonOf(device->Allocate(uint64_t{1} << 50).status()), "GPU_OOM");
}

TEST_F(CpuMemoryTest, HasNoCudaMemory) {
  const std::byte handle[64] = {};
  const absl::Status status = device->OpenCudaIpc(handle, 4096).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ReasonOf(status), "NOT_IPC_CAPABLE");
}

}  // namespace
}  // namespace gemmd

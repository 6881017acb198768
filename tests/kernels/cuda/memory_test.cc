#include "kernels/cuda/memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/base/status.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/ipc.h"
#include "kernels/cuda/vmm.h"
#include "tests/support/fake_driver.h"

namespace gemmd::cuda {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGranularity = 2 << 20;

std::vector<std::string>* reports = nullptr;

// One context current on this thread; teardown problems and leaks fail the test.
class MemoryTest : public ::testing::Test {
 protected:
  MemoryTest() {
    reports = &reports_;
    SetTeardownReporter([](const std::string& message) { reports->push_back(message); });
    driver().cuDevicePrimaryCtxRetain(&context_, 0);
    driver().cuCtxPushCurrent(context_);
  }
  ~MemoryTest() override {
    driver().cuCtxPopCurrent(&context_);
    driver().cuDevicePrimaryCtxRelease(0);
    EXPECT_EQ(fake_.Live(), "");
    EXPECT_THAT(reports_, ::testing::IsEmpty());
    SetTeardownReporter(nullptr);
  }

  const DriverTable& driver() const { return fake_.table(); }

  // Runs `open` with its first, second, ... acquiring call failing until it succeeds; after every
  // failure nothing may be left. Returns the number of failures seen.
  template <typename Open>
  int FailAtEveryCall(Open open) {
    const std::string before = fake_.Live();
    for (int failures = 0; failures < 100; ++failures) {
      fake_.FailNthAcquisition(failures + 1, CUDA_ERROR_OUT_OF_MEMORY);
      const bool succeeded = open().ok();
      fake_.ClearFailures();
      EXPECT_EQ(fake_.Live(), before) << "after failing acquisition " << failures + 1;
      if (succeeded) return failures;
    }
    ADD_FAILURE() << "never succeeded";
    return -1;
  }

  FakeDriver fake_;
  CUcontext context_ = nullptr;
  std::vector<std::string> reports_;
};

TEST_F(MemoryTest, DeviceBufferFreesOnceAlsoAfterMoves) {
  auto first = DeviceBuffer::Create(driver(), 100);
  ASSERT_TRUE(first.ok()) << first.status();
  DeviceBuffer second = *std::move(first);
  auto third = DeviceBuffer::Create(driver(), 200);
  second = *std::move(third);
  EXPECT_EQ(second.size(), 200);
  EXPECT_EQ(fake_.Calls("cuMemFree"), 1);
}

TEST_F(MemoryTest, DeviceBufferIsFreedOnAThreadWithoutContext) {
  auto buffer = DeviceBuffer::Create(driver(), 100);
  ASSERT_TRUE(buffer.ok());
  driver().cuCtxPopCurrent(&context_);
  { const DeviceBuffer moved = *std::move(buffer); }
  driver().cuCtxPushCurrent(context_);
  EXPECT_EQ(fake_.Calls("cuMemFree"), 1);
}

TEST_F(MemoryTest, BuffersOfNoBytesAreRefused) {
  EXPECT_EQ(ReasonOf(DeviceBuffer::Create(driver(), 0).status()), "REGION_OUT_OF_BOUNDS");
  EXPECT_EQ(ReasonOf(PinnedBuffer::Create(driver(), 0).status()), "REGION_OUT_OF_BOUNDS");
}

TEST_F(MemoryTest, MoreThanTheGpuHasIsOutOfMemory) {
  const absl::Status status = DeviceBuffer::Create(driver(), uint64_t{2} << 30).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), "GPU_OOM");
}

TEST_F(MemoryTest, BuffersNeedACurrentContext) {
  driver().cuCtxPopCurrent(&context_);
  EXPECT_EQ(ReasonOf(DeviceBuffer::Create(driver(), 100).status()), "NO_CONTEXT");
  driver().cuCtxPushCurrent(context_);
}

TEST_F(MemoryTest, BuffersFreeWhatTheyAcquiredOnFailure) {
  EXPECT_EQ(FailAtEveryCall([this] { return DeviceBuffer::Create(driver(), 100); }), 2);
  EXPECT_EQ(FailAtEveryCall([this] { return PinnedBuffer::Create(driver(), 100); }), 2);
}

TEST_F(MemoryTest, FailingTeardownIsReportedNotThrown) {
  {
    const auto buffer = DeviceBuffer::Create(driver(), 100);
    fake_.Fail("cuMemFree", CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_THAT(reports_, ::testing::ElementsAre(HasSubstr("cuMemFree: CUDA_ERROR_INVALID_VALUE")));
  reports_.clear();
}

TEST_F(MemoryTest, TeardownAfterTheDriverShutDownIsSilent) {
  {
    const auto buffer = DeviceBuffer::Create(driver(), 100);
    fake_.Fail("cuMemFree", CUDA_ERROR_DEINITIALIZED);
  }
  EXPECT_THAT(reports_, ::testing::IsEmpty());
}

TEST_F(MemoryTest, PrimaryContextIsReleasedAndScopesNest) {
  auto primary = PrimaryContext::Retain(driver(), 0);
  ASSERT_TRUE(primary.ok());
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent(&popped);
  {
    const ScopedContext outer(*primary);
    ASSERT_TRUE(outer.status().ok());
    { const ScopedContext inner(driver(), nullptr); }
    EXPECT_EQ(*CurrentContext(driver()), primary->get());
  }
  EXPECT_EQ(ReasonOf(CurrentContext(driver()).status()), "NO_CONTEXT");
  driver().cuCtxPushCurrent(popped);
  EXPECT_EQ(FailAtEveryCall([this] { return PrimaryContext::Retain(driver(), 0); }), 2);
  EXPECT_FALSE(PrimaryContext::Retain(driver(), 7).ok());
}

TEST_F(MemoryTest, VmmAllocationIsRoundedUpAndUsable) {
  const auto memory = VmmAllocation::Create(driver(), 0, 3 << 20);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->size(), 2 * kGranularity);
  EXPECT_EQ(driver().cuMemsetD8(memory->address(), 7, memory->size()), CUDA_SUCCESS);
}

TEST_F(MemoryTest, VmmRefusesSizesThatCannotBeRounded) {
  EXPECT_EQ(ReasonOf(VmmAllocation::Create(driver(), 0, 0).status()), "REGION_OUT_OF_BOUNDS");
  EXPECT_EQ(ReasonOf(VmmAllocation::Create(driver(), 0, ~uint64_t{0}).status()),
            "REGION_OUT_OF_BOUNDS");
}

TEST_F(MemoryTest, VmmAllocationFreesWhatItAcquiredOnFailure) {
  // Granularity, create, reserve, map, access.
  EXPECT_EQ(FailAtEveryCall([this] { return VmmAllocation::Create(driver(), 0, 100); }), 5);
}

TEST_F(MemoryTest, ExportedDescriptorClosesOnExec) {
  const auto memory = VmmAllocation::Create(driver(), 0, 100);
  const auto fd = memory->ExportFd();
  ASSERT_TRUE(fd.ok());
  EXPECT_EQ(fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST_F(MemoryTest, ImportedMappingSeesTheExportersBytesAndOutlivesIt) {
  auto memory = VmmAllocation::Create(driver(), 0, 100);
  ASSERT_EQ(driver().cuMemsetD8(memory->address(), 42, 100), CUDA_SUCCESS);
  const auto fd = memory->ExportFd();
  const auto mapping = VmmMapping::Import(driver(), 0, fd->get(), 100, /*read_only=*/true);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ(mapping->size(), kGranularity);
  { const VmmAllocation gone = *std::move(memory); }
  char byte = 0;
  ASSERT_EQ(driver().cuMemcpyDtoH(&byte, mapping->address() + 99, 1), CUDA_SUCCESS);
  EXPECT_EQ(byte, 42);
}

TEST_F(MemoryTest, ImportReleasesWhatItAcquiredOnFailure) {
  const auto memory = VmmAllocation::Create(driver(), 0, 100);
  const auto fd = memory->ExportFd();
  const auto import = [&] { return VmmMapping::Import(driver(), 0, fd->get(), 100, false); };
  EXPECT_EQ(FailAtEveryCall(import), 5);
}

TEST_F(MemoryTest, ImportOfAnotherSizeIsTheClientsFault) {
  const auto memory = VmmAllocation::Create(driver(), 0, 100);
  const auto fd = memory->ExportFd();
  const absl::Status status =
      VmmMapping::Import(driver(), 0, fd->get(), 2 * kGranularity, true).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), "REGION_OUT_OF_BOUNDS");
}

TEST_F(MemoryTest, ImportOfSomethingElseIsRefused) {
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {null.get(), -1}) {
    const absl::Status status = VmmMapping::Import(driver(), 0, fd, 100, true).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ReasonOf(status), "IPC_OPEN_FAILED");
  }
}

TEST_F(MemoryTest, IpcExportDescribesTheWholeAllocation) {
  const auto buffer = DeviceBuffer::Create(driver(), 1000);
  const auto exported = ExportIpc(driver(), buffer->address() + 96);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->base, buffer->address());
  EXPECT_EQ(exported->offset, 96);
  EXPECT_EQ(exported->allocation_size, 1000);
  EXPECT_EQ(exported->ordinal, 0);
  EXPECT_NE(exported->buffer_id, 0);
}

TEST_F(MemoryTest, ReusedAddressHasAnotherBufferId) {
  uint64_t first = 0;
  {
    const auto buffer = DeviceBuffer::Create(driver(), 1000);
    first = ExportIpc(driver(), buffer->address())->buffer_id;
  }
  const auto buffer = DeviceBuffer::Create(driver(), 1000);
  EXPECT_NE(ExportIpc(driver(), buffer->address())->buffer_id, first);
}

TEST_F(MemoryTest, MemoryWithoutHandleNamesTheAllocatorSettings) {
  fake_.SetLegacyIpcCapable(false);
  const auto buffer = DeviceBuffer::Create(driver(), 1000);
  const auto vmm = VmmAllocation::Create(driver(), 0, 100);
  for (const uintptr_t address : {buffer->address(), vmm->address()}) {
    const absl::Status status = ExportIpc(driver(), address).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ReasonOf(status), "NOT_IPC_CAPABLE");
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("PYTORCH_CUDA_ALLOC_CONF=expandable_segments"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("cudaMallocAsync"));
  }
}

TEST_F(MemoryTest, HostPointersAreNotIpcCapable) {
  int on_stack = 0;
  const absl::Status status = ExportIpc(driver(), reinterpret_cast<uintptr_t>(&on_stack)).status();
  EXPECT_EQ(ReasonOf(status), "NOT_IPC_CAPABLE");
}

TEST_F(MemoryTest, ExportReportsALostContextAsSuch) {
  const auto buffer = DeviceBuffer::Create(driver(), 1000);
  fake_.Fail("cuPointerGetAttribute", CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ReasonOf(ExportIpc(driver(), buffer->address()).status()), "CONTEXT_LOST");
  fake_.ClearFailures();
}

class IpcImportTest : public MemoryTest {
 protected:
  IpcImportTest() : buffer_(*DeviceBuffer::Create(driver(), 1000)) {
    exported_ = *ExportIpc(driver(), buffer_.address());
    fake_.AllowOpeningOwnHandles(true);
  }
  absl::StatusOr<IpcMapping> Open(uint64_t allocation_size) {
    return IpcMapping::Open(driver(), exported_.handle, allocation_size);
  }

  DeviceBuffer buffer_;
  IpcExport exported_;
};

TEST_F(IpcImportTest, SharesMemoryWithTheExporter) {
  const auto mapping = Open(1000);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ(mapping->size(), 1000);
  ASSERT_EQ(driver().cuMemsetD8(buffer_.address() + 500, 9, 1), CUDA_SUCCESS);
  char byte = 0;
  ASSERT_EQ(driver().cuMemcpyDtoH(&byte, mapping->address() + 500, 1), CUDA_SUCCESS);
  EXPECT_EQ(byte, 9);
}

TEST_F(IpcImportTest, UnstatedSizeIsTheDriversFigure) { EXPECT_EQ(Open(0)->size(), 1000); }

TEST_F(IpcImportTest, StatedSizeMayOnlyNarrow) {
  EXPECT_EQ(Open(600)->size(), 600);
  const absl::Status status = Open(1001).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), "REGION_OUT_OF_BOUNDS");
  EXPECT_THAT(std::string(status.message()), HasSubstr("1001"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("1000"));
}

TEST_F(IpcImportTest, HandlesOfAnotherLengthAreRefusedBeforeTheDriver) {
  for (const size_t size : {0u, 63u, 65u}) {
    const std::vector<std::byte> handle(size);
    const absl::Status status = IpcMapping::Open(driver(), handle, 0).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(status), "BAD_HANDLE_SIZE");
  }
  EXPECT_EQ(fake_.Calls("cuIpcOpenMemHandle"), 0);
}

TEST_F(IpcImportTest, ClosesOnEveryFailure) {
  EXPECT_EQ(FailAtEveryCall([this] { return Open(1000); }), 3);
  EXPECT_EQ(fake_.Calls("cuIpcCloseMemHandle"), 2);  // the failing range query, and the success
}

TEST_F(IpcImportTest, OwnHandleGetsAHint) {
  fake_.AllowOpeningOwnHandles(false);
  const absl::Status status = Open(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "IPC_OPEN_FAILED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA_ERROR_INVALID_CONTEXT (201)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("own handle"));
}

TEST_F(IpcImportTest, UnknownHandleGetsAHint) {
  exported_.handle.fill(std::byte{0x5a});
  const absl::Status status = Open(0).status();
  EXPECT_EQ(ReasonOf(status), "IPC_OPEN_FAILED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("PID namespace"));
}

TEST_F(IpcImportTest, WaitsWhileAnotherMappingOfTheMemoryIsBeingClosed) {
  fake_.Fail("cuIpcOpenMemHandle", CUDA_ERROR_ALREADY_MAPPED, 0, 3);
  EXPECT_TRUE(Open(1000).ok());
  EXPECT_EQ(fake_.Calls("cuIpcOpenMemHandle"), 4);
}

TEST_F(IpcImportTest, DoesNotWaitForEver) {
  fake_.Fail("cuIpcOpenMemHandle", CUDA_ERROR_ALREADY_MAPPED, 0, 1 << 20);
  const absl::Status status = Open(1000).status();
  EXPECT_EQ(ReasonOf(status), "IPC_OPEN_FAILED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("(208)"));
  EXPECT_EQ(fake_.Calls("cuIpcCloseMemHandle"), 0);
  fake_.ClearFailures();
}

TEST_F(IpcImportTest, LostContextIsNotBlamedOnTheHandle) {
  fake_.Fail("cuIpcOpenMemHandle", CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ReasonOf(Open(0).status()), "CONTEXT_LOST");
  fake_.ClearFailures();
}

TEST_F(IpcImportTest, ClosesUnderTheContextItWasOpenedIn) {
  auto mapping = Open(0);
  driver().cuCtxPopCurrent(&context_);
  { const IpcMapping gone = *std::move(mapping); }
  driver().cuCtxPushCurrent(context_);
  EXPECT_EQ(fake_.Calls("cuIpcCloseMemHandle"), 1);
}

TEST_F(IpcImportTest, WorksBetweenProcesses) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    fake_.AllowOpeningOwnHandles(false);
    const auto mapping = Open(1000);
    if (!mapping.ok()) _exit(1);
    _exit(driver().cuMemsetD8(mapping->address() + 10, 77, 1) == CUDA_SUCCESS ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
  char byte = 0;
  ASSERT_EQ(driver().cuMemcpyDtoH(&byte, buffer_.address() + 10, 1), CUDA_SUCCESS);
  EXPECT_EQ(byte, 77);
}

}  // namespace
}  // namespace gemmd::cuda

// What    kernels/cuda/ on a real driver: everything tests/support/fake_driver.h assumes about one.
//         Other processes are this program again, as one of the roles at the end.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/device_info.h"
#include "kernels/cuda/ipc.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/library.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/vmm.h"
#include "kernels/jit/compiler.h"

namespace gemmd::cuda {
namespace {

using ::testing::HasSubstr;

constexpr char kProgram[] =
    "namespace test {\n"
    "__global__ void Fill(int* p, int value) { p[blockIdx.x * blockDim.x + threadIdx.x] = value; "
    "}\n"
    "}\n";

class RealDriverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto driver = LoadDriver();
    if (!driver.ok()) GTEST_SKIP() << driver.status();
    const auto gpus = ListGpus(**driver);
    ASSERT_TRUE(gpus.ok()) << gpus.status();
    if (gpus->empty()) GTEST_SKIP() << "no GPU";
    driver_ = *driver;
    gpu_ = gpus->front();
    context_.emplace(*PrimaryContext::Retain(*driver_, 0));
    scope_.emplace(*context_);
    ASSERT_TRUE(scope_->status().ok());
  }
  int ReadByte(uintptr_t address) const {
    unsigned char byte = 0;
    const CUresult result = driver_->cuMemcpyDtoH(&byte, address, 1);
    return result == CUDA_SUCCESS ? byte : -static_cast<int>(result);
  }
  absl::StatusOr<jit::CompiledKernel> CompileFill(const std::string& architecture) const {
    GEMMD_ASSIGN_OR_RETURN(const jit::NvrtcTable* nvrtc, jit::LoadNvrtc());
    return jit::Compile({kProgram, "test::Fill", architecture}, *nvrtc);
  }

  // Writes one int to `address` in a kernel; the status of waiting for it.
  absl::Status RunFill(CUdeviceptr address) const {
    GEMMD_ASSIGN_OR_RETURN(const auto compiled, CompileFill(gpu_.architecture));
    GEMMD_ASSIGN_OR_RETURN(const auto library, LoadedLibrary::Load(*driver_, compiled.cubin));
    GEMMD_ASSIGN_OR_RETURN(CUkernel kernel, library.GetKernel(compiled.lowered_name));
    GEMMD_ASSIGN_OR_RETURN(const auto stream, Stream::Create(*driver_));
    int value = 1;
    void* params[] = {&address, &value};
    GEMMD_RETURN_IF_ERROR(LaunchKernel(*driver_, kernel, {}, stream.get(), params));
    return stream.Synchronize();
  }

  const DriverTable* driver_ = nullptr;
  DeviceInfo gpu_;
  std::optional<PrimaryContext> context_;
  std::optional<ScopedContext> scope_;
};

// Runs the test `DISABLED_Role.<name>` of this program in a new process; returns its exit status.
int RunRole(const std::string& name, const std::string& argument) {
  const std::string filter = "--gtest_filter=DISABLED_Role." + name;
  const pid_t child = fork();
  if (child == 0) {
    setenv("GEMMD_ROLE", argument.c_str(), 1);
    execl("/proc/self/exe", "real_driver_test", filter.c_str(), "--gtest_brief=1",
          "--gtest_also_run_disabled_tests", nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(RealDriverTest, DescribesTheGpu) {
  EXPECT_TRUE(gpu_.Usable().ok()) << gpu_.Usable();
  EXPECT_THAT(gpu_.unknown, ::testing::IsEmpty());
  EXPECT_EQ(gpu_.uuid.size(), 40) << gpu_.uuid;
  EXPECT_GT(gpu_.sm_count, 0);
  EXPECT_GT(gpu_.memory_bytes, uint64_t{1} << 30);
  EXPECT_GT(gpu_.l2_bytes, 0);
  EXPECT_GE(gpu_.shared_bytes_per_block, 48 << 10);
  EXPECT_TRUE(gpu_.has_vmm);
}

TEST_F(RealDriverTest, LaunchesACompiledKernel) {
  const auto compiled = CompileFill(gpu_.architecture);
  if (ReasonOf(compiled.status()) == "NVRTC_MISSING") GTEST_SKIP() << compiled.status();
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const auto library = LoadedLibrary::Load(*driver_, compiled->cubin);
  ASSERT_TRUE(library.ok()) << library.status();
  const auto kernel = library->GetKernel(compiled->lowered_name);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(library->GetKernel("no_such_kernel").status().code(), absl::StatusCode::kNotFound);
  const auto resources = GetKernelResources(*driver_, *kernel, context_->device());
  ASSERT_TRUE(resources.ok()) << resources.status();
  EXPECT_GT(resources->registers, 0);
  EXPECT_EQ(resources->local_bytes, 0);
  EXPECT_GT(*MaxBlocksPerMultiprocessor(*driver_, *kernel, 256, 0), 0);

  const auto stream = Stream::Create(*driver_);
  const auto buffer = DeviceBuffer::Create(*driver_, 8 * 256 * sizeof(int));
  const auto from = Event::Create(*driver_, EventKind::kTiming);
  const auto to = Event::Create(*driver_, EventKind::kTiming);
  CUdeviceptr address = buffer->address();
  int value = 0x2a2a2a2a;
  void* params[] = {&address, &value};
  ASSERT_TRUE(from->Record(stream->get()).ok());
  LaunchGrid grid{{8, 1, 1}, {256, 1, 1}};
  if (gpu_.cc_major >= 9) grid.cluster.x = 2;
  const absl::Status launched = LaunchKernel(*driver_, *kernel, grid, stream->get(), params);
  ASSERT_TRUE(launched.ok()) << launched;
  ASSERT_TRUE(to->Record(stream->get()).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_TRUE(*stream->IsIdle());
  EXPECT_GT(*Elapsed(*from, *to), absl::ZeroDuration());
  EXPECT_EQ(ReadByte(buffer->address() + buffer->size() - 1), 42);
}

TEST_F(RealDriverTest, CubinOfAnotherArchitectureIsRefused) {
  const auto compiled = CompileFill(gpu_.cc_major == 7 ? "sm_80" : "sm_75");
  if (ReasonOf(compiled.status()) == "NVRTC_MISSING") GTEST_SKIP() << compiled.status();
  // The driver looks at the code when a kernel is asked for, not before.
  const auto library = LoadedLibrary::Load(*driver_, compiled->cubin);
  ASSERT_TRUE(library.ok()) << library.status();
  const absl::Status status = library->GetKernel(compiled->lowered_name).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_EQ(ReasonOf(status), "DRIVER_UNSUPPORTED");
}

TEST_F(RealDriverTest, IpcMappingIsSharedWithAnotherProcess) {
  const auto buffer = DeviceBuffer::Create(*driver_, 5 << 20);
  ASSERT_EQ(driver_->cuMemsetD8(buffer->address(), 17, buffer->size()), CUDA_SUCCESS);
  const auto exported = ExportIpc(*driver_, buffer->address() + 4096);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->base + exported->offset, buffer->address() + 4096);
  EXPECT_GE(exported->allocation_size, buffer->size());
  EXPECT_EQ(exported->ordinal, 0);
  EXPECT_NE(exported->buffer_id, 0);
  ASSERT_EQ(driver_->cuCtxSynchronize(), CUDA_SUCCESS);
  const std::string handle = absl::BytesToHexString(
      {reinterpret_cast<const char*>(exported->handle.data()), exported->handle.size()});
  ASSERT_EQ(RunRole("OpensIpcHandle",
                    absl::StrCat(handle, " ", exported->allocation_size, " ", exported->offset)),
            0);
  EXPECT_EQ(ReadByte(buffer->address() + 4096), 18);
}

TEST_F(RealDriverTest, SmallAllocationsShareABlockAndStillExport) {
  const auto first = DeviceBuffer::Create(*driver_, 1000);
  const auto second = DeviceBuffer::Create(*driver_, 1000);
  const auto a = ExportIpc(*driver_, first->address());
  const auto b = ExportIpc(*driver_, second->address() + 8);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_EQ(b->base + b->offset, second->address() + 8);
  EXPECT_NE(a->buffer_id, b->buffer_id);
}

TEST_F(RealDriverTest, OwnHandleAndGarbageAreRefusedWithAHint) {
  const auto buffer = DeviceBuffer::Create(*driver_, 5 << 20);
  const auto exported = ExportIpc(*driver_, buffer->address());
  const absl::Status own = IpcMapping::Open(*driver_, exported->handle, 0).status();
  EXPECT_EQ(ReasonOf(own), "IPC_OPEN_FAILED") << own;
  EXPECT_THAT(std::string(own.message()), HasSubstr("own handle"));
  const std::vector<std::byte> garbage(64, std::byte{0x5a});
  EXPECT_EQ(ReasonOf(IpcMapping::Open(*driver_, garbage, 0).status()), "IPC_OPEN_FAILED");
}

TEST_F(RealDriverTest, MemoryWithoutLegacyHandleIsRefused) {
  const auto vmm = VmmAllocation::Create(*driver_, 0, 1 << 20);
  ASSERT_TRUE(vmm.ok()) << vmm.status();
  const auto pinned = PinnedBuffer::Create(*driver_, 4096);
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  int on_stack = 0;
  for (const uintptr_t address :
       {vmm->address(), reinterpret_cast<uintptr_t>(pinned->bytes().data()),
        reinterpret_cast<uintptr_t>(&on_stack)}) {
    const absl::Status status = ExportIpc(*driver_, address).status();
    EXPECT_EQ(ReasonOf(status), "NOT_IPC_CAPABLE") << status;
  }
}

TEST_F(RealDriverTest, VmmMemoryIsSharedByDescriptorAndOutlivesItsExporter) {
  auto memory = VmmAllocation::Create(*driver_, 0, 3 << 20);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->size(), 4u << 20);
  ASSERT_EQ(driver_->cuMemsetD8(memory->address(), 33, memory->size()), CUDA_SUCCESS);
  ASSERT_EQ(driver_->cuCtxSynchronize(), CUDA_SUCCESS);
  const auto fd = memory->ExportFd();
  ASSERT_TRUE(fd.ok()) << fd.status();
  { const VmmAllocation gone = *std::move(memory); }
  fcntl(fd->get(), F_SETFD, 0);  // the role inherits it
  EXPECT_EQ(RunRole("ImportsDescriptor", absl::StrCat(fd->get())), 0);
  EXPECT_EQ(RunRole("WritesToAReadOnlyMapping", absl::StrCat(fd->get())), 0);
}

TEST_F(RealDriverTest, FaultInAKernelIsALostContext) {
  EXPECT_EQ(RunRole("LosesItsContext", "-"), 0);
}

// Roles: other processes of the tests above, which alone run them.
class DISABLED_Role : public RealDriverTest {
 protected:
  void SetUp() override {
    const char* argument = std::getenv("GEMMD_ROLE");
    ASSERT_NE(argument, nullptr) << "GEMMD_ROLE: what the role is run with";
    argument_ = argument;
    RealDriverTest::SetUp();
  }
  std::string argument_;
};

TEST_F(DISABLED_Role, OpensIpcHandle) {
  const std::string handle = absl::HexStringToBytes(argument_.substr(0, 128));
  unsigned long long size = 0;
  unsigned long long offset = 0;
  ASSERT_EQ(sscanf(argument_.c_str() + 128, "%llu %llu", &size, &offset), 2);
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(handle.data()), 64);
  EXPECT_EQ(ReasonOf(IpcMapping::Open(*driver_, bytes, size + (64 << 20)).status()),
            "REGION_OUT_OF_BOUNDS");
  const auto mapping = IpcMapping::Open(*driver_, bytes, size);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  const auto again = IpcMapping::Open(*driver_, bytes, 0);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->size(), size);
  EXPECT_EQ(ReadByte(mapping->address() + offset), 17);
  ASSERT_EQ(driver_->cuMemsetD8(mapping->address() + offset, 18, 1), CUDA_SUCCESS);
  ASSERT_EQ(driver_->cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(DISABLED_Role, ImportsDescriptor) {
  const int fd = std::atoi(argument_.c_str());
  for (const uint64_t wrong : {64 << 20, 1 << 20}) {
    const absl::Status status = VmmMapping::Import(*driver_, 0, fd, wrong, false).status();
    EXPECT_EQ(ReasonOf(status), "REGION_OUT_OF_BOUNDS") << status;
  }
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(ReasonOf(VmmMapping::Import(*driver_, 0, null.get(), 3 << 20, false).status()),
            "IPC_OPEN_FAILED");
  const auto writable = VmmMapping::Import(*driver_, 0, fd, 3 << 20, /*read_only=*/false);
  ASSERT_TRUE(writable.ok()) << writable.status();
  EXPECT_EQ(ReadByte(writable->address() + (3 << 20)), 33);
  const auto read_only = VmmMapping::Import(*driver_, 0, fd, 4 << 20, /*read_only=*/true);
  ASSERT_TRUE(read_only.ok()) << read_only.status();
  EXPECT_EQ(read_only->size(), 4u << 20);
  EXPECT_EQ(ReadByte(read_only->address()), 33);
  EXPECT_EQ(driver_->cuMemsetD8(read_only->address(), 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ReadByte(writable->address()), 33);
}

TEST_F(DISABLED_Role, WritesToAReadOnlyMapping) {
  SetTeardownReporter([](const std::string&) {});  // every later call fails, teardown too
  const auto mapping =
      VmmMapping::Import(*driver_, 0, std::atoi(argument_.c_str()), 3 << 20, /*read_only=*/true);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ(ReasonOf(RunFill(mapping->address())), "CONTEXT_LOST");
}

TEST_F(DISABLED_Role, LosesItsContext) {
  SetTeardownReporter([](const std::string&) {});
  const absl::Status status = RunFill(16);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_EQ(ReasonOf(status), "CONTEXT_LOST");
  EXPECT_EQ(ReasonOf(DeviceBuffer::Create(*driver_, 100).status()), "CONTEXT_LOST");
}

}  // namespace
}  // namespace gemmd::cuda

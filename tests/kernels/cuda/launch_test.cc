#include "kernels/cuda/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "kernels/base/status.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/library.h"
#include "kernels/cuda/stream.h"
#include "tests/support/fake_driver.h"

namespace gemmd::cuda {
namespace {

class LaunchTest : public ::testing::Test {
 protected:
  LaunchTest() : context_(*PrimaryContext::Retain(driver(), 0)) { scope_.emplace(context_); }

  const DriverTable& driver() const { return fake_.table(); }
  absl::StatusOr<LoadedLibrary> Load() {
    static constexpr std::byte kCubin[] = {std::byte{1}};
    return LoadedLibrary::Load(driver(), kCubin);
  }

  FakeDriver fake_;
  PrimaryContext context_;
  std::optional<ScopedContext> scope_;
};

TEST_F(LaunchTest, PassesGridAttributesAndParameters) {
  const auto library = Load();
  const auto kernel = library->GetKernel("gemm");
  ASSERT_TRUE(kernel.ok());
  const auto stream = Stream::Create(driver());
  int launches = 0;
  fake_.OnLaunch([&](const FakeLaunch& launch) {
    ++launches;
    EXPECT_EQ(launch.kernel, "gemm");
    EXPECT_EQ(launch.config.gridDimX, 132u);
    EXPECT_EQ(launch.config.gridDimY, 2u);
    EXPECT_EQ(launch.config.blockDimX, 384u);
    EXPECT_EQ(launch.config.sharedMemBytes, 200000u);
    EXPECT_EQ(launch.config.hStream, stream->get());
    EXPECT_EQ(launch.cluster_x, 2u);
    EXPECT_TRUE(launch.overlaps_previous);
    EXPECT_EQ(*static_cast<int*>(launch.params[0]), 17);
    return CUDA_SUCCESS;
  });
  int argument = 17;
  void* params[] = {&argument};
  const LaunchGrid grid{{132, 2, 1}, {384, 1, 1}, {2, 1, 1}, 200000, /*overlaps_previous=*/true};
  EXPECT_TRUE(LaunchKernel(driver(), *kernel, grid, stream->get(), params).ok());
  EXPECT_EQ(launches, 1);
}

TEST_F(LaunchTest, PlainLaunchHasNoAttributes) {
  const auto library = Load();
  const auto kernel = library->GetKernel("gemm");
  fake_.OnLaunch([](const FakeLaunch& launch) {
    EXPECT_EQ(launch.config.numAttrs, 0u);
    return CUDA_SUCCESS;
  });
  EXPECT_TRUE(LaunchKernel(driver(), *kernel, {}, nullptr, nullptr).ok());
}

TEST_F(LaunchTest, FaultInAKernelSticks) {
  const auto library = Load();
  const auto kernel = library->GetKernel("gemm");
  fake_.Fail("cuLaunchKernelEx", CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ReasonOf(LaunchKernel(driver(), *kernel, {}, nullptr, nullptr)), "CONTEXT_LOST");
  EXPECT_EQ(ReasonOf(Stream::Create(driver()).status()), "CONTEXT_LOST");
  fake_.ClearFailures();
}

TEST_F(LaunchTest, LibraryOfAnotherArchitectureIsRefused) {
  for (const char* call : {"cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction"}) {
    fake_.Fail(call, CUDA_ERROR_NO_BINARY_FOR_GPU);
    const auto library = Load();
    const absl::Status status =
        library.ok() ? library->GetKernel("gemm").status() : library.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << call;
    EXPECT_EQ(ReasonOf(status), "DRIVER_UNSUPPORTED") << call;
  }
  EXPECT_FALSE(LoadedLibrary::Load(driver(), {}).ok());
  EXPECT_EQ(fake_.Live(), "cuDevicePrimaryCtxRetain 1");
}

TEST_F(LaunchTest, UnknownKernelIsNotFound) {
  fake_.SetKernels({"gemm"});
  const auto library = Load();
  EXPECT_TRUE(library->GetKernel("gemm").ok());
  const absl::Status status = library->GetKernel("moe").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(status), "NO_KERNEL");
}

TEST_F(LaunchTest, ReportsResourcesAndOccupancy) {
  const auto library = Load();
  const auto kernel = library->GetKernel("gemm");
  const auto resources = GetKernelResources(driver(), *kernel, context_.device());
  ASSERT_TRUE(resources.ok());
  EXPECT_EQ(resources->registers, 64);
  EXPECT_EQ(resources->max_threads, 1024);
  EXPECT_TRUE(SetMaxDynamicShared(driver(), *kernel, context_.device(), 200000).ok());
  EXPECT_EQ(*MaxBlocksPerMultiprocessor(driver(), *kernel, 384, 0), 2);
}

TEST_F(LaunchTest, StreamsAndEventsAreDestroyed) {
  {
    const auto stream = Stream::Create(driver());
    const auto from = Event::Create(driver(), EventKind::kTiming);
    const auto to = Event::Create(driver(), EventKind::kTiming);
    ASSERT_TRUE(from->Record(stream->get()).ok());
    ASSERT_TRUE(to->MakeWait(stream->get()).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    EXPECT_TRUE(*stream->IsIdle());
    fake_.Fail("cuStreamQuery", CUDA_ERROR_NOT_READY);
    EXPECT_FALSE(*stream->IsIdle());
    EXPECT_EQ(*Elapsed(*from, *to), absl::Microseconds(1500));
    fake_.Fail("cuEventCreate", CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_FALSE(Event::Create(driver(), EventKind::kOrderOnly).ok());
  }
  EXPECT_EQ(fake_.Live(), "cuDevicePrimaryCtxRetain 1");
}

}  // namespace
}  // namespace gemmd::cuda

// Uploads through page-locked buffers, on the fake driver.
#include "core/exec/upload_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "tests/support/fake_driver.h"

namespace gemmd {
namespace {

constexpr size_t kPiece = 64;

std::vector<std::byte> Bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

class UploadPoolTest : public ::testing::Test {
 protected:
  UploadPoolTest() : context_(*cuda::PrimaryContext::Retain(Table(), 0)), scope_(context_) {
    calls_.clear();
    pool_.emplace(context_, kPiece);
  }

  // Uploads to memory of its own; empty when that fails.
  std::vector<std::byte> RoundTrip(absl::Span<const std::byte> from) {
    auto memory = cuda::DeviceBuffer::Create(fake_.table(), from.size());
    if (!memory.ok()) return {};
    auto upload = pool_->Begin();
    if (!upload.ok() || !upload->Copy(memory->address(), from).ok() || !upload->Finish().ok())
      return {};
    std::vector<std::byte> got(from.size());
    std::memcpy(got.data(), reinterpret_cast<const void*>(memory->address()), got.size());
    return got;
  }

  // The fake driver's table; calls that move a piece are written down.
  const cuda::DriverTable& Table() {
    table_ = fake_.table();
    real_ = &fake_.table();
    table_.cuEventSynchronize = [](CUevent event) {
      calls_ += "wait ";
      return real_->cuEventSynchronize(event);
    };
    table_.cuMemcpyHtoDAsync = [](CUdeviceptr to, const void* from, size_t size, CUstream stream) {
      calls_ += "copy ";
      return real_->cuMemcpyHtoDAsync(to, from, size, stream);
    };
    table_.cuEventRecord = [](CUevent event, CUstream stream) {
      calls_ += "record ";
      return real_->cuEventRecord(event, stream);
    };
    table_.cuStreamSynchronize = [](CUstream stream) {
      calls_ += stream == nullptr ? "legacy " : "finish ";
      return real_->cuStreamSynchronize(stream);
    };
    return table_;
  }

  static inline const cuda::DriverTable* real_ = nullptr;
  static inline std::string calls_;
  cuda::FakeDriver fake_;
  cuda::DriverTable table_;
  cuda::PrimaryContext context_;
  cuda::ScopedContext scope_;
  std::optional<UploadPool> pool_;
};

TEST_F(UploadPoolTest, CopiesEveryByteOfEverySize) {
  for (const size_t size : {1u, 63u, 64u, 65u, 128u, 1000u}) {
    const std::vector<std::byte> bytes = Bytes(size);
    EXPECT_EQ(RoundTrip(bytes), bytes) << size;
  }
  EXPECT_EQ(fake_.Calls("cuMemcpyHtoD"), 0) << "pageable memory is not what the GPU reads";
}

TEST_F(UploadPoolTest, BuffersAreWrittenOnlyWhenTheirLastCopyIsComplete) {
  const std::vector<std::byte> bytes = Bytes(3 * kPiece);
  ASSERT_EQ(RoundTrip(bytes), bytes);
  EXPECT_EQ(calls_,
            "wait copy record wait copy record wait copy record "
            "finish "    // by the caller
            "finish ");  // before the buffers serve somebody else
}

TEST_F(UploadPoolTest, BuffersServeTheNextUpload) {
  RoundTrip(Bytes(100));
  RoundTrip(Bytes(1000));
  EXPECT_EQ(fake_.Calls("cuMemHostAlloc"), 2);
  EXPECT_EQ(fake_.Calls("cuStreamCreate"), 1);
}

TEST_F(UploadPoolTest, ScratchServesTheNextUploadAndGrows) {
  for (const auto& [bytes, allocations] :
       std::vector<std::pair<uint64_t, int>>{{100, 1}, {60, 1}, {200, 2}}) {
    auto upload = pool_->Begin();
    const auto scratch = upload->Scratch(bytes);
    ASSERT_TRUE(scratch.ok());
    EXPECT_EQ(fake_.Calls("cuMemAlloc"), allocations);
    EXPECT_TRUE(upload->Copy(*scratch, Bytes(bytes)).ok());
  }
}

TEST_F(UploadPoolTest, MoreUploadsThanThePoolHasWait) {
  std::vector<Upload> uploads;
  for (int i = 0; i < UploadPool::kMostUploads; ++i) uploads.push_back(*pool_->Begin());
  std::atomic<bool> may_begin{false};
  std::thread waiting([&] {
    const cuda::ScopedContext scope(context_);
    const auto upload = pool_->Begin();
    EXPECT_TRUE(upload.ok());
    EXPECT_TRUE(may_begin);
  });
  absl::SleepFor(absl::Milliseconds(20));
  may_begin = true;
  uploads.pop_back();
  waiting.join();
  EXPECT_EQ(fake_.Calls("cuMemHostAlloc"), 2 * UploadPool::kMostUploads);
}

TEST_F(UploadPoolTest, EveryFailureIsToldAndThePoolGoesOn) {
  const std::vector<std::byte> bytes = Bytes(200);
  int failures = 0;
  for (bool succeeded = false; !succeeded; ++failures) {
    ASSERT_LT(failures, 100);
    pool_.emplace(context_, kPiece);  // without buffers
    auto memory = cuda::DeviceBuffer::Create(fake_.table(), bytes.size());
    fake_.FailNthAcquisition(failures + 1, CUDA_ERROR_OUT_OF_MEMORY);
    absl::Status status;
    {
      auto upload = pool_->Begin();
      status = upload.status();
      if (status.ok()) status = upload->Scratch(bytes.size()).status();
      if (status.ok()) status = upload->Copy(memory->address(), bytes);
      if (status.ok()) status = upload->Finish();
    }
    fake_.ClearFailures();
    succeeded = status.ok();
    EXPECT_EQ(ReasonOf(status), succeeded ? "" : "GPU_OOM");
    EXPECT_EQ(RoundTrip(bytes), bytes);
  }
  EXPECT_GT(failures, 10);
  pool_.reset();
  EXPECT_EQ(fake_.Live(), "cuDevicePrimaryCtxRetain 1");
}

}  // namespace
}  // namespace gemmd

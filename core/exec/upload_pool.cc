#include "core/exec/upload_pool.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/status.h"

namespace gemmd {

absl::StatusOr<Upload::Buffer> Upload::MakeBuffer(const cuda::DriverTable& driver, size_t bytes) {
  GEMMD_ASSIGN_OR_RETURN(cuda::PinnedBuffer memory, cuda::PinnedBuffer::Create(driver, bytes));
  GEMMD_ASSIGN_OR_RETURN(cuda::Event is_free,
                         cuda::Event::Create(driver, cuda::EventKind::kOrderOnly));
  return Buffer{std::move(memory), std::move(is_free)};
}

absl::StatusOr<std::unique_ptr<Upload::Lane>> Upload::MakeLane(const cuda::DriverTable& driver,
                                                               size_t piece_bytes) {
  GEMMD_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::Create(driver));
  GEMMD_ASSIGN_OR_RETURN(Buffer first, MakeBuffer(driver, piece_bytes));
  GEMMD_ASSIGN_OR_RETURN(Buffer second, MakeBuffer(driver, piece_bytes));
  return std::unique_ptr<Lane>(
      new Lane{std::move(stream), {std::move(first), std::move(second)}, 0, std::nullopt});
}

absl::Status Upload::Copy(uintptr_t to, absl::Span<const std::byte> from) {
  while (!from.empty()) {
    Buffer& buffer = lane_->buffers[lane_->next];
    lane_->next = (lane_->next + 1) % lane_->buffers.size();
    GEMMD_RETURN_IF_ERROR(buffer.is_free.Synchronize());
    const absl::Span<std::byte> piece = buffer.memory.bytes();
    const size_t bytes = std::min(from.size(), piece.size());
    std::memcpy(piece.data(), from.data(), bytes);
    GEMMD_CUDA(driver_, cuMemcpyHtoDAsync, to, piece.data(), bytes, stream());
    GEMMD_RETURN_IF_ERROR(buffer.is_free.Record(stream()));
    to += bytes;
    from.remove_prefix(bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<uintptr_t> Upload::Scratch(uint64_t bytes) {
  std::optional<cuda::DeviceBuffer>& scratch = lane_->scratch;
  if (!scratch.has_value() || scratch->size() < bytes) {
    scratch.reset();
    GEMMD_ASSIGN_OR_RETURN(scratch, cuda::DeviceBuffer::Create(driver_, bytes));
  }
  return scratch->address();
}

Upload::~Upload() {
  if (lane_ == nullptr) return;
  // Copies that still run read its buffers.
  if (!lane_->stream.Synchronize().ok()) lane_.reset();
  pool_->GiveBack(std::move(lane_));
}

absl::StatusOr<Upload> UploadPool::Begin() {
  std::unique_ptr<Upload::Lane> lane;
  {
    MutexLock lock(mutex_);
    changed_.Wait(mutex_,
                  [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return under_way_ < kMostUploads; });
    ++under_way_;
    if (!idle_.empty()) {
      lane = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (lane == nullptr) {
    absl::StatusOr<std::unique_ptr<Upload::Lane>> made =
        Upload::MakeLane(context_.driver(), piece_bytes_);
    if (!made.ok()) {
      GiveBack(nullptr);
      return made.status();
    }
    lane = *std::move(made);
  }
  return Upload(this, context_.driver(), std::move(lane));
}

void UploadPool::GiveBack(std::unique_ptr<Upload::Lane> lane) {
  MutexLock lock(mutex_);
  --under_way_;
  if (lane != nullptr) idle_.push_back(std::move(lane));
  changed_.NotifyOne();
}

UploadPool::~UploadPool() {
  const cuda::ScopedContext scope(context_);
  MutexLock lock(mutex_);
  idle_.clear();
}

}  // namespace gemmd

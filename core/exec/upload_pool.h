// What    Uploads to one GPU at the rate of its bus: pageable memory goes piece by piece through page-locked
//         buffers, so that the next piece is copied by the host while the last one is on its way. Each upload
//         has a stream of its own: requests that run meanwhile do not wait for it.
//           auto upload = pool.Begin();               // waits while kMostUploads are under way
//           upload->Copy(address, bytes);             // `bytes` may change when it returns
//           LaunchPack(..., upload->stream());        // behind the copies
//           upload->Finish();                         // all of it is complete
// Memory  For each of at most kMostUploads 2 * kPieceBytes, page-locked, and the most that Scratch was asked
//         for, on the GPU; kept for the next uploads, since giving memory back would wait for requests.
// Errors  ResourceExhausted GPU_OOM: no page-locked memory is left; else as ToStatus.
// Threads UploadPool is thread-safe; an Upload belongs to one thread. The GPU's context is current in every
//         call but the pool's destructor.
#ifndef GEMMD_CORE_EXEC_UPLOAD_POOL_H_
#define GEMMD_CORE_EXEC_UPLOAD_POOL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/mutex.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"

namespace gemmd {

class UploadPool;

class Upload {
 public:
  Upload(Upload&& other) noexcept = default;
  Upload& operator=(Upload&& other) = delete;
  // What was begun is complete, or the context is lost.
  ~Upload();

  CUstream stream() const { return lane_->stream.get(); }
  // Enqueues the copy; what is enqueued later finds it done.
  absl::Status Copy(uintptr_t to, absl::Span<const std::byte> from);
  // Memory of the GPU until the upload ends: at least `bytes`, of any content. Once an upload.
  absl::StatusOr<uintptr_t> Scratch(uint64_t bytes);
  absl::Status Finish() { return lane_->stream.Synchronize(); }

 private:
  friend class UploadPool;

  struct Buffer {
    cuda::PinnedBuffer memory;
    cuda::Event is_free;  // recorded behind the copy from it
  };
  struct Lane {
    cuda::Stream stream;
    std::array<Buffer, 2> buffers;
    size_t next = 0;
    std::optional<cuda::DeviceBuffer> scratch;
  };
  static absl::StatusOr<Buffer> MakeBuffer(const cuda::DriverTable& driver, size_t bytes);
  static absl::StatusOr<std::unique_ptr<Lane>> MakeLane(const cuda::DriverTable& driver,
                                                        size_t piece_bytes);

  Upload(UploadPool* pool, const cuda::DriverTable& driver, std::unique_ptr<Lane> lane)
      : pool_(pool), driver_(driver), lane_(std::move(lane)) {}

  UploadPool* const pool_;
  const cuda::DriverTable& driver_;
  std::unique_ptr<Lane> lane_;  // null: moved from
};

class UploadPool {
 public:
  static constexpr size_t kPieceBytes = size_t{8} << 20;
  static constexpr int kMostUploads = 4;

  // `context` outlives the pool, and the pool its uploads.
  explicit UploadPool(const cuda::PrimaryContext& context, size_t piece_bytes = kPieceBytes)
      : context_(context), piece_bytes_(piece_bytes) {}
  ~UploadPool();
  UploadPool(const UploadPool&) = delete;
  UploadPool& operator=(const UploadPool&) = delete;

  absl::StatusOr<Upload> Begin();

 private:
  friend class Upload;

  void GiveBack(std::unique_ptr<Upload::Lane> lane);

  const cuda::PrimaryContext& context_;
  const size_t piece_bytes_;
  Mutex mutex_;
  CondVar changed_;
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Upload::Lane>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_UPLOAD_POOL_H_

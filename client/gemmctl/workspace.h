// What    One region of the kind a device can use, and where tensors lie in it.
// Kinds   ipc     cuMemAlloc memory of this process, by CUDA IPC handle (GPU devices)
//         memfd   shared host memory (CPU device; needs the session socket)
//         daemon  memory of the daemon, written and read in messages (any device, no CUDA here)
//         auto    memfd on the CPU; on a GPU ipc, or daemon when this process cannot use CUDA
// Threads One thread at a time.
#ifndef GEMMD_CLIENT_GEMMCTL_WORKSPACE_H_
#define GEMMD_CLIENT_GEMMCTL_WORKSPACE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cuda_memory.h"
#include "client/session.h"

namespace gemmd::gemmctl {

class Workspace {
 public:
  Workspace(Workspace&&) = default;
  Workspace& operator=(Workspace&&) =
      delete;  // would free the memory before its region is unregistered
  // BAD_ARGUMENT unless `kind` is one that Create takes.
  static absl::Status CheckKind(const std::string& kind);
  static absl::StatusOr<Workspace> Create(client::Session& session, const std::string& device,
                                          const std::string& kind, uint64_t bytes);

  const std::string& kind() const { return kind_; }

  // The next [rows, columns] of `dtype`, aligned to 256 bytes. ResourceExhausted when the region is
  // full.
  absl::StatusOr<client::Tensor> Place(v1::DataType dtype, int64_t rows, int64_t columns);
  // Place and write `values`.
  absl::StatusOr<client::Tensor> Put(v1::DataType dtype, int64_t rows, int64_t columns,
                                     absl::Span<const double> values);
  absl::StatusOr<std::vector<double>> Get(const client::Tensor& tensor) const;
  void Clear() { used_ = 0; }

 private:
  Workspace(std::string kind, std::optional<client::CudaBuffer> memory, client::Region region)
      : kind_(std::move(kind)),
        memory_(std::move(memory)),
        region_(std::make_unique<client::Region>(std::move(region))) {}

  std::string kind_;
  std::optional<client::CudaBuffer> memory_;
  std::unique_ptr<client::Region>
      region_;  // unregistered before memory_ is freed; tensors point at it
  uint64_t used_ = 0;
};

// Bytes that Place takes for [rows, columns] of `dtype`.
uint64_t PlacedBytes(v1::DataType dtype, int64_t rows, int64_t columns);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_WORKSPACE_H_

// What    A device that holds layers and runs requests: the CPU, or one GPU.
// Threads Every method is thread-safe. Run* block until the result is complete; each session calls
//         them from its own executor thread, in order.
// Errors  Codes and reasons of proto/README.md. DataLoss CONTEXT_LOST: the device is gone for good.
#ifndef GEMMD_CORE_EXEC_DEVICE_H_
#define GEMMD_CORE_EXEC_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/quant/standard_tensor.h"
#include "kernels/contract/number_format.h"

namespace gemmd {

enum class DeviceKind : uint8_t { kCpu, kCuda };

struct DeviceDescription {
  std::string id;  // "cpu" or "cuda:<GPU UUID>"
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;
  std::string architecture;  // "sm_90a", "x86_64"
  int multiprocessors = 0;
  uint64_t memory_bytes = 0;
};

// Memory the device can address while the object lives. Destruction releases it and may block: the owner
// lets a reaper thread do it.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual uintptr_t address() const = 0;
  virtual uint64_t size() const = 0;
  virtual const char* kind() const = 0;  // cuda_ipc, memfd, vmm, daemon
};

// A row-major matrix in device-addressable memory; already checked to lie inside its region.
struct MatrixView {
  uintptr_t address = 0;
  NumberFormat type;
  bool is_signed_int = false;  // int8, int32 or int64 elements in two's complement
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;  // elements
};

// Kernels made for one layer. They may be compiled while a generic kernel serves it.
struct SpecialisedKernels {
  int total = 0;
  int ready = 0;
  int failed = 0;
};

// One kernel that batch-invariant requests of a layer may ask for: requests with the same id get the same
// bits for the same row, whatever M and whatever kernels arrive.
struct KernelNumerics {
  uint64_t id = 0;
  std::string kernel;
  NumberFormat x;  // it multiplies x of this type, or quantized to it; absent: any
};

// Weights of one layer on one device.
class DeviceLayer {
 public:
  virtual ~DeviceLayer() = default;
  virtual const QuantSpec& spec() const = 0;
  virtual const LayerShape& shape() const = 0;
  virtual bool gate_up_interleaved() const = 0;
  virtual uint64_t bytes() const = 0;
  virtual SpecialisedKernels specialised() const { return {}; }
  // First what such requests get that name none. Empty: the device has one way to compute them.
  virtual std::vector<KernelNumerics> numerics() const { return {}; }
};

// Asked now and then while a call runs, by one thread at a time: an error ends the call with it and
// leaves y undefined. Null: never. The CPU device asks between blocks; a GPU cannot be stopped.
using StopFunction = std::function<absl::Status()>;

struct GemmCall {
  std::shared_ptr<DeviceLayer> layer;
  MatrixView x;                       // [M, K]
  std::optional<MatrixView> x_scale;  // float32 [M, 1] or [M, groups]
  MatrixView y;                       // [M, N]
  bool batch_invariant = false;
  uint64_t numerics = 0;  // KernelNumerics::id wanted, with batch_invariant; 0 = the layer's first
  int64_t hadamard_block = 0;  // columns; 0 = x is not transformed
  bool fp16_accumulation = false;  // permitted, where x is float16 and a kernel does it
  StopFunction stop;
};

enum class ActivationFunction : uint8_t { kSiluAndMul, kSwigluClamped, kReluSquared };

struct RouterLogits {
  MatrixView logits;  // [M, total_experts]
  int top_k = 1;
  bool renormalize = false;
};

struct MoeCall {
  std::shared_ptr<DeviceLayer> gate_up;
  std::shared_ptr<DeviceLayer> down;
  MatrixView x;  // [M, K]
  MatrixView y;  // [M, K_out]
  // Either both of these or `router_logits`.
  std::optional<MatrixView> topk_ids;      // int32 [M, top_k]
  std::optional<MatrixView> topk_weights;  // float32 [M, top_k]
  std::optional<RouterLogits> router_logits;
  ActivationFunction activation = ActivationFunction::kSiluAndMul;
  float alpha = 1.702f;
  float limit = 0;  // 0 = no clamp with kSiluAndMul
  bool router_weight_on_input = false;
  int64_t first_expert = 0;
  int64_t total_experts = 0;
  StopFunction stop;
};

struct CallReport {
  std::string kernel;
  NumberFormat activation_used;
  std::string reason;
  uint64_t numerics = 0;  // of the kernel that ran; 0: the device has no such ids
  // Batch-invariant requests like this one may name this instead; 0: nothing else is ready.
  uint64_t armed_numerics = 0;
  int64_t hadamard_block = 0;  // by which x was transformed; 0: it was not
};

struct MoeReport {
  CallReport gate_up;
  CallReport down;
};

struct KernelExplanation {
  int64_t m = 0;
  CallReport choice;
  std::vector<std::pair<std::string, std::string>> config;
};

// Kernels of a device since the start.
struct DeviceKernelCounts {
  uint64_t specialised = 0;
  uint64_t specialised_failed = 0;
  uint64_t self_tests = 0;   // before a kernel serves
  uint64_t quarantined = 0;  // by a failed self-test
};

struct TuneCall;  // core/exec/tune_call.h

// One ordered queue of work; a session has one per device.
class Stream {
 public:
  virtual ~Stream() = default;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceDescription& description() const = 0;
  // OK, or why the device takes no requests.
  virtual absl::Status health() const = 0;
  virtual uint64_t weights_bytes() const = 0;
  virtual DeviceKernelCounts kernel_counts() const { return {}; }

  // Packs a valid tensor, or keeps it as it is. ResourceExhausted GPU_OOM when it does not fit.
  virtual absl::StatusOr<std::shared_ptr<DeviceLayer>> LoadLayer(StandardTensor tensor) = 0;

  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream() = 0;

  // Client memory. Unimplemented NOT_IPC_CAPABLE where the device has no such kind.
  virtual absl::StatusOr<std::unique_ptr<Memory>> OpenCudaIpc(absl::Span<const std::byte> handle,
                                                              uint64_t allocation_size) = 0;
  // `fd` stays the caller's. On the CPU a memfd sealed against shrinking, on a GPU an exported allocation.
  virtual absl::StatusOr<std::unique_ptr<Memory>> OpenFd(int fd, uint64_t size) = 0;
  virtual absl::StatusOr<std::unique_ptr<Memory>> Allocate(uint64_t size) = 0;

  // Host bytes to and from device memory inside a checked range.
  virtual absl::Status CopyIn(uintptr_t address, absl::Span<const std::byte> from) = 0;
  virtual absl::Status CopyOut(uintptr_t address, absl::Span<std::byte> to) = 0;

  virtual absl::StatusOr<CallReport> RunGemm(Stream& stream, const GemmCall& call) = 0;
  virtual absl::StatusOr<MoeReport> RunMoe(Stream& stream, const MoeCall& call) = 0;

  virtual absl::StatusOr<KernelExplanation> Explain(const DeviceLayer& layer, int64_t m) = 0;

  // Measures which kernels serve layers best. FailedPrecondition NOT_TUNABLE where there is no choice.
  virtual absl::Status Tune(const TuneCall& call);
};

// Checks of a call that need no device: shapes, types, aliasing, the layer's own limits. InvalidArgument
// SHAPE_MISMATCH or OUT_OF_RANGE, or Unimplemented UNSUPPORTED_DTYPE; both devices call them first.
absl::Status ValidateCall(const GemmCall& call);
absl::Status ValidateCall(const MoeCall& call);

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_DEVICE_H_

// What    What clients ask of the node and get back, as plain structs; and the node's events.
// Units   Sizes and offsets in bytes, extents and strides in elements unless a name says otherwise.
// Who     The server converts protobuf messages to and from these; core/session, core/layer use
//         them.
#ifndef GEMMD_CORE_TYPES_H_
#define GEMMD_CORE_TYPES_H_

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/checkpoint/reading_options.h"
#include "core/exec/device.h"
#include "core/quant/quantize_layer.h"
#include "core/quant/rank_slice.h"
#include "kernels/contract/layer_traits.h"

namespace gemmd {

struct NodeOptions {
  std::vector<std::filesystem::path> checkpoint_roots;
  int max_sessions = 1024;
  int max_regions_per_session = 4096;
  uint64_t max_region_bytes_per_session = uint64_t{1} << 40;
  int max_layers_per_session = 65536;
  int max_queued_per_session = 256;                 // requests waiting or running
  int max_tickets_per_session = 16;                 // descriptors passed and not registered yet
  int max_tickets = 1024;                           // the same over all sessions
  int loader_threads = 0;                           // layers loaded at a time; 0 = one per core, to 16
  absl::Duration stream_grace = absl::Seconds(10);  // OpenSession without KeepSession
  ReadingOptions reading;                           // of requests that do not choose
};

// ---- what a client sends, in core's own structs ----

struct RegionRef {
  uint64_t id = 0;
  uint64_t generation = 0;
};

struct TensorRef {
  RegionRef region;
  uint64_t byte_offset = 0;
  NumberFormat type;
  bool is_signed_int = false;
  std::vector<int64_t> shape;  // [rows, columns] or [elements]
  int64_t row_stride = 0;      // elements; 0 = columns
};

struct RawRef {
  RegionRef region;
  uint64_t byte_offset = 0;
  uint64_t byte_size = 0;
};

struct CudaIpcSource {
  std::string handle;  // must be 64 bytes
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t allocation_size = 0;
  uint64_t buffer_id = 0;
};
struct PassedSource {
  uint64_t ticket = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
};
struct DaemonSource {
  uint64_t size = 0;
};
struct RegionRequest {
  std::string device;
  std::variant<CudaIpcSource, PassedSource, DaemonSource> source;
  std::string label;
};

struct CheckpointSource {
  std::string path;
  std::string module;
  SliceRequest slice;
  std::optional<QuantizeTarget> quantize = std::nullopt;  // of modules that are not quantized
  std::optional<GptqZeroPoints> gptq_zero_points = std::nullopt;  // nullopt: as the node is set
};
struct TensorSource {
  QuantSpec spec;
  LayerShape shape;
  int64_t scale_columns = 0;  // 0 = spec.ScaleColumns(k)
  ActivationEncoding encoding;
  std::optional<RawRef> codes, scales, zero_points, secondary_scales, group_index, bias,
      activation_scale, input_scale, activation_zero_point, activation_global_scale;
  std::optional<QuantizeTarget> quantize;  // of weights that are not quantized
};
struct LayerRequest {
  std::string device;  // empty = best
  std::string name;
  std::variant<CheckpointSource, TensorSource> source;
};

struct GemmRequest {
  uint64_t layer_id = 0;
  TensorRef x;
  std::optional<TensorRef> x_scale;
  TensorRef y;
  bool batch_invariant = false;
  uint64_t numerics = 0;  // with batch_invariant: KernelNumerics::id wanted; 0 = the layer's first
  int64_t hadamard_block = 0;  // columns; 0 = x is not transformed
  bool fp16_accumulation = false;  // permitted
};

struct MoeRequest {
  uint64_t gate_up_layer_id = 0;
  uint64_t down_layer_id = 0;
  TensorRef x;
  TensorRef y;
  std::optional<TensorRef> topk_ids, topk_weights;  // or router_logits
  std::optional<TensorRef> router_logits;
  int top_k = 0;  // with router_logits
  bool renormalize = false;
  ActivationFunction activation = ActivationFunction::kSiluAndMul;
  float alpha = 0;  // 0 = 1.702
  float limit = 0;
  bool router_weight_on_input = false;
  int64_t first_expert = 0;
  int64_t total_experts = 0;  // 0 = first_expert + E
};

// ---- what a client gets back ----

struct Timing {
  absl::Duration queued;
  absl::Duration executed;
};
struct GemmResult {
  std::string device;
  CallReport report;
  Timing timing;
};
struct MoeResult {
  std::string device;
  MoeReport report;
  Timing timing;
};

enum class LayerState : uint8_t { kLoading, kQuantizing, kPacking, kReady, kReleased, kFailed };

struct LayerInfo {
  uint64_t layer_id = 0;
  std::string name;
  std::string device;
  std::string digest;
  QuantSpec spec;
  LayerShape shape;
  uint64_t bytes = 0;
  int references = 0;
  LayerState state = LayerState::kLoading;
  std::string source_format;
  bool gate_up_interleaved = false;
  bool has_input_scale = false;
  LayerTraits traits;  // as a GPU sees it: an input scale that folds into the scales (input_scale.h) is none
  int64_t not_finite_weights = 0;  // NaN or infinite
  std::optional<QuantizedHere> quantized;  // by the node
  ActivationEncoding encoding;
  SpecialisedKernels specialised;
  std::vector<KernelNumerics> numerics;  // that batch-invariant requests may name now
  std::vector<std::string> notes;        // sentences about tensors of its source that other programs read otherwise
};

struct LayerProgress {
  LayerState state = LayerState::kLoading;  // kLoading, kQuantizing or kPacking
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
};

struct RegionInfo {
  RegionRef ref;
  std::string device;
  uint64_t size = 0;
  std::string label;
  std::string kind;
};

struct SessionInfo {
  uint64_t session_id = 0;
  std::string name;
  pid_t pid = 0;
  uid_t uid = 0;
  std::string transport;  // "socket" or "stream"
  int layers = 0;
  int regions = 0;
  uint64_t region_bytes = 0;
  uint64_t requests = 0;
  int queued = 0;
  absl::Time opened_at;
};

struct DeviceStatus {
  DeviceDescription description;
  absl::Status health;
  uint64_t weights_bytes = 0;
  DeviceKernelCounts kernels;
};

struct NodeStatus {
  std::vector<DeviceStatus> devices;  // best first
  int sessions = 0;
  int layers = 0;
  int layer_references = 0;
  int regions = 0;
  uint64_t region_bytes = 0;
  uint64_t requests_total = 0;
  bool draining = false;
  int closing = 0;  // memory objects handed to the reapers and not released yet
  absl::Duration
      oldest_close;  // how long the oldest of them has been waiting; a hung close shows here
};

// Events for metrics and logs. Called from any thread without locks held; must not block.
class NodeObserver {
 public:
  virtual ~NodeObserver() = default;
  virtual void OnRequest(const std::string& /*device*/, bool /*moe*/, absl::StatusCode /*code*/,
                         const Timing& /*timing*/) {}
  virtual void OnRejected(const std::string& /*reason*/) {}
  virtual void OnSessionEnd(const std::string& /*why*/) {}  // close, eof, exit, expired
  virtual void OnRegionOpen(const std::string& /*kind*/, const absl::Status& /*status*/) {}
  virtual void OnRegionClose(absl::Duration /*took*/) {}
  virtual void OnLayerLoad(const std::string& /*format*/, const absl::Status& /*status*/,
                           absl::Duration /*took*/) {}
};

struct SessionIdentity {
  std::string name;
  pid_t pid = 0;
  uid_t uid = 0;
  std::string transport;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_TYPES_H_

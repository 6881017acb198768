// What    Layer: one reference to quantized weights the daemon holds, released when the object
//         dies.
// Restart A layer of a checkpoint is read again by a restarted daemon; a layer of tensors needs its
//         source regions to be alive still, else its use answers FailedPrecondition SOURCE_GONE. A
//         source that changed meanwhile answers the same: the numbers never change silently.
// Threads Const methods: any thread. Release and destruction: after the answers of requests that
//         use it.
#ifndef GEMMD_CLIENT_LAYER_H_
#define GEMMD_CLIENT_LAYER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/layer_record.h"
#include "client/region.h"
#include "client/session_state.h"
#include "gemmd/v1/layer.pb.h"

namespace gemmd::client {

// Contiguous bytes of a region.
struct RegionBytes {
  const Region* region = nullptr;
  uint64_t byte_offset = 0;
  uint64_t byte_size = 0;
};

// The standard representation of a layer (kernels/contract/quant_spec.h says the shapes).
struct LayerTensors {
  v1::QuantSpec spec;
  int64_t experts = 1;
  int64_t n = 0;
  int64_t k = 0;
  RegionBytes codes;
  std::optional<RegionBytes> scales;
  std::optional<RegionBytes> zero_points;
  std::optional<RegionBytes> secondary_scales;
  std::optional<RegionBytes> group_index;
  std::optional<RegionBytes> bias;
  std::optional<RegionBytes> activation_scale;
  std::optional<RegionBytes> input_scale;
  v1::ActivationEncoding encoding;  // without a format: spec says it all
  std::optional<RegionBytes> activation_zero_point;
  std::optional<RegionBytes> activation_global_scale;
  std::optional<v1::QuantizeTo> quantize;  // spec.weight is float16, bfloat16 or float32: what the daemon makes of it
};

class Layer {
 public:
  Layer() = default;  // empty
  Layer(Layer&& other) noexcept = default;
  Layer& operator=(Layer&& other) noexcept;
  ~Layer() { Release(); }

  bool empty() const { return record_ == nullptr; }
  // As of the last registration; `references` counts sessions at that time.
  v1::LayerInfo info() const { return record_->info(); }
  // The same of what the daemon said then about tensors that other programs read otherwise: sentences for people.
  std::vector<std::string> notes() const { return record_->notes(); }

  void Release();

  // For this library.
  const std::shared_ptr<LayerRecord>& record() const { return record_; }

 private:
  friend class Session;
  Layer(std::shared_ptr<SessionState> session, std::shared_ptr<LayerRecord> record)
      : session_(std::move(session)), record_(std::move(record)) {}

  std::shared_ptr<SessionState> session_;
  std::shared_ptr<LayerRecord> record_;
};

// For this library: the label of a layer that was given none: the module and its part. One that is longer
// than the daemon takes is cut, and ends with a digest of the whole.
std::string DefaultLayerName(const std::string& module, const std::string& part);

// For this library: the request of `tensors` and the regions it reads.
v1::RegisterLayerRequest TensorsRequest(const LayerTensors& tensors, const std::string& device,
                                        const std::string& name,
                                        std::vector<LayerRecord::SourceRegion>* regions);

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_LAYER_H_

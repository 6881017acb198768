// What    Quantizes the modules of a checkpoint as they are read, one after the other, each as it is stored: before
//         parts are joined and before anything is cut. So a slice is the slice of the quantized whole, on every
//         rank the same, and a joined layer is that of a checkpoint whose modules were quantized one by one.
// Errors  As QuantizeLayer, naming what is quantized.
// Threads One thread.
#ifndef GEMMD_CORE_CHECKPOINT_LAYER_QUANTIZER_H_
#define GEMMD_CORE_CHECKPOINT_LAYER_QUANTIZER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "core/quant/quantize_layer.h"

namespace gemmd {

// What ReadLayer shall make of weights that are not quantized.
struct QuantizeOnRead {
  QuantizeTarget target;
  // As QuantizeWork has it.
  std::function<void(int64_t count, const std::function<void(int64_t)>& body)> parallel;
  // Bytes of unquantized weights done and in all (with what else is read of the layer); returns false to cancel.
  std::function<bool(uint64_t done, uint64_t total)> progress;
};

class LayerQuantizer {
 public:
  // `total_bytes` of all modules to come.
  LayerQuantizer(const QuantizeOnRead& wanted, uint64_t total_bytes)
      : wanted_(wanted), total_bytes_(total_bytes), result_{wanted.target.rule, {}} {}

  // Replaces `what`, which errors name ("model.safetensors: module a: tensor a.weight"); it has `bytes` in the files.
  absl::Status Apply(const std::string& what, uint64_t bytes, StandardTensor& tensor);

  const QuantizedHere& result() const { return result_; }

 private:
  const QuantizeOnRead& wanted_;
  const uint64_t total_bytes_;
  uint64_t done_bytes_ = 0;
  QuantizedHere result_;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_LAYER_QUANTIZER_H_

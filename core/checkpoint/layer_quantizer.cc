#include "core/checkpoint/layer_quantizer.h"

#include <utility>

#include "kernels/base/status.h"

namespace gemmd {

absl::Status LayerQuantizer::Apply(const std::string& what, uint64_t bytes, StandardTensor& tensor) {
  QuantizeWork work;
  work.parallel = wanted_.parallel;
  if (wanted_.progress != nullptr) {
    work.progress = [this, bytes](int64_t passes, int64_t all) {
      const auto share = static_cast<double>(passes) / static_cast<double>(all);
      const auto done = static_cast<uint64_t>(share * static_cast<double>(bytes));
      return wanted_.progress(done_bytes_ + done, total_bytes_);
    };
  }
  auto quantized = QuantizeLayer(std::move(tensor), wanted_.target, work, &result_.error);
  done_bytes_ += bytes;
  if (!quantized.ok()) return Annotate(quantized.status(), what);
  tensor = *std::move(quantized);
  return absl::OkStatus();
}

}  // namespace gemmd

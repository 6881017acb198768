#include "client/gemmctl/expected_product.h"

#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "client/gemmctl/reference.h"
#include "core/checkpoint/checkpoint.h"
#include "core/quant/hadamard.h"
#include "core/quant/input_scale.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

void MultiplyX(const StandardTensor& tensor, int64_t k, std::vector<double>& x) {
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(k)) {
    MultiplyInputScale(tensor, 0, absl::MakeSpan(x).subspan(row, static_cast<size_t>(k)));
  }
}

void TransformX(int64_t block, int64_t k, std::vector<double>& x) {
  for (size_t row = 0; block > 0 && row < x.size(); row += static_cast<size_t>(k)) {
    TransformByHadamard(block, absl::MakeSpan(x).subspan(row, static_cast<size_t>(k)));
  }
}

}  // namespace

absl::StatusOr<std::vector<double>> ExpectedProduct(const LayerSource& source,
                                                    const v1::LayerInfo& layer,
                                                    const v1::ExecutionReport& report,
                                                    std::vector<double> weights,
                                                    std::vector<double> x) {
  DenseWeights dense{.n = layer.n(), .k = layer.k(), .weights = std::move(weights)};
  const int64_t m = dense.k == 0 ? 0 : static_cast<int64_t>(x.size()) / dense.k;
  std::optional<ActivationScaling> static_scale;
  if (layer.spec().has_bias() || layer.has_input_scale() || NeedsStaticScale(layer.spec(), report)) {
    const absl::StatusOr<CheckpointLayer> stored =
        ReadLayer(source.path, source.module, nullptr, {"/"});
    if (!stored.ok()) {
      return Annotate(stored.status(), "--expected needs the layer's bias, input scale or static activation scale");
    }
    const StandardTensor& tensor = stored->tensor;
    if (tensor.has_input_scale) MultiplyX(tensor, dense.k, x);
    if (layer.spec().has_bias()) {
      for (int64_t row = 0; row < dense.n; ++row) dense.bias.push_back(Bias(tensor, 0, row));
    }
    static_scale = ScalingOf(tensor);
  }
  TransformX(report.hadamard_block(), dense.k, x);
  GEMMD_ASSIGN_OR_RETURN(const std::vector<double> operand,
                         OperandOf(layer.spec(), report, dense.k, x, static_scale));
  return ReferenceGemm(dense, m, operand);
}

}  // namespace gemmd::gemmctl

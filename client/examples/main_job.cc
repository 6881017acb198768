#include "client/examples/main_job.h"

#include "absl/strings/str_cat.h"
#include "client/gemmctl/matrix_file.h"
#include "kernels/base/status.h"

namespace gemmd::examples {

absl::StatusOr<gemmctl::DenseWeights> ExpectedWeights(const std::string& data,
                                                      const DenseCase& from) {
  const std::string folder = absl::StrCat(data, "/", from.checkpoint, "/");
  GEMMD_ASSIGN_OR_RETURN(gemmctl::Array weights,
                         gemmctl::ReadSafetensors(folder + "expected.safetensors",
                                                  absl::StrCat(from.module, ".weight_f32")));
  gemmctl::DenseWeights layer;
  const std::vector<int64_t>& shape = weights.shape;
  if (shape.size() != 2 && shape.size() != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": weight_f32 is neither [N, K] nor [E, N, K]"));
  }
  layer.experts = shape.size() == 3 ? shape[0] : 1;
  layer.n = shape[shape.size() - 2];
  layer.k = shape[shape.size() - 1];
  layer.weights = std::move(weights.values);
  auto bias =
      gemmctl::ReadSafetensors(folder + "model.safetensors", absl::StrCat(from.module, "_bias"));
  if (bias.ok()) layer.bias = std::move(bias->values);
  return layer;
}

}  // namespace gemmd::examples

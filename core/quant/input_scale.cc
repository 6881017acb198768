#include "core/quant/input_scale.h"

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

float FactorAt(const StandardTensor& tensor, int64_t expert, int64_t column) {
  float factor;
  std::memcpy(&factor,
              tensor.input_scale.data() + (expert * tensor.shape.k + column) * sizeof(factor),
              sizeof(factor));
  return factor;
}

absl::Status CannotFold(absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("the input scale does not go into the weights' scales exactly: ", why));
}

int64_t GroupOf(const StandardTensor& tensor, int64_t expert, int64_t column) {
  if (!tensor.spec.has_group_index) {
    return tensor.spec.scale_block_k == 0 ? 0 : column / tensor.spec.scale_block_k;
  }
  int32_t group;
  std::memcpy(&group,
              tensor.group_index.data() + (expert * tensor.shape.k + column) * sizeof(group),
              sizeof(group));
  return group;
}

// The one factor of each group of an expert; 1 for a group without columns.
absl::StatusOr<std::vector<float>> GroupFactors(const StandardTensor& tensor, int64_t expert) {
  std::vector<float> factors(static_cast<size_t>(tensor.scale_columns), 1);
  std::vector<bool> seen(factors.size());
  for (int64_t column = 0; column < tensor.shape.k; ++column) {
    const auto group = static_cast<size_t>(GroupOf(tensor, expert, column));
    const float factor = FactorAt(tensor, expert, column);
    if (seen[group] && factors[group] != factor) {
      return CannotFold(absl::StrCat("column ", column, " has ", factor,
                                     ", other columns of its group have ", factors[group]));
    }
    factors[group] = factor;
    seen[group] = true;
  }
  return factors;
}

uint32_t ScaleCode(const StandardTensor& tensor, int64_t index) {
  const size_t bytes = tensor.spec.scale.bits / 8;
  uint32_t code = 0;
  std::memcpy(&code, tensor.scales.data() + index * bytes, bytes);
  return code;
}

// The product of two numbers of at most 24 significant bits is exact in double precision.
absl::StatusOr<uint32_t> ExactProduct(const NumberFormat& format, uint32_t code, float factor) {
  const double scale = DecodeNumber(format, code);
  const uint32_t product = EncodeNumber(format, scale * factor);
  if (DecodeNumber(format, product) == scale * factor) return product;
  return CannotFold(absl::StrCat("the product of a scale ", scale, " and a factor ", factor,
                                 " is no number of the scales' type"));
}

absl::Status FoldExpert(const StandardTensor& tensor, int64_t expert,
                        const std::vector<float>& factors, Buffer& scales) {
  const NumberFormat& format = tensor.spec.scale;
  const int64_t rows = tensor.spec.ScaleRows(tensor.shape.n);
  const size_t bytes = format.bits / 8;
  for (int64_t i = 0; i < rows * tensor.scale_columns; ++i) {
    const int64_t index = expert * rows * tensor.scale_columns + i;
    const float factor = factors[static_cast<size_t>(i % tensor.scale_columns)];
    if (factor == 1) continue;
    GEMMD_ASSIGN_OR_RETURN(const uint32_t product,
                           ExactProduct(format, ScaleCode(tensor, index), factor));
    std::memcpy(scales.data() + index * bytes, &product, bytes);
  }
  return absl::OkStatus();
}

bool DeclaresActivations(const StandardTensor& tensor) {
  return tensor.spec.activation.present() || tensor.encoding.present();
}

absl::StatusOr<Buffer> FoldedScales(const StandardTensor& tensor) {
  if (!tensor.spec.scale.present()) return CannotFold("the weights have no scales");
  if (DeclaresActivations(tensor)) {
    return CannotFold("quantized activations were multiplied before, others were not");
  }
  std::vector<std::vector<float>> factors;  // first: most layers fail here, and need no copy
  for (int64_t expert = 0; expert < tensor.shape.experts; ++expert) {
    GEMMD_ASSIGN_OR_RETURN(std::vector<float> groups, GroupFactors(tensor, expert));
    factors.push_back(std::move(groups));
  }
  Buffer scales = tensor.scales;
  for (int64_t expert = 0; expert < tensor.shape.experts; ++expert) {
    GEMMD_RETURN_IF_ERROR(FoldExpert(tensor, expert, factors[static_cast<size_t>(expert)], scales));
  }
  return scales;
}

}  // namespace

bool MultipliesInput(const StandardTensor& tensor, const NumberFormat& x) {
  return tensor.has_input_scale && !(x.bits <= 8 && DeclaresActivations(tensor));
}

void MultiplyInputScale(const StandardTensor& tensor, int64_t expert, absl::Span<double> x) {
  for (size_t k = 0; k < x.size(); ++k) {
    x[k] *= FactorAt(tensor, expert, static_cast<int64_t>(k));
  }
}

bool HasOneInputScale(const StandardTensor& tensor) {
  const int64_t factors = static_cast<int64_t>(tensor.input_scale.size() / sizeof(float));
  for (int64_t i = 1; i < factors; ++i) {
    if (FactorAt(tensor, 0, i) != FactorAt(tensor, 0, 0)) return false;
  }
  return true;
}

absl::StatusOr<StandardTensor> FoldInputScale(const StandardTensor& tensor) {
  GEMMD_ASSIGN_OR_RETURN(Buffer scales, FoldedScales(tensor));
  StandardTensor out = tensor;
  out.has_input_scale = false;
  out.input_scale.clear();
  out.scales = std::move(scales);
  return out;
}

LayerTraits TraitsOf(const StandardTensor& tensor) {
  return {.has_input_scale = tensor.has_input_scale && !FoldedScales(tensor).ok(),
          .declares_activations = DeclaresActivations(tensor)};
}

}  // namespace gemmd

#include "core/checkpoint/two_level_scales.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/quant/reference.h"

namespace gemmd {
namespace {

constexpr float kLargestE4m3 = 448;

absl::Status NotFinite(const ModuleTensors& tensors, const std::string& key, int64_t index, float scale,
                       const char* operation, const std::string& other_key, float other) {
  return tensors.Bad(key, absl::StrCat("element ", index, ": expected a scale that is finite when it is ", operation, " ",
                                       other, " of ", tensors.module(), other_key, ", got ", scale));
}

float E4m3At(const Buffer& scales, int64_t index) {
  return static_cast<float>(DecodeNumber(kFloat8E4M3, static_cast<uint8_t>(scales[static_cast<size_t>(index)])));
}

}  // namespace

absl::Status FoldDivisors(const ModuleTensors& tensors, const std::string& key, const TensorData& scales,
                          const std::string& divisor_key, const TensorData& divisors, StandardTensor& tensor) {
  const auto count = static_cast<int64_t>(scales.bytes.size());
  const int64_t of_expert = count / tensor.shape.experts;
  tensor.scales.resize(count * sizeof(float));
  for (int64_t i = 0; i < count; ++i) {
    const float scale = E4m3At(scales.bytes, i);
    const float divisor = divisors.at<float>(i / of_expert);
    const float folded = scale / divisor;
    if (!std::isfinite(folded)) return NotFinite(tensors, key, i, scale, "divided by", divisor_key, divisor);
    std::memcpy(tensor.scales.data() + i * sizeof(folded), &folded, sizeof(folded));
  }
  tensor.spec.scale = kFloat32;
  return absl::OkStatus();
}

absl::Status CheckFactors(const ModuleTensors& tensors, const std::string& key, const std::string& factor_key,
                          const StandardTensor& tensor) {
  const auto count = static_cast<int64_t>(tensor.scales.size());
  std::vector<float> factors(tensor.secondary_scales.size() / sizeof(float));
  std::memcpy(factors.data(), tensor.secondary_scales.data(), tensor.secondary_scales.size());
  // Nearly all files pass here.
  if (std::isfinite(kLargestE4m3 * *std::max_element(factors.begin(), factors.end()))) return absl::OkStatus();
  const int64_t of_factor = count / static_cast<int64_t>(factors.size());
  for (int64_t i = 0; i < count; ++i) {
    const float factor = factors[static_cast<size_t>(i / of_factor)];
    const float scale = E4m3At(tensor.scales, i);
    if (!std::isfinite(scale * factor)) return NotFinite(tensors, key, i, scale, "multiplied by", factor_key, factor);
  }
  return absl::OkStatus();
}

}  // namespace gemmd

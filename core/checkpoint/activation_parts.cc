#include "core/checkpoint/activation_parts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/reader_parts.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

// Of a number that the module has once, or once per expert.
std::vector<Shape> PerExpertShapes(int64_t experts) {
  std::vector<Shape> shapes = {{}, {1}};
  if (experts > 1) shapes.insert(shapes.end(), {{experts}, {experts, 1}});
  return shapes;
}

// float32 [E] of such numbers, positive, each as `change` makes it.
template <typename Change>
absl::StatusOr<Buffer> ReadPerExpert(ModuleTensors& tensors, const std::string& key, Change change,
                                     const StandardTensor& tensor) {
  const int64_t experts = tensor.shape.experts;
  GEMMD_ASSIGN_OR_RETURN(const TensorData data,
                         ReadScales(tensors, key, {"F32", "BF16", "F16"}, PerExpertShapes(experts),
                                    ScaleSign::kPositive));
  const NumberFormat stored = FormatOfDtype(data.info.dtype);
  const bool per_expert = static_cast<int64_t>(data.bytes.size()) * 8 / stored.bits > 1;
  Buffer numbers(experts * sizeof(float));
  for (int64_t i = 0; i < experts; ++i) {
    const float number = change(static_cast<float>(NumberAt(data, stored, per_expert ? i : 0)));
    if (!std::isfinite(number) || number == 0) {
      return tensors.Bad(key, absl::StrCat("element ", i, ": its inverse is ", number));
    }
    std::memcpy(numbers.data() + i * sizeof(number), &number, sizeof(number));
  }
  return numbers;
}

}  // namespace

void SetNoActivation(StandardTensor& tensor) {
  tensor.spec.activation = kNoFormat;
  tensor.spec.activation_scale = ActivationScaleKind::kNone;
  tensor.spec.activation_group = 0;
}

void SetDynamicActivation(const NumberFormat& format, int64_t group, StandardTensor& tensor) {
  tensor.spec.activation = format;
  tensor.spec.activation_scale =
      group > 0 ? ActivationScaleKind::kDynamicGroup : ActivationScaleKind::kDynamicToken;
  tensor.spec.activation_group = group;
}

void SetAsymmetricActivation(const NumberFormat& format, ActivationScaleKind scale, int64_t group,
                             StandardTensor& tensor) {
  tensor.encoding = {.format = format,
                     .scale = scale,
                     .group = group,
                     .zero_points = true,
                     .group_scale = kNoFormat};
}

void SetGroupScaleType(const NumberFormat& scale, StandardTensor& tensor) {
  const QuantSpec& spec = tensor.spec;
  tensor.encoding = {.format = spec.activation,
                     .scale = spec.activation_scale,
                     .group = spec.activation_group,
                     .zero_points = false,
                     .group_scale = scale};
}

absl::Status ReadStaticActivation(ModuleTensors& tensors, const std::string& key,
                                  const NumberFormat& format, StandardTensor& tensor) {
  GEMMD_ASSIGN_OR_RETURN(tensor.activation_scale,
                         ReadPerExpert(
                             tensors, key, [](float scale) { return scale; }, tensor));
  tensor.spec.activation = format;
  tensor.spec.activation_scale = ActivationScaleKind::kStaticTensor;
  return absl::OkStatus();
}

absl::Status ReadStaticZeroPoint(ModuleTensors& tensors, const std::string& scale_key,
                                 const std::string& zero_point_key, StandardTensor& tensor) {
  GEMMD_ASSIGN_OR_RETURN(tensor.activation_scale,
                         ReadPerExpert(
                             tensors, scale_key, [](float scale) { return scale; }, tensor));
  const int64_t experts = tensor.shape.experts;
  GEMMD_ASSIGN_OR_RETURN(const TensorData data,
                         tensors.Read(zero_point_key, {"I8"}, PerExpertShapes(experts)));
  tensor.activation_zero_point.resize(experts * sizeof(int16_t));
  for (int64_t i = 0; i < experts; ++i) {
    const int16_t zero_point = data.at<int8_t>(data.bytes.size() > 1 ? i : 0);
    std::memcpy(tensor.activation_zero_point.data() + i * sizeof(zero_point), &zero_point,
                sizeof(zero_point));
  }
  return absl::OkStatus();
}

absl::Status RequireNoZeroPoint(ModuleTensors& tensors, const std::string& key) {
  if (tensors.Find(key) == nullptr) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(const TensorData data, tensors.Read(key, {"I8", "I32"}, {{}, {1}}));
  for (const std::byte byte : data.bytes) {
    if (byte == std::byte{0}) continue;
    return tensors.Bad(key, "expected 0 with symmetric activations");
  }
  return absl::OkStatus();
}

absl::Status ReadActivationGlobalScale(ModuleTensors& tensors, const std::string& key,
                                       GlobalScale meaning, StandardTensor& tensor) {
  const auto divisor = [meaning](float scale) {
    return meaning == GlobalScale::kFactor ? 1 / scale : scale;
  };
  GEMMD_ASSIGN_OR_RETURN(tensor.activation_global_scale,
                         ReadPerExpert(tensors, key, divisor, tensor));
  SetGroupScaleType(kFloat8E4M3, tensor);
  return absl::OkStatus();
}

absl::Status ReadInputScale(ModuleTensors& tensors, const std::string& key,
                            StandardTensor& tensor) {
  if (tensors.Find(key) == nullptr) return absl::OkStatus();
  const int64_t k = tensor.shape.k;
  GEMMD_ASSIGN_OR_RETURN(const TensorData factors,
                         ReadScales(tensors, key, {"F16", "BF16", "F32"}, {{k}}, ScaleSign::kAny));
  const NumberFormat format = FormatOfDtype(factors.info.dtype);
  std::vector<float> values;
  for (int64_t i = 0; i < k; ++i) {
    values.push_back(static_cast<float>(NumberAt(factors, format, i)));
  }
  if (std::all_of(values.begin(), values.end(), [](float value) { return value == 1; })) {
    return absl::OkStatus();
  }
  tensor.has_input_scale = true;
  tensor.input_scale.resize(values.size() * sizeof(float));
  std::memcpy(tensor.input_scale.data(), values.data(), tensor.input_scale.size());
  return absl::OkStatus();
}

}  // namespace gemmd

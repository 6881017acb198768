// What    compressed-tensors: finds the scheme of a module and calls the reader of its storage
//         format.
#include "core/checkpoint/compressed_tensors.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/activation_parts.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_rules.h"
#include "core/checkpoint/reader.h"
#include "core/checkpoint/reader_parts.h"

namespace gemmd {
namespace compressed_tensors {
namespace {

absl::StatusOr<StandardTensor> ReadWeights(const CompressedScheme& scheme, ModuleTensors& tensors) {
  const bool is_float = scheme.type == "float";
  const std::string& format = scheme.format;
  if (format == "pack-quantized" && !is_float) return ReadPackedIntegers(scheme, tensors);
  if ((format == "int-quantized" && !is_float) || (format == "float-quantized" && is_float) ||
      format == "naive-quantized" || (format == "mxfp8-quantized" && is_float)) {
    return ReadByteWeights(scheme, tensors);
  }
  const bool is_fp4 = is_float && scheme.bits == 4;
  if ((format == "nvfp4-pack-quantized" || format == "mxfp4-pack-quantized") && is_fp4) {
    return ReadPackedFloats(scheme, tensors);
  }
  return UnsupportedFormat(absl::StrCat("compressed-tensors format \"", format, "\" of type ",
                                        scheme.type, " with ", scheme.bits, " bits is not read"));
}

absl::Status ReadAsymmetricActivation(const CompressedScheme& scheme, ModuleTensors& tensors,
                                      StandardTensor& tensor) {
  SetAsymmetricActivation(scheme.activation, scheme.activation_scale, scheme.activation_group,
                          tensor);
  if (scheme.activation_scale != ActivationScaleKind::kStaticTensor) return absl::OkStatus();
  return ReadStaticZeroPoint(tensors, ".input_scale", ".input_zero_point", tensor);
}

absl::Status ReadActivation(const CompressedScheme& scheme, ModuleTensors& tensors,
                            StandardTensor& tensor) {
  if (!scheme.activation.present()) return absl::OkStatus();
  if (!scheme.activation_symmetric) return ReadAsymmetricActivation(scheme, tensors, tensor);
  if (scheme.activation_scale == ActivationScaleKind::kStaticTensor) {
    return ReadStaticActivation(tensors, ".input_scale", scheme.activation, tensor);
  }
  SetDynamicActivation(scheme.activation, scheme.activation_group, tensor);
  if (scheme.activation_exponents) SetGroupScaleType(kFloat8E8M0, tensor);
  if (!scheme.activation_global_scale) return absl::OkStatus();
  return ReadActivationGlobalScale(tensors, ".input_global_scale", GlobalScale::kDivisor, tensor);
}

absl::StatusOr<StandardTensor> ReadGroup(const Json& config, const Json& group,
                                         ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const CompressedScheme scheme, ParseCompressedScheme(config, group));
  GEMMD_ASSIGN_OR_RETURN(StandardTensor tensor, ReadWeights(scheme, tensors));
  GEMMD_RETURN_IF_ERROR(ReadActivation(scheme, tensors, tensor));
  GEMMD_RETURN_IF_ERROR(ReadBias(tensors, ".bias", tensor));
  return tensor;
}

// The library and vLLM give the module different groups: only the stored tensors can tell which is
// meant.
absl::StatusOr<StandardTensor> ReadEither(const Json& config, const std::vector<Json>& groups,
                                          ModuleTensors& tensors) {
  ModuleTensors attempt = tensors;
  auto first = ReadGroup(config, groups[0], attempt);
  const bool first_fits = first.ok() && attempt.RejectOthers().ok();
  ModuleTensors other_attempt = tensors;
  auto second = ReadGroup(config, groups[1], other_attempt);
  const bool second_fits = second.ok() && other_attempt.RejectOthers().ok();
  if (first_fits == second_fits) {
    return tensors.Bad(
        absl::StrCat("two config groups with different schemes match it, and its tensors fit ",
                     first_fits ? "both" : "neither"));
  }
  tensors = first_fits ? std::move(attempt) : std::move(other_attempt);
  return first_fits ? std::move(first) : std::move(second);
}

bool LooksQuantized(const ModuleTensors& tensors) {
  if (tensors.Find(".weight_packed") != nullptr || tensors.Find(".weight_scale") != nullptr)
    return true;
  const TensorInfo* weight = tensors.Find(".weight");
  return weight != nullptr && (weight->dtype == "I8" || FormatOfDtype(weight->dtype).bits == 8);
}

// Older files keep the scales of a quantized key-value cache as those of what makes keys and values.
void IgnoreOldCacheScales(ModuleTensors& tensors) {
  const std::string& module = tensors.module();
  const std::string name = module.substr(module.rfind('.') + 1);
  if (name != "k_proj" && name != "v_proj") return;
  tensors.Ignore(".output_scale");
  tensors.Ignore(".output_zero_point");
}

absl::StatusOr<StandardTensor> Read(const Json& config, const ReadingOptions&, ModuleTensors& tensors) {
  IgnoreOldCacheScales(tensors);
  GEMMD_ASSIGN_OR_RETURN(const std::vector<Json> groups,
                         ResolveConfigGroups(config, tensors.module()));
  if (LooksQuantized(tensors) && FindField(config, {"config_groups"}) == nullptr) {
    return WrongField("config_groups", "an object", nullptr);
  }
  GEMMD_RETURN_IF_ERROR(
      CheckAgreement(tensors, !groups.empty(), LooksQuantized(tensors), "packed or 8-bit weight",
                     groups.empty() ? WhyInNoGroup(config, tensors.module()) : ""));
  if (groups.size() > 1) return ReadEither(config, groups, tensors);
  return ReadGroup(config, groups.front(), tensors);
}

}  // namespace
}  // namespace compressed_tensors

CheckpointReader CompressedTensorsReader() {
  return {"compressed-tensors", {".weight_packed", ".weight_scale"}, &compressed_tensors::Read};
}

}  // namespace gemmd

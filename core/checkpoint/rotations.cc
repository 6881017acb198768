#include "core/checkpoint/rotations.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/errors.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

absl::Status Rotated(absl::string_view what) {
  return UnsupportedFormat(absl::StrCat(what, ": its rotations of x before the GEMM are not read"));
}

// {}, [], "" and false.
bool SaysNothing(const Json& value) {
  return value == Json("") || value == Json(false) || (value.is_structured() && value.empty());
}

// Keys that nothing is known of that leaves x as it is. AutoRound rotates x for every rotation_config, also for one that
// says fuse_online_to_weight; it called the key hadamard_config before. rotation is GPTQModel's.
absl::Status RejectWhole(const Json& config) {
  for (const char* key : {"rotation_config", "hadamard_config", "rotation"}) {
    const Json* const field = FindField(config, {key});
    if (field != nullptr && !SaysNothing(*field)) return Rotated(absl::StrCat("\"", key, "\""));
  }
  GEMMD_ASSIGN_OR_RETURN(const Json* const transform, ObjectField(config, {"transform_config"}));
  return transform == nullptr || transform->empty() ? absl::OkStatus() : Rotated("\"transform_config\"");
}

// AutoRound: R1 of the residual stream, multiplied into the weights before it unless it is online, and R4 of what down_proj
// gets. R2 is in the weights, R3 concerns attention alone.
absl::Status RejectSpinQuant(const Json& config) {
  GEMMD_ASSIGN_OR_RETURN(const Json* const spin, ObjectField(config, {"spinquant_config"}));
  if (spin == nullptr || spin->empty()) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(const bool r1, BoolField(*spin, {"r1"}, true));
  GEMMD_ASSIGN_OR_RETURN(const bool online, BoolField(*spin, {"online_r1_rotation"}, true));
  GEMMD_ASSIGN_OR_RETURN(const bool r4, BoolField(*spin, {"r4"}, false));
  if (r1 && online) return Rotated("\"spinquant_config\" with online_r1_rotation");
  return r4 ? Rotated("\"spinquant_config\" with r4") : absl::OkStatus();
}

// Quark. Rotations that were multiplied into the weights change nothing.
absl::Status RejectAlgorithms(const Json& config) {
  const Json* const algorithms = FindField(config, {"algo_config"});
  if (algorithms == nullptr) return absl::OkStatus();
  const Json list = algorithms->is_array() ? *algorithms : Json::array({*algorithms});
  for (const Json& algorithm : list) {
    for (const char* rotation : {"online_r1_rotation", "r4"}) {
      GEMMD_ASSIGN_OR_RETURN(const bool online, BoolField(algorithm, {rotation}, false));
      if (online) return Rotated(absl::StrCat("\"algo_config\" with ", rotation));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RejectRotations(const Json& config) {
  GEMMD_RETURN_IF_ERROR(RejectWhole(config));
  GEMMD_RETURN_IF_ERROR(RejectSpinQuant(config));
  return RejectAlgorithms(config);
}

}  // namespace gemmd

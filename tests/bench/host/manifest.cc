#include "tests/bench/host/manifest.h"

#include <algorithm>

#include "kernels/base/status.h"
#include "nlohmann/json.hpp"
#include "tests/bench/host/bench_format.h"

namespace gemmd::bench {
namespace {

using Json = nlohmann::ordered_json;

const char* const kKinds[] = {"", "NUMBER_KIND_INTEGER", "NUMBER_KIND_FLOAT", "NUMBER_KIND_EXPONENT"};
const char* const kSpecials[] = {"SPECIAL_VALUES_NONE", "SPECIAL_VALUES_NAN_ONLY",
                                 "SPECIAL_VALUES_IEEE"};
const char* const kZeroPoints[] = {"ZERO_POINT_KIND_NONE", "ZERO_POINT_KIND_INTEGER",
                                   "ZERO_POINT_KIND_FLOAT"};
const char* const kSecondary[] = {"SECONDARY_SCALE_KIND_NONE", "SECONDARY_SCALE_KIND_TENSOR",
                                  "SECONDARY_SCALE_KIND_CHANNEL"};
const char* const kActivationScales[] = {
    "ACTIVATION_SCALE_KIND_NONE", "ACTIVATION_SCALE_KIND_STATIC_TENSOR",
    "ACTIVATION_SCALE_KIND_DYNAMIC_TOKEN", "ACTIVATION_SCALE_KIND_DYNAMIC_GROUP"};

template <typename Enum, size_t count>
const char* NameIn(const char* const (&names)[count], Enum value) {
  return names[static_cast<size_t>(value)];
}

// Absent formats are left out.
void AddFormat(const char* field, const NumberFormat& format, Json& spec) {
  if (!format.present()) return;
  Json json = {{"kind", NameIn(kKinds, format.kind)}, {"bits", format.bits}};
  if (format.kind != NumberKind::kInteger) {
    json["exponent_bits"] = format.exponent_bits;
    json["mantissa_bits"] = format.mantissa_bits;
    json["special"] = NameIn(kSpecials, format.special);
  }
  spec[field] = json;
}

Json SpecOf(const QuantSpec& spec) {
  Json json = Json::object();
  AddFormat("weight", spec.weight, json);
  AddFormat("scale", spec.scale, json);
  json["scale_block_n"] = spec.scale_block_n;
  json["scale_block_k"] = spec.scale_block_k;
  json["zero_point"] = NameIn(kZeroPoints, spec.zero_point);
  json["secondary_scale"] = NameIn(kSecondary, spec.secondary_scale);
  AddFormat("bias", spec.bias, json);
  AddFormat("activation", spec.activation, json);
  json["activation_scale"] = NameIn(kActivationScales, spec.activation_scale);
  json["activation_group"] = spec.activation_group;
  return json;
}

}  // namespace

absl::StatusOr<std::string> RenderManifest(const std::vector<Problem>& problems) {
  Json shapes = Json::array();
  for (const Problem& problem : problems) {
    GEMMD_ASSIGN_OR_RETURN(const BenchFormat format, FindFormat(problem.format));
    Json layer = {{"spec", SpecOf(format.spec)}, {"n", problem.n}, {"k", problem.k}};
    if (std::find(shapes.begin(), shapes.end(), layer) == shapes.end()) shapes.push_back(layer);
  }
  return Json{{"shapes", shapes}}.dump(1) + "\n";
}

}  // namespace gemmd::bench

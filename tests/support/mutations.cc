#include "tests/support/mutations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "core/quant/reference.h"

namespace gemmd {
namespace {

using nlohmann::json;

NumberFormat FloatOf(const std::string& dtype) {
  if (dtype == "F32") return kFloat32;
  return dtype == "F16" ? kFloat16 : kBFloat16;
}

// The element in the tensor's own type; 1-byte floats take the raw code.
std::string Element(const std::string& dtype, const json& value) {
  double number = 0;
  if (value.is_string()) {
    number = value == "nan" ? std::nan("") : std::numeric_limits<double>::infinity();
  } else {
    number = value.get<double>();
  }
  uint64_t code = 0;
  size_t size = 1;
  if (dtype == "F32" || dtype == "F16" || dtype == "BF16") {
    code = EncodeNumber(FloatOf(dtype), number);
    size = FloatOf(dtype).bits / 8;
  } else {
    code = static_cast<uint64_t>(static_cast<int64_t>(number));
    size = dtype == "I64" ? 8 : dtype == "I32" ? 4 : 1;
  }
  return std::string(reinterpret_cast<const char*>(&code), size);
}

void SetConfig(EditableCheckpoint& checkpoint, const std::string& path, const json& value) {
  nlohmann::ordered_json* place = &checkpoint.config["quantization_config"];
  for (const auto& key : absl::StrSplit(path, '.')) place = &(*place)[std::string(key)];
  *place = nlohmann::ordered_json::parse(value.dump());
}

void KeepFirst(RawTensor& tensor, size_t axis, int64_t count) {
  int64_t rows = 1;
  for (size_t i = 0; i < axis; ++i) rows *= tensor.shape[i];
  const int64_t old_bytes = static_cast<int64_t>(tensor.bytes.size()) / rows;
  const int64_t new_bytes = old_bytes / tensor.shape[axis] * count;
  std::string kept;
  for (int64_t row = 0; row < rows; ++row) kept += tensor.bytes.substr(row * old_bytes, new_bytes);
  tensor.bytes = kept;
  tensor.shape[axis] = count;
}

void Apply(EditableCheckpoint& checkpoint, const json& op) {
  const std::string kind = op["op"];
  if (kind == "set_config") return SetConfig(checkpoint, op["path"], op["value"]);
  const std::string name = op["tensor"];
  ASSERT_EQ(checkpoint.tensors.count(name), 1u) << name;
  RawTensor& tensor = checkpoint.tensors[name];
  if (kind == "drop_tensor") {
    checkpoint.tensors.erase(name);
  } else if (kind == "set_raw_element") {
    const std::string element = Element(tensor.dtype, op["value"]);
    tensor.bytes.replace(op["flat_index"].get<size_t>() * element.size(), element.size(), element);
  } else if (kind == "keep_first_rows") {
    KeepFirst(tensor, 0, op["rows"]);
  } else if (kind == "keep_first_columns") {
    KeepFirst(tensor, tensor.shape.size() - 1, op["columns"]);
  } else if (kind == "relabel_dtype_same_width") {
    tensor.dtype = op["dtype"];
  } else {
    FAIL() << "unknown op " << kind;
  }
}

}  // namespace

void Mutate(EditableCheckpoint& checkpoint, const json& mutation) {
  for (const json& op : mutation["ops"]) Apply(checkpoint, op);
}

std::string MutatedModule(const json& mutation, const std::string& only_module) {
  if (mutation.contains("module")) return mutation["module"];
  for (const json& op : mutation["ops"]) {
    if (!op.contains("tensor")) continue;
    std::string name = op["tensor"];
    for (const char* gpt_oss : {"_scales", "_blocks"}) {
      if (absl::EndsWith(name, gpt_oss)) return name.substr(0, name.size() - std::strlen(gpt_oss));
    }
    return name.substr(0, name.rfind('.'));
  }
  return only_module;
}

MutationOutcome OutcomeOf(const json& mutation) {
  const std::string expect = mutation["expect"];
  if (expect == "accept, same weight_f32" ||
      // Our policy: without zero points a symmetric weight has the one in the middle.
      expect == "reject unless sym is true and the policy says so") {
    return MutationOutcome::kSameWeights;
  }
  if (absl::StartsWith(expect, "accept using g_idx")) return MutationOutcome::kOtherGrouping;
  // "reject", and where a policy is left to the reader ours is to reject.
  EXPECT_TRUE(absl::StartsWith(expect, "reject")) << expect;
  return MutationOutcome::kRejected;
}

}  // namespace gemmd

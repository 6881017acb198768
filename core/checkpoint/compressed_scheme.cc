// What    Parsing of compressed-tensors configs.
#include <cstdio>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/compressed_tensors.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/reader_parts.h"

namespace gemmd {
namespace {

absl::Status ParseBlock(const Json& weights, CompressedScheme& scheme) {
  const Json* block = FindField(weights, {"block_structure"});
  if (block == nullptr || !block->is_string()) {
    GEMMD_ASSIGN_OR_RETURN(std::tie(scheme.block_n, scheme.block_k),
                           PairField(weights, {"block_structure"}));
    return absl::OkStatus();
  }
  int rows = 0;  // older files: "128x128"
  int columns = 0;
  std::sscanf(block->get_ref<const std::string&>().c_str(), "%9dx%9d", &rows, &columns);
  if (rows < 1 || columns < 1)
    return WrongField("block_structure", kExtentPair, *block);
  scheme.block_n = rows;
  scheme.block_k = columns;
  return absl::OkStatus();
}

// actorder: null, false, "weight" and "static" leave ordinary groups; "group", "dynamic" and true
// come with an index.
absl::Status ParseActivationOrder(const Json& weights, CompressedScheme& scheme) {
  const Json* order = FindField(weights, {"actorder"});
  if (order == nullptr) return absl::OkStatus();
  if (order->is_boolean()) {
    scheme.activation_order = order->get<bool>();
    return absl::OkStatus();
  }
  GEMMD_ASSIGN_OR_RETURN(const std::string name, NameField(weights, {"actorder"}, ""));
  scheme.activation_order = name == "group" || name == "dynamic";
  if (scheme.activation_order || name == "weight" || name == "static") return absl::OkStatus();
  return UnsupportedFormat(absl::StrCat("compressed-tensors actorder \"", name, "\" is not read"));
}

absl::Status ParseWeights(const Json& weights, CompressedScheme& scheme) {
  GEMMD_ASSIGN_OR_RETURN(const int64_t bits, IntegerField(weights, {"num_bits"}, 8));
  GEMMD_ASSIGN_OR_RETURN(scheme.type, NameField(weights, {"type"}, "int"));
  GEMMD_ASSIGN_OR_RETURN(scheme.symmetric, BoolField(weights, {"symmetric"}, true));
  GEMMD_ASSIGN_OR_RETURN(scheme.group_size, IntegerField(weights, {"group_size"}, 0));
  GEMMD_ASSIGN_OR_RETURN(scheme.strategy, NameField(weights, {"strategy"},
                                                    scheme.group_size > 0 ? "group" : "tensor"));
  if (bits < 1 || bits > 8) {
    return UnsupportedFormat(
        absl::StrCat("compressed-tensors num_bits ", bits, " is not read: 1 to 8 are"));
  }
  scheme.bits = static_cast<int>(bits);
  if (scheme.type == "float" && !scheme.symmetric) {
    return UnsupportedFormat("compressed-tensors asymmetric floats are not read");
  }
  if (scheme.strategy == "block") GEMMD_RETURN_IF_ERROR(ParseBlock(weights, scheme));
  const bool grouped = scheme.strategy == "group" || scheme.strategy == "tensor_group";
  if (grouped) {
    GEMMD_RETURN_IF_ERROR(
        CheckGroupSize(scheme.group_size, absl::StrCat(" with strategy ", scheme.strategy)));
  }
  return ParseActivationOrder(weights, scheme);
}

absl::StatusOr<NumberFormat> ParseActivationFormat(const Json& inputs) {
  GEMMD_ASSIGN_OR_RETURN(const int64_t bits, IntegerField(inputs, {"num_bits"}, 8));
  GEMMD_ASSIGN_OR_RETURN(const std::string type, NameField(inputs, {"type"}, "int"));
  if (bits >= 16 && bits <= 64) return kNoFormat;
  if (type == "float" && bits == 8) return kFloat8E4M3;
  if (type == "float" && bits == 4) return kFloat4E2M1;
  if (type == "int" && bits >= 1 && bits <= 8) return IntegerFormat(static_cast<int>(bits));
  return UnsupportedFormat(absl::StrCat("compressed-tensors input_activations of type ", type,
                                        " with ", bits, " bits are not read"));
}

// Scales computed from each activation: per token, or per group of columns.
absl::Status ParseDynamicInputs(const Json& inputs, CompressedScheme& scheme) {
  GEMMD_ASSIGN_OR_RETURN(const int64_t group_size, IntegerField(inputs, {"group_size"}, 0));
  GEMMD_ASSIGN_OR_RETURN(const std::string strategy,
                         NameField(inputs, {"strategy"}, group_size > 0 ? "group" : "token"));
  if (strategy == "token" || strategy == "tensor") {  // a scale per token is the finer of the two
    scheme.activation_scale = ActivationScaleKind::kDynamicToken;
    return absl::OkStatus();
  }
  if (strategy != "group" && strategy != "tensor_group") {
    return UnsupportedFormat(absl::StrCat("compressed-tensors input_activations with strategy \"",
                                          strategy, "\" are not read"));
  }
  GEMMD_RETURN_IF_ERROR(CheckGroupSize(group_size, absl::StrCat(" with strategy ", strategy)));
  scheme.activation_scale = ActivationScaleKind::kDynamicGroup;
  scheme.activation_group = group_size;
  return absl::OkStatus();
}

// The scales of MX groups are exponents. Files say so by a scale_dtype of bytes; older ones only by the
// format of the weights.
absl::Status ParseGroupScale(const Json& inputs, CompressedScheme& scheme) {
  constexpr int64_t kMxGroup = 32;
  GEMMD_ASSIGN_OR_RETURN(const std::string dtype, NameField(inputs, {"scale_dtype"}, ""));
  const bool is_byte = dtype == "torch.uint8" || dtype == "uint8";
  const bool is_mx = dtype.empty() && absl::StartsWith(scheme.format, "mx");
  scheme.activation_exponents = (is_byte || is_mx) && scheme.activation_symmetric &&
                                scheme.activation.kind == NumberKind::kFloat &&
                                scheme.activation_group == kMxGroup;
  return absl::OkStatus();
}

// dynamic: true, false, or "local" for scales below a global one.
absl::StatusOr<bool> ParseDynamic(const Json& inputs, CompressedScheme& scheme) {
  const Json* dynamic = FindField(inputs, {"dynamic"});
  scheme.activation_global_scale = dynamic != nullptr && *dynamic == "local";
  if (scheme.activation_global_scale) return true;
  if (dynamic != nullptr && !dynamic->is_boolean()) {
    return WrongField("dynamic", "true, false or \"local\"", *dynamic);
  }
  return dynamic != nullptr && dynamic->get<bool>();
}

// How activations are quantized, and which tensors a module must have for that.
absl::Status ParseInputs(const Json& inputs, CompressedScheme& scheme) {
  GEMMD_ASSIGN_OR_RETURN(const NumberFormat format, ParseActivationFormat(inputs));
  if (!format.present()) return absl::OkStatus();
  scheme.activation = format;
  GEMMD_ASSIGN_OR_RETURN(scheme.activation_symmetric, BoolField(inputs, {"symmetric"}, true));
  if (!scheme.activation_symmetric && format.kind != NumberKind::kInteger) {
    return UnsupportedFormat(
        "compressed-tensors asymmetric floats of input_activations are not read");
  }
  GEMMD_ASSIGN_OR_RETURN(const bool is_dynamic, ParseDynamic(inputs, scheme));
  if (!is_dynamic) {
    scheme.activation_scale = ActivationScaleKind::kStaticTensor;
    return absl::OkStatus();
  }
  GEMMD_RETURN_IF_ERROR(ParseDynamicInputs(inputs, scheme));
  if (scheme.activation_global_scale &&
      scheme.activation_scale != ActivationScaleKind::kDynamicGroup) {
    return BadCheckpoint("\"strategy\": expected groups with dynamic \"local\", got none");
  }
  return ParseGroupScale(inputs, scheme);
}

// Storage that changes the meaning of the weights.
absl::Status RejectStorage(const Json& config) {
  GEMMD_ASSIGN_OR_RETURN(const Json* const sparsity, ObjectField(config, {"sparsity_config"}));
  if (sparsity != nullptr && !sparsity->empty()) {
    GEMMD_ASSIGN_OR_RETURN(const std::string format, NameField(*sparsity, {"format"}, "unknown"));
    if (format != "dense") {
      return UnsupportedFormat(
          absl::StrCat("compressed-tensors sparsity format \"", format, "\" is not read"));
    }
  }
  GEMMD_ASSIGN_OR_RETURN(const std::string status,
                         NameField(config, {"quantization_status"}, "compressed"));
  // Before it had "compressed", the exporter wrote compressed weights as "frozen": their tensors tell.
  if (status != "compressed" && status != "frozen") {
    return UnsupportedFormat(absl::StrCat("compressed-tensors quantization_status \"", status,
                                          "\" is not read: compressed and frozen are"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CompressedScheme> ParseCompressedScheme(const Json& config, const Json& group) {
  GEMMD_RETURN_IF_ERROR(RejectStorage(config));
  CompressedScheme scheme;
  GEMMD_ASSIGN_OR_RETURN(const std::string version, NameField(config, {"version"}, ""));
  scheme.version = CompressedVersion(version);
  GEMMD_ASSIGN_OR_RETURN(const std::string global_format, NameField(config, {"format"}, ""));
  GEMMD_ASSIGN_OR_RETURN(const std::string group_format, NameField(group, {"format"}, ""));
  // The global format says mixed-precision, or the same as the group's own.
  const bool agree = group_format.empty() || global_format.empty() ||
                     global_format == "mixed-precision" || global_format == group_format;
  if (!agree) {
    return UnsupportedFormat(absl::StrCat("compressed-tensors format \"", global_format,
                                          "\" with a group of format \"", group_format,
                                          "\" is not read"));
  }
  scheme.format = group_format.empty() ? global_format : group_format;
  GEMMD_ASSIGN_OR_RETURN(const Json* const weights, ObjectField(group, {"weights"}));
  if (weights == nullptr) return WrongField("weights", "an object in a config group", nullptr);
  const absl::Status of_weights = ParseWeights(*weights, scheme);
  if (!of_weights.ok()) return Annotate(of_weights, "weights");
  GEMMD_ASSIGN_OR_RETURN(const Json* const inputs, ObjectField(group, {"input_activations"}));
  const absl::Status of_inputs =
      inputs == nullptr ? absl::OkStatus() : ParseInputs(*inputs, scheme);
  if (!of_inputs.ok()) return Annotate(of_inputs, "input_activations");
  // Types of y are the request's: what it says is not followed.
  GEMMD_RETURN_IF_ERROR(ObjectField(group, {"output_activations"}).status());
  return scheme;
}

std::string DescribeScales(const CompressedScheme& scheme) {
  std::string text = absl::StrCat("num_bits ", scheme.bits, ", strategy ", scheme.strategy);
  if (scheme.strategy == "block") {
    absl::StrAppend(&text, ", block_structure [", scheme.block_n, ", ", scheme.block_k, "]");
  } else if (scheme.group_size > 0) {
    absl::StrAppend(&text, ", group_size ", scheme.group_size);
  }
  return text;
}

absl::StatusOr<std::vector<Shape>> ScaleShapes(const CompressedScheme& scheme,
                                               const ModuleTensors& tensors, bool stacked,
                                               StandardTensor& tensor) {
  const auto [experts, n, k] = tensor.shape;
  std::vector<Shape> shapes;
  QuantSpec& spec = tensor.spec;
  spec.scale_block_n = 1;
  spec.scale_block_k = 0;
  if (scheme.strategy == "tensor") {
    spec.scale_block_n = 0;
    shapes = stacked ? std::vector<Shape>{{1}, {1, 1}} : std::vector<Shape>{{}, {1}};
    if (stacked) shapes.insert(shapes.begin(), Shape{});
  } else if (scheme.strategy == "channel") {
    shapes = {{n}, {n, 1}};
  } else if (scheme.strategy == "group" || scheme.strategy == "tensor_group") {
    if (k >= scheme.group_size && k % scheme.group_size != 0) {
      return tensors.Bad(
          absl::StrCat("K is ", k, ", expected a multiple of group_size ", scheme.group_size));
    }
    spec.scale_block_k = scheme.group_size;
    shapes = {{n, spec.ScaleColumns(k)}};
  } else if (scheme.strategy == "block") {
    spec.scale_block_n = scheme.block_n;
    spec.scale_block_k = scheme.block_k;
    shapes = {{spec.ScaleRows(n), spec.ScaleColumns(k)}};
  } else {
    return UnsupportedFormat(absl::StrCat("compressed-tensors strategy \"", scheme.strategy,
                                          "\" is not read for weights"));
  }
  tensor.scale_columns = spec.ScaleColumns(k);
  if (stacked) {
    for (Shape& shape : shapes) shape.insert(shape.begin(), experts);
  }
  return shapes;
}

}  // namespace gemmd

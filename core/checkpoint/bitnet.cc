// What    BitNet b1.58: ternary weights, four row blocks to a byte, one scale.
// Source  https://huggingface.co/microsoft/bitnet-b1.58-2B-4T; packing of transformers'
//         integrations/bitnet.py; layouts: README.md.
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/activation_parts.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_rules.h"
#include "core/checkpoint/reader.h"
#include "core/checkpoint/reader_parts.h"
#include "core/quant/bit_row.h"
#include "core/quant/reference.h"

namespace gemmd {
namespace bitnet {
namespace {

constexpr int kBits = 2;
constexpr int64_t kRowBlocks = 4;
constexpr uint8_t kInvalidField = 3;
constexpr int16_t kZeroPoint = 1;  // fields 0, 1, 2 are -1, 0, 1

struct BitnetScheme {
  bool divides = true;  // w = t / scale, as class bitlinear stores it; otherwise t * scale
};

absl::StatusOr<BitnetScheme> ParseScheme(const Json& config) {
  GEMMD_ASSIGN_OR_RETURN(const std::string linear_class,
                         NameField(config, {"linear_class"}, "bitlinear"));
  GEMMD_ASSIGN_OR_RETURN(const std::string mode,
                         NameField(config, {"quantization_mode"}, "offline"));
  if (mode != "offline") {
    return UnsupportedFormat(
        absl::StrCat("BitNet quantization_mode \"", mode, "\" is not read: offline is"));
  }
  if (linear_class != "bitlinear" && linear_class != "autobitlinear") {
    return UnsupportedFormat(absl::StrCat("BitNet linear_class \"", linear_class,
                                          "\" is not read: bitlinear and autobitlinear are"));
  }
  GEMMD_ASSIGN_OR_RETURN(const bool rms_norm, BoolField(config, {"use_rms_norm"}, false));
  if (rms_norm) {
    return UnsupportedFormat("BitNet with use_rms_norm (a norm inside each linear) is not read");
  }
  return BitnetScheme{linear_class == "bitlinear"};
}

// Whether row `row` of all blocks holds field 0 only, which is how writers leave padding.
bool IsPadding(const TensorData& packed, int64_t row, int64_t packed_rows, int64_t k) {
  const int64_t shift = kBits * (row / packed_rows);
  const int64_t first = row % packed_rows * k;
  for (int64_t column = 0; column < k; ++column) {
    if (((packed.at<uint8_t>(first + column) >> shift) & 3) != 0) return false;
  }
  return true;
}

// N: that of the bias, or all rows but those at the end that are padding, at most three. They are in the last block, with
// one or two packed rows also in those before it. A row of the model whose weights are all -1 would look the same, and
// does not occur.
int64_t RowsOf(const TensorData& packed, const ModuleTensors& tensors, int64_t packed_rows,
               int64_t k) {
  int64_t n = packed_rows * kRowBlocks;
  const TensorInfo* bias = tensors.Find(".bias");
  if (bias != nullptr && bias->shape.size() == 1 && bias->shape[0] <= n &&
      bias->shape[0] > n - kRowBlocks) {
    return bias->shape[0];
  }
  int64_t padding = 0;
  while (padding < kRowBlocks - 1 && IsPadding(packed, n - 1 - padding, packed_rows, k)) {
    ++padding;
  }
  return n - padding;
}

// Row block i of the packed rows is at bits 2i and 2i + 1 of each byte.
absl::Status UnpackRows(const TensorData& packed, int64_t packed_rows, const ModuleTensors& tensors,
                        StandardTensor& tensor) {
  const auto [experts, n, k] = tensor.shape;
  const int64_t row_bytes = BitRowBytes(k, kBits);
  tensor.codes.resize(n * row_bytes);
  std::vector<uint8_t> row(k);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t shift = kBits * (i / packed_rows);
    const int64_t first = i % packed_rows * k;
    for (int64_t column = 0; column < k; ++column) {
      row[column] = (packed.at<uint8_t>(first + column) >> shift) & 3;
      if (row[column] == kInvalidField) {
        return tensors.Bad(".weight", absl::StrCat("row ", i, ", column ", column,
                                                   ": expected field 0, 1 or 2, got 3"));
      }
    }
    PackBitRow(row, kBits, tensor.codes.data() + i * row_bytes);
  }
  return absl::OkStatus();
}

absl::Status ReadScale(const BitnetScheme& scheme, ModuleTensors& tensors, StandardTensor& tensor) {
  constexpr char kKey[] = ".weight_scale";
  GEMMD_ASSIGN_OR_RETURN(TensorData data, ReadScales(tensors, kKey, {"BF16", "F16", "F32"},
                                                     {{1}, {}}, ScaleSign::kPositive));
  tensor.spec.scale_block_n = 0;
  tensor.spec.scale = FormatOfDtype(data.info.dtype);
  if (!scheme.divides) {
    tensor.scales = std::move(data.bytes);
    return absl::OkStatus();
  }
  const float stored =
      tensor.spec.scale.bits == 32
          ? data.at<float>(0)
          : static_cast<float>(DecodeNumber(tensor.spec.scale, data.at<uint16_t>(0)));
  const float factor = 1 / stored;  // t / stored is t * fl32(1 / stored) for t of -1, 0, 1
  if (!std::isfinite(factor)) {
    return tensors.Bad(kKey,
                       absl::StrCat("expected a number with a finite reciprocal, got ", stored));
  }
  tensor.spec.scale = kFloat32;
  tensor.scales.resize(sizeof(factor));
  std::memcpy(tensor.scales.data(), &factor, sizeof(factor));
  return absl::OkStatus();
}

absl::StatusOr<StandardTensor> ReadLinear(const BitnetScheme& scheme, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo info, tensors.Require(".weight", 2));
  const auto [packed_rows, k] = std::pair(info.shape[0], info.shape[1]);
  GEMMD_ASSIGN_OR_RETURN(const TensorData packed, tensors.Read(".weight", {"U8"}, {info.shape}));
  StandardTensor tensor;
  tensor.shape = {1, RowsOf(packed, tensors, packed_rows, k), k};
  tensor.spec.weight = IntegerFormat(kBits);
  GEMMD_RETURN_IF_ERROR(UnpackRows(packed, packed_rows, tensors, tensor));
  GEMMD_RETURN_IF_ERROR(ReadScale(scheme, tensors, tensor));
  tensor.spec.zero_point = ZeroPointKind::kInteger;
  tensor.zero_points.resize(sizeof(kZeroPoint));
  std::memcpy(tensor.zero_points.data(), &kZeroPoint, sizeof(kZeroPoint));
  GEMMD_RETURN_IF_ERROR(ReadBias(tensors, ".bias", tensor));
  SetDynamicActivation(kInt8, 0, tensor);
  return tensor;
}

absl::StatusOr<StandardTensor> Read(const Json& config, const ReadingOptions&, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<std::string> patterns,
                         StringsField(config, {"modules_to_not_convert"}));
  GEMMD_ASSIGN_OR_RETURN(const bool skipped, SkippedByPatterns(patterns, tensors.module()));
  const TensorInfo* weight = tensors.Find(".weight");
  const bool packed = weight != nullptr && weight->dtype == "U8";
  GEMMD_RETURN_IF_ERROR(CheckAgreement(tensors, !skipped, packed, "packed .weight"));
  GEMMD_ASSIGN_OR_RETURN(const BitnetScheme scheme, ParseScheme(config));
  return ReadLinear(scheme, tensors);
}

}  // namespace
}  // namespace bitnet

CheckpointReader BitnetReader() { return {"bitnet", {".weight_scale"}, &bitnet::Read}; }

}  // namespace gemmd

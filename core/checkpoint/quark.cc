// What    AMD Quark: weights of 8-, 6- and 4-bit floats and of 8-, 4-, 3- and 2-bit integers, scales per
//         tensor, channel, group or block.
// Source  https://github.com/amd/Quark, quark/torch/utils/pack.py and quark/torch/export/constants.py;
//         layouts: README.md.
#include "core/checkpoint/quark.h"

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/checkpoint/activation_parts.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/reader.h"
#include "core/checkpoint/reader_parts.h"
#include "core/checkpoint/two_level_scales.h"
#include "core/quant/bit_row.h"

namespace gemmd {
namespace quark {
namespace {

constexpr char kWeight[] = ".weight";
constexpr char kScale[] = ".weight_scale";
constexpr char kSecondScale[] = ".weight_scale_2";
constexpr char kZeroPoint[] = ".weight_zero_point";
constexpr int64_t kPerWord = 8;  // codes of 4 bits
// Nibble p of a word (LSB first) holds code kOrder[p] of its eight.
constexpr std::array<int, kPerWord> kReordered = {0, 2, 4, 6, 1, 3, 5, 7};
constexpr std::array<int, kPerWord> kNatural = {0, 1, 2, 3, 4, 5, 6, 7};

bool IsUnsigned(const QuarkSpec& spec) { return absl::StartsWith(spec.dtype, "uint"); }

// Integers in groups are stored with K in front, and so are their scales; but not int3.
bool IsTransposed(const QuarkSpec& spec) {
  return absl::StrContains(spec.dtype, "int") && spec.dtype != "int3" &&
         spec.scheme == "per_group";
}

// ---- scales ----

absl::Status SetBlocks(const QuarkSpec& spec, const ModuleTensors& tensors,
                       StandardTensor& tensor) {
  const int64_t k = tensor.shape.k;
  tensor.spec.scale_block_n = spec.scheme == "per_tensor" ? 0 : 1;
  tensor.spec.scale_block_k = 0;
  if (spec.scheme == "per_group") {
    if (k % spec.group != 0) {
      return tensors.Bad(
          absl::StrCat("K is ", k, ", expected a multiple of group_size ", spec.group));
    }
    tensor.spec.scale_block_k = spec.group;
  } else if (spec.scheme == "per_block") {
    tensor.spec.scale_block_n = spec.block_n;
    tensor.spec.scale_block_k = spec.block_k;
  }
  tensor.scale_columns = tensor.spec.ScaleColumns(k);
  return absl::OkStatus();
}

std::vector<Shape> ScaleShapes(const QuarkSpec& spec, const StandardTensor& tensor) {
  const int64_t n = tensor.shape.n;
  const int64_t groups = tensor.scale_columns;
  if (spec.scheme == "per_tensor") return {{}, {1}};
  if (spec.scheme == "per_channel") return {{n}, {n, 1}};
  if (IsTransposed(spec)) return {{groups, n}};
  return {{tensor.spec.ScaleRows(n), groups}};
}

// What these shapes follow from.
std::string ConfigSays(const QuarkSpec& spec) {
  std::string text = absl::StrCat("dtype ", spec.dtype, ", qscheme ", spec.scheme);
  if (spec.scheme == "per_group") absl::StrAppend(&text, ", group_size ", spec.group);
  if (spec.scheme == "per_block") absl::StrAppend(&text, ", block_size [", spec.block_n, ", ", spec.block_k, "]");
  return text;
}

// Takes `scales` as they are stored, in rows of w.
void SetScales(const QuarkSpec& spec, NumberFormat format, Buffer scales, StandardTensor& tensor) {
  tensor.spec.scale = format;
  tensor.scales = IsTransposed(spec)
                      ? Transpose(scales, tensor.scale_columns, tensor.shape.n, format.bits / 8)
                      : std::move(scales);
}

absl::Status ReadWeightScales(const QuarkScheme& scheme, ModuleTensors& tensors,
                              StandardTensor& tensor) {
  const QuarkSpec& spec = scheme.weight;
  GEMMD_RETURN_IF_ERROR(SetBlocks(spec, tensors, tensor));
  const std::vector<Shape> shapes = ScaleShapes(spec, tensor);
  if (spec.scale_format == "e8m0") {
    GEMMD_ASSIGN_OR_RETURN(TensorData exponents, ReadExponents(tensors, kScale, shapes, ConfigSays(spec)));
    SetScales(spec, kFloat8E8M0, std::move(exponents.bytes), tensor);
    return absl::OkStatus();
  }
  const bool below = scheme.scale_below_factor;
  const std::vector<std::string> dtypes =
      below ? std::vector<std::string>{"F8_E4M3"} : std::vector<std::string>{"F32", "BF16", "F16"};
  GEMMD_ASSIGN_OR_RETURN(TensorData scales,
                         ReadScales(tensors, kScale, dtypes, shapes,
                                    below ? ScaleSign::kPositiveOrZero : ScaleSign::kPositive,
                                    ConfigSays(spec)));
  SetScales(spec, FormatOfDtype(scales.info.dtype), std::move(scales.bytes), tensor);
  if (!below) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(const TensorData factor,
                         ReadScales(tensors, kSecondScale, {"F32", "BF16", "F16"}, {{}, {1}},
                                    ScaleSign::kPositive));
  const auto value = static_cast<float>(NumberAt(factor, FormatOfDtype(factor.info.dtype), 0));
  tensor.spec.secondary_scale = SecondaryScaleKind::kTensor;
  tensor.secondary_scales.resize(sizeof(value));
  std::memcpy(tensor.secondary_scales.data(), &value, sizeof(value));
  return CheckFactors(tensors, kScale, kSecondScale, tensor);
}

// ---- floats ----

absl::StatusOr<StandardTensor> ReadFloats(const QuarkScheme& scheme, ModuleTensors& tensors) {
  StandardTensor tensor;
  const NumberFormat format = QuarkFormat(scheme.weight.dtype);
  if (format.bits == 8) {
    const char* dtype = format == kFloat8E4M3 ? "F8_E4M3" : "F8_E5M2";
    GEMMD_RETURN_IF_ERROR(ReadFloat8Weight(tensors, kWeight, 2, {dtype}, tensor));
  } else {
    // A dense stream of bytes, LSB first: 2 codes of 4 bits to a byte, 4 of 6 bits to three.
    GEMMD_ASSIGN_OR_RETURN(const TensorInfo info, tensors.Require(kWeight, 2));
    tensor.shape = {1, info.shape[0], info.shape[1] * 8 / format.bits};
    tensor.spec.weight = format;
    if (info.shape[1] * 8 % format.bits != 0) {
      return tensors.Bad(kWeight, absl::StrCat("expected rows of whole codes of ", format.bits,
                                               " bits, got ", info.Describe()));
    }
    GEMMD_ASSIGN_OR_RETURN(TensorData codes, tensors.Read(kWeight, {"U8"}, {info.shape}));
    tensor.codes = PadRows(std::move(codes.bytes), info.shape[1]);
  }
  GEMMD_RETURN_IF_ERROR(ReadWeightScales(scheme, tensors, tensor));
  return tensor;
}

// ---- integers ----

// Codes as they are stored, unpacked: [rows, columns] of the unsigned convention.
struct Codes {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<uint8_t> values;
  uint8_t at(int64_t row, int64_t column) const { return values[row * columns + column]; }
};

// Elements along the last axis that hold `columns` codes: 8 bits one to a byte, 4 bits eight to a word,
// 3 bits eight to three bytes, 2 bits one to an integer.
int64_t StoredElements(int bits, int64_t columns) {
  if (bits == 4) return CeilDivide(columns, kPerWord);
  if (bits == 3) return CeilDivide(columns, 8) * 3;
  return columns;
}

std::vector<std::string> StoredTypes(const QuarkSpec& spec) {
  switch (QuarkFormat(spec.dtype).bits) {
    case 2:
      return {"I8", "I32"};
    case 3:
      return {"U8"};
    case 4:
      return {"I32"};
    default:
      return {IsUnsigned(spec) ? "U8" : "I8"};
  }
}

// One row of words as fields of 4 bits.
void UnpackWords(const std::array<int, kPerWord>& order, const TensorData& data, int64_t first,
                 absl::Span<uint8_t> fields) {
  const auto columns = static_cast<int64_t>(fields.size());
  for (int64_t i = 0; i * kPerWord < columns; ++i) {
    const uint32_t word = data.at<uint32_t>(first + i);
    for (int p = 0; p < kPerWord; ++p) {
      const int64_t column = i * kPerWord + order[p];
      if (column < columns) fields[column] = (word >> (4 * p)) & 15;
    }
  }
}

// One row of three bytes for eight fields of 3 bits, LSB first.
void UnpackThrees(const TensorData& data, int64_t first, absl::Span<uint8_t> fields) {
  for (size_t column = 0; column < fields.size(); ++column) {
    const auto bytes = first + static_cast<int64_t>(column / 8 * 3);
    const uint32_t eight = data.at<uint8_t>(bytes) | data.at<uint8_t>(bytes + 1) << 8 |
                           data.at<uint8_t>(bytes + 2) << 16;
    fields[column] = (eight >> (3 * (column % 8))) & 7;
  }
}

// One row of integers from -2 to 1 as fields of 2 bits.
absl::Status UnpackIntegers(const ModuleTensors& tensors, const std::string& key,
                            const TensorData& data, int64_t first, absl::Span<uint8_t> fields) {
  for (size_t column = 0; column < fields.size(); ++column) {
    const auto index = first + static_cast<int64_t>(column);
    const int32_t value = data.info.dtype == "I8" ? data.at<int8_t>(index) : data.at<int32_t>(index);
    if (value < -2 || value > 1) {
      return tensors.Bad(key, absl::StrCat("element ", index, ": expected -2 to 1, got ", value));
    }
    fields[column] = static_cast<uint8_t>(value & 3);
  }
  return absl::OkStatus();
}

absl::StatusOr<Codes> ReadCodes(const QuarkScheme& scheme, const std::string& key, int64_t rows,
                                int64_t columns, bool flat, ModuleTensors& tensors) {
  const QuarkSpec& spec = scheme.weight;
  const int bits = QuarkFormat(spec.dtype).bits;
  const int64_t stored = StoredElements(bits, columns);
  const Shape shape = flat ? Shape{stored} : Shape{rows, stored};
  GEMMD_ASSIGN_OR_RETURN(const TensorData data, tensors.Read(key, StoredTypes(spec), {shape}));
  Codes codes{rows, columns, std::vector<uint8_t>(static_cast<size_t>(rows * columns))};
  for (int64_t row = 0; row < rows; ++row) {
    const auto fields = absl::MakeSpan(codes.values).subspan(row * columns, columns);
    const int64_t first = row * stored;
    if (bits == 8) {
      std::memcpy(fields.data(), data.bytes.data() + first, fields.size());
    } else if (bits == 4) {
      UnpackWords(scheme.reordered ? kReordered : kNatural, data, first, fields);
    } else if (bits == 3) {
      UnpackThrees(data, first, fields);
    } else {
      GEMMD_RETURN_IF_ERROR(UnpackIntegers(tensors, key, data, first, fields));
    }
  }
  const int flip = IsUnsigned(spec) ? 0 : 1 << (bits - 1);  // two's complement
  for (uint8_t& code : codes.values) code ^= static_cast<uint8_t>(flip);
  return codes;
}

// N and K. Words of 4 bits may hold more columns than there are: with groups the scales tell N.
absl::StatusOr<LayerShape> IntegerShape(const QuarkSpec& spec, const ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo weight, tensors.Require(kWeight, 2));
  const int bits = QuarkFormat(spec.dtype).bits;
  if (bits == 3 && weight.shape[1] % 3 != 0) {
    return tensors.Bad(kWeight, absl::StrCat("expected three bytes for eight codes of 3 bits, got ",
                                             weight.Describe()));
  }
  const int64_t columns = bits == 4   ? weight.shape[1] * kPerWord
                          : bits == 3 ? weight.shape[1] / 3 * 8
                                      : weight.shape[1];
  if (!IsTransposed(spec)) return LayerShape{1, weight.shape[0], columns};
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo scales, tensors.Require(kScale, 2));
  return LayerShape{1, scales.shape[1], weight.shape[0]};
}

Buffer PackRows(const Codes& codes, bool transposed, const LayerShape& shape, int bits) {
  const int64_t row_bytes = BitRowBytes(shape.k, bits);
  Buffer out(static_cast<size_t>(shape.n * row_bytes));
  std::vector<uint8_t> row(static_cast<size_t>(shape.k));
  for (int64_t n = 0; n < shape.n; ++n) {
    for (int64_t k = 0; k < shape.k; ++k) row[k] = transposed ? codes.at(k, n) : codes.at(n, k);
    PackBitRow(row, bits, out.data() + n * row_bytes);
  }
  return out;
}

// The one zero point of a tensor is not packed: a number in an element of its own.
absl::StatusOr<std::vector<uint8_t>> ReadZeroPointOfTensor(const QuarkSpec& spec, int bits,
                                                           ModuleTensors& tensors) {
  const char* dtype = bits < 8 ? "I32" : IsUnsigned(spec) ? "U8" : "I8";
  GEMMD_ASSIGN_OR_RETURN(const TensorData data, tensors.Read(kZeroPoint, {dtype}, {{}, {1}}));
  const int64_t stored = bits < 8           ? data.at<int32_t>(0)
                         : IsUnsigned(spec) ? data.at<uint8_t>(0)
                                            : data.at<int8_t>(0);
  const int64_t zero_point = stored + (IsUnsigned(spec) ? 0 : 1 << (bits - 1));
  if (zero_point < 0 || zero_point >= 1 << bits) {
    return tensors.Bad(kZeroPoint,
                       absl::StrCat("expected a code of ", bits, " bits, got ", stored));
  }
  return std::vector<uint8_t>{static_cast<uint8_t>(zero_point)};
}

// Zero points in the order of the scales: [N, G], [N] or one.
absl::StatusOr<std::vector<uint8_t>> ZeroPoints(const QuarkScheme& scheme,
                                                const StandardTensor& tensor,
                                                ModuleTensors& tensors) {
  const QuarkSpec& spec = scheme.weight;
  const int64_t n = tensor.shape.n;
  const int64_t groups = tensor.scale_columns;
  if (spec.scheme == "per_tensor") {
    return ReadZeroPointOfTensor(spec, tensor.spec.weight.bits, tensors);
  }
  if (spec.scheme == "per_group" && !IsTransposed(spec)) {
    GEMMD_ASSIGN_OR_RETURN(Codes codes, ReadCodes(scheme, kZeroPoint, n, groups, false, tensors));
    return std::move(codes.values);
  }
  const bool in_groups = spec.scheme == "per_group";
  GEMMD_ASSIGN_OR_RETURN(
      const Codes codes,
      ReadCodes(scheme, kZeroPoint, in_groups ? groups : 1, n, !in_groups, tensors));
  std::vector<uint8_t> zero_points;
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t group = 0; group < codes.rows; ++group)
      zero_points.push_back(codes.at(group, row));
  }
  return zero_points;
}

// Symmetric weights may bring zero points too: then all are the middle.
absl::Status ReadZeroPoints(const QuarkScheme& scheme, ModuleTensors& tensors,
                            StandardTensor& tensor) {
  const QuarkSpec& spec = scheme.weight;
  if (spec.symmetric && tensors.Find(kZeroPoint) == nullptr) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(const std::vector<uint8_t> zero_points,
                         ZeroPoints(scheme, tensor, tensors));
  if (spec.symmetric) {
    const int middle = 1 << (tensor.spec.weight.bits - 1);
    for (size_t i = 0; i < zero_points.size(); ++i) {
      if (zero_points[i] == middle) continue;
      return tensors.Bad(kZeroPoint, absl::StrCat("element ", i,
                                                  ": expected 0 with symmetric "
                                                  "weights, got ",
                                                  zero_points[i] - middle));
    }
    return absl::OkStatus();
  }
  tensor.spec.zero_point = ZeroPointKind::kInteger;
  tensor.zero_points.resize(zero_points.size() * sizeof(int16_t));
  for (size_t i = 0; i < zero_points.size(); ++i) {
    const int16_t value = zero_points[i];
    std::memcpy(tensor.zero_points.data() + i * sizeof(value), &value, sizeof(value));
  }
  return absl::OkStatus();
}

absl::StatusOr<StandardTensor> ReadIntegers(const QuarkScheme& scheme, ModuleTensors& tensors) {
  const QuarkSpec& spec = scheme.weight;
  if (IsUnsigned(spec) && spec.symmetric) {
    return UnsupportedFormat(absl::StrCat("Quark symmetric ", spec.dtype, " is not read"));
  }
  if (spec.scheme == "per_block") {
    return UnsupportedFormat("Quark integers with qscheme per_block are not read");
  }
  StandardTensor tensor;
  GEMMD_ASSIGN_OR_RETURN(tensor.shape, IntegerShape(spec, tensors));
  tensor.spec.weight = QuarkFormat(spec.dtype);
  const auto [experts, n, k] = tensor.shape;
  const bool transposed = IsTransposed(spec);
  GEMMD_ASSIGN_OR_RETURN(const Codes codes, ReadCodes(scheme, kWeight, transposed ? k : n,
                                                      transposed ? n : k, false, tensors));
  tensor.codes = PackRows(codes, transposed, tensor.shape, tensor.spec.weight.bits);
  GEMMD_RETURN_IF_ERROR(ReadWeightScales(scheme, tensors, tensor));
  GEMMD_RETURN_IF_ERROR(ReadZeroPoints(scheme, tensors, tensor));
  return tensor;
}

// ---- activations ----

absl::Status ReadActivation(const QuarkScheme& scheme, ModuleTensors& tensors,
                            StandardTensor& tensor) {
  if (!scheme.input) return absl::OkStatus();
  const QuarkSpec& spec = *scheme.input;
  const NumberFormat format = QuarkFormat(spec.dtype);
  if (!format.present() || IsUnsigned(spec)) {
    return UnsupportedFormat(absl::StrCat("Quark input_tensors of ", spec.dtype, " are not read"));
  }
  if (!spec.dynamic && spec.scheme != "per_tensor") {
    return UnsupportedFormat(
        absl::StrCat("Quark static input_tensors ", spec.scheme, " are not read"));
  }
  const bool is_integer = format.kind == NumberKind::kInteger;
  const int64_t group = spec.scheme == "per_group" ? spec.group : 0;
  if (is_integer && !spec.symmetric) {
    const auto kind = !spec.dynamic ? ActivationScaleKind::kStaticTensor
                      : group > 0   ? ActivationScaleKind::kDynamicGroup
                                    : ActivationScaleKind::kDynamicToken;
    SetAsymmetricActivation(format, kind, group, tensor);
    if (spec.dynamic) return absl::OkStatus();
    return ReadStaticZeroPoint(tensors, ".input_scale", ".input_zero_point", tensor);
  }
  if (!spec.dynamic) {
    GEMMD_RETURN_IF_ERROR(RequireNoZeroPoint(tensors, ".input_zero_point"));
    return ReadStaticActivation(tensors, ".input_scale", format, tensor);
  }
  SetDynamicActivation(format, group, tensor);
  if (group == 0) return absl::OkStatus();
  if (scheme.input_below_factor) {
    return ReadActivationGlobalScale(tensors, ".input_scale_2", GlobalScale::kFactor, tensor);
  }
  if (spec.scale_format == "e8m0") SetGroupScaleType(kFloat8E8M0, tensor);
  return absl::OkStatus();
}

// ---- the module ----

absl::Status CheckAxis(const QuarkSpec& spec) {
  const bool fine = spec.axis == -2 || spec.scheme == "per_tensor" || spec.scheme == "per_block" ||
                    (spec.scheme == "per_channel" && spec.axis == 0) ||
                    (spec.scheme == "per_group" && (spec.axis == -1 || spec.axis == 1));
  if (fine) return absl::OkStatus();
  return UnsupportedFormat(
      absl::StrCat("Quark weights ", spec.scheme, " along ch_axis ", spec.axis, " are not read"));
}

absl::StatusOr<StandardTensor> ReadWeight(const QuarkScheme& scheme, ModuleTensors& tensors) {
  const NumberFormat format = QuarkFormat(scheme.weight.dtype);
  if (!format.present()) {
    return UnsupportedFormat(
        absl::StrCat("Quark weights of ", scheme.weight.dtype, " are not read"));
  }
  GEMMD_RETURN_IF_ERROR(CheckAxis(scheme.weight));
  return format.kind == NumberKind::kInteger ? ReadIntegers(scheme, tensors)
                                             : ReadFloats(scheme, tensors);
}

absl::StatusOr<StandardTensor> Read(const Json& config, const ReadingOptions&, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const std::optional<QuarkScheme> scheme,
                         QuarkSchemeOf(config, tensors.module()));
  GEMMD_RETURN_IF_ERROR(CheckAgreement(tensors, scheme.has_value(), tensors.Find(kScale) != nullptr,
                                       "tensor .weight_scale"));
  if (scheme->has_cache_scales) {
    tensors.Ignore(".output_scale");
    tensors.Ignore(".output_zero_point");
  }
  GEMMD_ASSIGN_OR_RETURN(StandardTensor tensor, ReadWeight(*scheme, tensors));
  GEMMD_RETURN_IF_ERROR(ReadActivation(*scheme, tensors, tensor));
  GEMMD_RETURN_IF_ERROR(ReadBias(tensors, ".bias", tensor));
  return tensor;
}

}  // namespace
}  // namespace quark

CheckpointReader QuarkReader() { return {"quark", {".weight_scale"}, &quark::Read}; }

}  // namespace gemmd

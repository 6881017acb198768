// What    compressed-tensors pack-quantized: weight_packed, weight_scale, weight_shape and, where
//         the config says so, weight_zero_point and weight_g_idx.
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/compressed_tensors.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/reader_parts.h"
#include "core/quant/bit_row.h"

namespace gemmd {
namespace {

constexpr char kPackedCodes[] = ".weight_packed";
constexpr char kZeroPoint[] = ".weight_zero_point";
constexpr char kGroupIndex[] = ".weight_g_idx";
constexpr int kDenseSince = 18;  // version 0.18 writes dense words for 3, 5, 6 and 7 bits

// How the codes of a row lie in its words: one bit stream, or 32 / bits codes to a word.
enum class Packing { kDense, kPadded };

int64_t WordsOf(Packing packing, int64_t count, int bits) {
  return packing == Packing::kDense ? CeilDivide(count * bits, 32) : CeilDivide(count, 32 / bits);
}

// Both packings have the same name in the config: the width tells, or else the version.
absl::StatusOr<Packing> PackingOf(const CompressedScheme& scheme, const ModuleTensors& tensors,
                                  int64_t words, int64_t k) {
  const bool dense = words == WordsOf(Packing::kDense, k, scheme.bits);
  const bool padded = words == WordsOf(Packing::kPadded, k, scheme.bits);
  if (32 % scheme.bits == 0 && dense) return Packing::kDense;  // they coincide
  if (dense && padded) {
    const std::optional<bool> is_dense = scheme.version.IsSince(kDenseSince);
    if (!is_dense) return scheme.version.CannotTell(kDenseSince, "how codes lie in the words of weight_packed");
    return *is_dense ? Packing::kDense : Packing::kPadded;
  }
  if (dense) return Packing::kDense;
  if (padded) return Packing::kPadded;
  return tensors.Bad(
      kPackedCodes,
      absl::StrCat("expected ", WordsOf(Packing::kDense, k, scheme.bits), " words for K ", k,
                   " and ", scheme.bits, " bits, got ", tensors.Find(kPackedCodes)->Describe()));
}

// The code at `index` of a stream whose words are `stride` apart.
uint8_t CodeAt(Packing packing, const TensorData& data, int64_t first_word, int64_t stride,
               int bits, int64_t index) {
  const auto word = [&](int64_t i) { return data.at<uint32_t>(first_word + i * stride); };
  const uint32_t mask = (1u << bits) - 1;
  if (packing == Packing::kPadded) {
    const int per_word = 32 / bits;
    return (word(index / per_word) >> (index % per_word * bits)) & mask;
  }
  const int64_t bit = index * bits;
  const int shift = static_cast<int>(bit % 32);
  uint64_t pair = word(bit / 32);
  if (shift + bits > 32) pair |= static_cast<uint64_t>(word(bit / 32 + 1)) << 32;
  return (pair >> shift) & mask;
}

Buffer DenseRows(const TensorData& packed, int bits, int64_t rows, int64_t k) {
  const int64_t row_words = packed.info.shape.back();
  const int64_t row_bytes = BitRowBytes(k, bits);
  Buffer codes(rows * row_bytes);
  std::vector<uint8_t> row_codes(k);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      row_codes[i] = CodeAt(Packing::kPadded, packed, row * row_words, 1, bits, i);
    }
    PackBitRow(row_codes, bits, codes.data() + row * row_bytes);
  }
  return codes;
}

// weight_shape holds [N, K] or [E, N, K]; the packed tensor must agree in all but the last extent.
absl::StatusOr<LayerShape> ReadShape(ModuleTensors& tensors, const TensorInfo& packed) {
  const auto rank = static_cast<int64_t>(packed.shape.size());
  GEMMD_ASSIGN_OR_RETURN(const TensorData data,
                         tensors.Read(".weight_shape", {"I64", "I32"}, {{rank}}));
  Shape shape;
  for (int64_t i = 0; i < rank; ++i) {
    shape.push_back(data.info.dtype == "I64" ? data.at<int64_t>(i) : data.at<int32_t>(i));
  }
  const int64_t k = shape.back();
  bool agrees = k >= 1 && k <= int64_t{1} << 40;
  for (int64_t i = 0; i + 1 < rank; ++i) agrees = agrees && shape[i] == packed.shape[i];
  if (!agrees) {
    return tensors.Bad(".weight_shape",
                       absl::StrCat("expected the rows of weight_packed ", packed.Describe(),
                                    ", got ", DescribeShape(shape)));
  }
  return LayerShape{rank == 3 ? shape[0] : 1, shape[rank - 2], k};
}

absl::Status ReadZeroPoints(const CompressedScheme& scheme, Packing packing, bool stacked,
                            ModuleTensors& tensors, StandardTensor& tensor) {
  if (scheme.symmetric) return absl::OkStatus();
  if (scheme.strategy != "group" && scheme.strategy != "channel") {
    return UnsupportedFormat(
        absl::StrCat("compressed-tensors pack-quantized zero points with strategy \"",
                     scheme.strategy, "\" are not read"));
  }
  const auto [experts, n, k] = tensor.shape;
  const int64_t groups = tensor.scale_columns;
  const int64_t words = WordsOf(packing, n, scheme.bits);
  Shape shape = {words, groups};
  if (stacked) shape.insert(shape.begin(), experts);
  GEMMD_ASSIGN_OR_RETURN(const TensorData data,
                         ReadShaped(tensors, kZeroPoint, {"I32"}, {shape}, DescribeScales(scheme)));
  tensor.spec.zero_point = ZeroPointKind::kInteger;
  tensor.zero_points.resize(experts * n * groups * sizeof(int16_t));
  for (int64_t i = 0; i < experts * n * groups; ++i) {
    const int64_t group = i % groups;
    const int64_t row = i / groups % n;
    const int64_t expert = i / groups / n;
    const int16_t value =
        CodeAt(packing, data, expert * words * groups + group, groups, scheme.bits, row);
    std::memcpy(tensor.zero_points.data() + i * sizeof(value), &value, sizeof(value));
  }
  return absl::OkStatus();
}

absl::Status ReadGroupIndex(const CompressedScheme& scheme, bool stacked, ModuleTensors& tensors,
                            StandardTensor& tensor) {
  if (!scheme.activation_order) return absl::OkStatus();
  if (scheme.strategy != "group") return tensors.Bad("actorder needs strategy group");
  const auto [experts, n, k] = tensor.shape;
  GEMMD_ASSIGN_OR_RETURN(TensorData index, tensors.Read(kGroupIndex, {"I32"},
                                                        {stacked ? Shape{experts, k} : Shape{k}}));
  for (int64_t i = 0; i < experts * k; ++i) {
    const int32_t group = index.at<int32_t>(i);
    if (group < 0 || group >= tensor.scale_columns) {
      return tensors.Bad(kGroupIndex, absl::StrCat("element ", i, ": expected 0 to ",
                                                   tensor.scale_columns - 1, ", got ", group));
    }
  }
  tensor.spec.has_group_index = true;
  tensor.group_index = std::move(index.bytes);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StandardTensor> ReadPackedIntegers(const CompressedScheme& scheme,
                                                  ModuleTensors& tensors) {
  const TensorInfo* stored = tensors.Find(kPackedCodes);
  const bool stacked = stored != nullptr && stored->shape.size() == 3;
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo info, tensors.Require(kPackedCodes, stacked ? 3 : 2));
  StandardTensor tensor;
  GEMMD_ASSIGN_OR_RETURN(tensor.shape, ReadShape(tensors, info));
  const auto [experts, n, k] = tensor.shape;
  tensor.spec.weight = IntegerFormat(scheme.bits);
  GEMMD_ASSIGN_OR_RETURN(const Packing packing, PackingOf(scheme, tensors, info.shape.back(), k));
  GEMMD_ASSIGN_OR_RETURN(TensorData packed, tensors.Read(kPackedCodes, {"I32"}, {info.shape}));
  GEMMD_ASSIGN_OR_RETURN(const std::vector<Shape> shapes,
                         ScaleShapes(scheme, tensors, stacked, tensor));
  GEMMD_ASSIGN_OR_RETURN(
      TensorData scales,
      ReadScales(tensors, ".weight_scale", {"F16", "BF16", "F32"}, shapes, ScaleSign::kAny,
                 DescribeScales(scheme)));
  tensor.spec.scale = FormatOfDtype(scales.info.dtype);
  tensor.scales = std::move(scales.bytes);
  tensor.codes = packing == Packing::kDense ? std::move(packed.bytes)
                                            : DenseRows(packed, scheme.bits, experts * n, k);
  GEMMD_RETURN_IF_ERROR(ReadZeroPoints(scheme, packing, stacked, tensors, tensor));
  GEMMD_RETURN_IF_ERROR(ReadGroupIndex(scheme, stacked, tensors, tensor));
  return tensor;
}

}  // namespace gemmd

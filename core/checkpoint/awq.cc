// What    AWQ with 4 bits. gemm: qweight [K, N/8], qzeros, scales, bias. gemv: qweight [N, K/8].
// Source  AutoAWQ (https://github.com/casper-hansen/AutoAWQ); layout: README.md.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_rules.h"
#include "core/checkpoint/reader.h"
#include "core/checkpoint/reader_parts.h"
#include "core/quant/bit_row.h"

namespace gemmd {
namespace awq {
namespace {

constexpr int kBits = 4;
constexpr int64_t kPerWord = 8;
// Nibble p of a word (LSB first) holds output channel kOrder[p] of its eight.
constexpr std::array<int, kPerWord> kOrder = {0, 2, 4, 6, 1, 3, 5, 7};

struct AwqScheme {
  int64_t group_size = 0;  // 0 = all K
  bool zero_point = true;
  bool gemv = false;
};

absl::StatusOr<AwqScheme> ParseScheme(const Json& config) {
  AwqScheme scheme;
  GEMMD_ASSIGN_OR_RETURN(const int64_t bits, IntegerField(config, {"bits", "w_bit"}, kBits));
  GEMMD_ASSIGN_OR_RETURN(const int64_t group_size,
                         GroupSizeField(config, {"group_size", "q_group_size"}, 128));
  GEMMD_ASSIGN_OR_RETURN(const std::string version,
                         NameField(config, {"version", "format"}, "gemm"));
  GEMMD_ASSIGN_OR_RETURN(scheme.zero_point, BoolField(config, {"zero_point"}, true));
  scheme.gemv = version == "gemv";
  if (bits != kBits || (version != "gemm" && !scheme.gemv)) {
    return UnsupportedFormat(absl::StrCat("AWQ version \"", version, "\" with bits ", bits,
                                          " is not read: gemm and gemv with 4 bits are"));
  }
  scheme.group_size = std::max<int64_t>(group_size, 0);
  return scheme;
}

// What the shapes of scales and zero points follow from.
std::string ConfigSays(const AwqScheme& scheme) {
  return absl::StrCat("bits ", kBits, ", group_size ", scheme.group_size == 0 ? -1 : scheme.group_size);
}

// Calls visit(row, column, nibble) for the packed matrix of `rows` rows, in output-channel order,
// eight channels at a time.
template <typename Visit>
void ForEachNibble(const TensorData& packed, int64_t word_column, int64_t rows, Visit visit) {
  const int64_t row_words = packed.info.shape[1];
  for (int64_t row = 0; row < rows; ++row) {
    const uint32_t word = packed.at<uint32_t>(row * row_words + word_column);
    for (int p = 0; p < kPerWord; ++p) visit(row, kOrder[p], (word >> (kBits * p)) & 15);
  }
}

Buffer RepackCodes(const TensorData& packed, int64_t n, int64_t k) {
  const int64_t row_bytes = BitRowBytes(k, kBits);
  Buffer codes(n * row_bytes);
  std::vector<uint8_t> rows(kPerWord * k);
  for (int64_t column = 0; column < n / kPerWord; ++column) {
    ForEachNibble(packed, column, k, [&](int64_t row, int channel, uint32_t nibble) {
      rows[channel * k + row] = static_cast<uint8_t>(nibble);
    });
    for (int64_t channel = 0; channel < kPerWord; ++channel) {
      PackBitRow(absl::MakeConstSpan(rows).subspan(channel * k, k), kBits,
                 codes.data() + (column * kPerWord + channel) * row_bytes);
    }
  }
  return codes;
}

Buffer UnpackZeroPoints(const TensorData& packed, int64_t n, int64_t groups) {
  Buffer zero_points(n * groups * sizeof(int16_t));
  for (int64_t column = 0; column < n / kPerWord; ++column) {
    ForEachNibble(packed, column, groups, [&](int64_t group, int channel, uint32_t nibble) {
      const auto value = static_cast<int16_t>(nibble);
      const int64_t index = (column * kPerWord + channel) * groups + group;
      std::memcpy(zero_points.data() + index * sizeof(value), &value, sizeof(value));
    });
  }
  return zero_points;
}

// Words of zero points per row of gemv: 8 to a word, padded to a multiple that the group size gives.
absl::StatusOr<int64_t> GemvZeroWords(int64_t group_size, int64_t groups) {
  const int64_t unit = group_size >= 128 ? 1 : group_size == 64 ? 2 : group_size == 32 ? 4 : 0;
  if (unit == 0) {
    return UnsupportedFormat(absl::StrCat("AWQ version \"gemv\" with group_size ", group_size,
                                          " is not read: 32, 64, 128 and more are"));
  }
  return CeilDivide(CeilDivide(groups, kPerWord), unit) * unit;
}

// The first `columns` of each row of `row_columns` elements of `element_bytes`.
Buffer CropRows(const Buffer& bytes, int64_t row_columns, int64_t columns, int64_t element_bytes) {
  const int64_t rows = static_cast<int64_t>(bytes.size()) / (row_columns * element_bytes);
  Buffer out(rows * columns * element_bytes);
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(out.data() + row * columns * element_bytes,
                bytes.data() + row * row_columns * element_bytes, columns * element_bytes);
  }
  return out;
}

// qweight [N, K/8] in natural order along K, which is the order of our codes; scales [N, words * 8]
// and qzeros [N, words].
absl::StatusOr<StandardTensor> ReadGemv(const AwqScheme& scheme, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo info, tensors.Require(".qweight", 2));
  StandardTensor tensor;
  tensor.shape = {1, info.shape[0], info.shape[1] * kPerWord};
  const auto [experts, n, k] = tensor.shape;
  const int64_t group_size = scheme.group_size == 0 ? k : scheme.group_size;
  if (k % group_size != 0) {
    return tensors.Bad(
        ".qweight", absl::StrCat("K is ", k, ", expected a multiple of group_size ", group_size));
  }
  const int64_t groups = tensor.scale_columns = k / group_size;
  GEMMD_ASSIGN_OR_RETURN(const int64_t words, GemvZeroWords(group_size, groups));
  GEMMD_ASSIGN_OR_RETURN(TensorData packed, tensors.Read(".qweight", {"I32"}, {info.shape}));
  tensor.spec.weight = IntegerFormat(kBits);
  tensor.spec.scale_block_k = scheme.group_size;
  tensor.codes = std::move(packed.bytes);
  // The padding of the scales is 0, so only their types and shape are checked before they are cut.
  GEMMD_ASSIGN_OR_RETURN(TensorData scales,
                         ReadShaped(tensors, ".scales", {"F16", "BF16", "F32"}, {{n, words * kPerWord}},
                                    ConfigSays(scheme)));
  tensor.spec.scale = FormatOfDtype(scales.info.dtype);
  scales.bytes = CropRows(scales.bytes, words * kPerWord, groups, tensor.spec.scale.bits / 8);
  GEMMD_RETURN_IF_ERROR(CheckScales(tensors, ".scales", scales, ScaleSign::kAny));
  tensor.scales = std::move(scales.bytes);
  GEMMD_ASSIGN_OR_RETURN(const TensorData zeros,
                         ReadShaped(tensors, ".qzeros", {"I32"}, {{n, words}}, ConfigSays(scheme)));
  tensor.spec.zero_point = ZeroPointKind::kInteger;
  tensor.zero_points.resize(n * groups * sizeof(int16_t));
  for (int64_t i = 0; i < n * groups; ++i) {
    const int64_t group = i % groups;
    const uint32_t word = zeros.at<uint32_t>(i / groups * words + group / kPerWord);
    const auto value = static_cast<int16_t>((word >> (kBits * (group % kPerWord))) & 15);
    std::memcpy(tensor.zero_points.data() + i * sizeof(value), &value, sizeof(value));
  }
  GEMMD_RETURN_IF_ERROR(ReadBias(tensors, ".bias", tensor));
  return tensor;
}

absl::StatusOr<StandardTensor> ReadLinear(const AwqScheme& scheme, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo info, tensors.Require(".qweight", 2));
  StandardTensor tensor;
  tensor.shape = {1, info.shape[1] * kPerWord, info.shape[0]};
  const auto [experts, n, k] = tensor.shape;
  if (scheme.group_size > 0 && k % scheme.group_size != 0) {
    return tensors.Bad(".qweight", absl::StrCat("K is ", k, ", expected a multiple of group_size ",
                                                scheme.group_size));
  }
  tensor.spec.weight = IntegerFormat(kBits);
  tensor.spec.scale_block_k = scheme.group_size;
  const int64_t groups = tensor.scale_columns = tensor.spec.ScaleColumns(k);
  GEMMD_ASSIGN_OR_RETURN(const TensorData packed, tensors.Read(".qweight", {"I32"}, {info.shape}));
  tensor.codes = RepackCodes(packed, n, k);
  GEMMD_ASSIGN_OR_RETURN(
      const TensorData scales,
      ReadScales(tensors, ".scales", {"F16", "BF16", "F32"}, {{groups, n}}, ScaleSign::kAny, ConfigSays(scheme)));
  tensor.spec.scale = FormatOfDtype(scales.info.dtype);
  tensor.scales = Transpose(scales.bytes, groups, n, tensor.spec.scale.bits / 8);
  // zero_point false may still come with zero points, all 8; without any they are implied.
  if (scheme.zero_point || tensors.Find(".qzeros") != nullptr) {
    GEMMD_ASSIGN_OR_RETURN(const TensorData zeros,
                           ReadShaped(tensors, ".qzeros", {"I32"}, {{groups, n / kPerWord}}, ConfigSays(scheme)));
    tensor.spec.zero_point = ZeroPointKind::kInteger;
    tensor.zero_points = UnpackZeroPoints(zeros, n, groups);
  }
  GEMMD_RETURN_IF_ERROR(ReadBias(tensors, ".bias", tensor));
  return tensor;
}

// AutoAWQ and vLLM skip a module whose name contains an entry, transformers one that begins or ends
// with it. A quantized module is refused only where both say skip.
absl::StatusOr<bool> IsSkipped(const Json& config, const ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<std::string> entries,
                         StringsField(config, {"modules_to_not_convert"}));
  if (tensors.Find(".qweight") != nullptr) return SkippedByPatterns(entries, tensors.module());
  for (const std::string& entry : entries) {
    if (absl::StrContains(tensors.module(), entry)) return true;
  }
  return SkippedByPatterns(entries, tensors.module());
}

absl::StatusOr<StandardTensor> Read(const Json& config, const ReadingOptions&, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const bool skipped, IsSkipped(config, tensors));
  GEMMD_RETURN_IF_ERROR(
      CheckAgreement(tensors, !skipped, tensors.Find(".qweight") != nullptr, "tensor .qweight"));
  GEMMD_ASSIGN_OR_RETURN(const AwqScheme scheme, ParseScheme(config));
  return scheme.gemv ? ReadGemv(scheme, tensors) : ReadLinear(scheme, tensors);
}

}  // namespace
}  // namespace awq

CheckpointReader AwqReader() { return {"awq", {".qweight", ".qzeros", ".scales"}, &awq::Read}; }

}  // namespace gemmd

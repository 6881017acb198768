// What    AWQ, version gemm: qweight [K, N/8], qzeros, scales, bias; 4 bits.
// Source  AutoAWQ (https://github.com/casper-hansen/AutoAWQ); layout: README.md.
#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_rules.h"
#include "core/checkpoint/reader.h"
#include "core/checkpoint/reader_parts.h"
#include "core/quant/bit_row.h"

namespace gemmd {
namespace {

constexpr int kBits = 4;
constexpr int64_t kPerWord = 8;
// Nibble p of a word (LSB first) holds output channel kOrder[p] of its eight.
constexpr std::array<int, kPerWord> kOrder = {0, 2, 4, 6, 1, 3, 5, 7};

struct AwqScheme {
  int64_t group_size = 0;  // 0 = all K
  bool zero_point = true;
};

absl::StatusOr<AwqScheme> ParseScheme(const Json& config) {
  AwqScheme scheme;
  GEMMD_ASSIGN_OR_RETURN(const int64_t bits, IntegerField(config, {"bits", "w_bit"}, kBits));
  GEMMD_ASSIGN_OR_RETURN(const int64_t group_size,
                         IntegerField(config, {"group_size", "q_group_size"}, 128));
  GEMMD_ASSIGN_OR_RETURN(const std::string version,
                         NameField(config, {"version", "format"}, "gemm"));
  GEMMD_ASSIGN_OR_RETURN(scheme.zero_point, BoolField(config, {"zero_point"}, true));
  if (bits != kBits || version != "gemm") {
    return UnsupportedFormat(absl::StrCat("AWQ version \"", version, "\" with bits ", bits,
                                          " is not read: gemm with 4 bits is"));
  }
  if (group_size < -1 || group_size == 0) {
    return BadCheckpoint(
        absl::StrCat("group_size ", group_size, ", expected -1 or a positive number"));
  }
  scheme.group_size = std::max<int64_t>(group_size, 0);
  return scheme;
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
      ReadScales(tensors, ".scales", {"F16", "BF16", "F32"}, {{groups, n}}, ScaleSign::kAny));
  tensor.spec.scale = FormatOfDtype(scales.info.dtype);
  tensor.scales = Transpose(scales.bytes, groups, n, tensor.spec.scale.bits / 8);
  // zero_point false may still come with zero points, all 8; without any they are implied.
  if (scheme.zero_point || tensors.Find(".qzeros") != nullptr) {
    GEMMD_ASSIGN_OR_RETURN(const TensorData zeros,
                           tensors.Read(".qzeros", {"I32"}, {{groups, n / kPerWord}}));
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

absl::StatusOr<StandardTensor> Read(const Json& config, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const bool skipped, IsSkipped(config, tensors));
  GEMMD_RETURN_IF_ERROR(
      CheckAgreement(tensors, !skipped, tensors.Find(".qweight") != nullptr, "tensor .qweight"));
  GEMMD_ASSIGN_OR_RETURN(const AwqScheme scheme, ParseScheme(config));
  return ReadLinear(scheme, tensors);
}

}  // namespace

CheckpointReader AwqReader() { return {"awq", {".qweight"}, &Read}; }

}  // namespace gemmd

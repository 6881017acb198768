// What    GPTQ: qweight, qzeros, scales, g_idx, bias.
// Source  AutoGPTQ and GPTQModel (https://github.com/ModelCloud/GPTQModel); layouts: README.md.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_rules.h"
#include "core/checkpoint/reader.h"
#include "core/checkpoint/reader_parts.h"
#include "core/quant/bit_row.h"

namespace gemmd {
namespace gptq {
namespace {

constexpr int64_t kPlaneCodes = 32;  // codes per unit of the planar layout

struct GptqScheme {
  int bits = 4;
  int64_t group_size = 0;  // 0 = all K
  bool activation_order = false;
  bool symmetric = false;
  bool zeros_minus_one = false;  // version 1: zero points are stored minus one
  bool zeros_by_field = false;   // and one is added to each of them alone
  bool planar = false;
};

absl::StatusOr<GptqScheme> ParseScheme(const Json& config, const ReadingOptions& options) {
  GptqScheme scheme;
  // With one group for all K no shape would tell a wrong default.
  if (FindField(config, {"bits"}) == nullptr) return WrongField("bits", "an integer", nullptr);
  GEMMD_ASSIGN_OR_RETURN(const int64_t bits, IntegerField(config, {"bits"}, 0));
  GEMMD_ASSIGN_OR_RETURN(const std::string format,
                         NameField(config, {"checkpoint_format", "format"}, "gptq"));
  GEMMD_ASSIGN_OR_RETURN(const std::string pack_dtype, NameField(config, {"pack_dtype"}, "int32"));
  GEMMD_ASSIGN_OR_RETURN(const bool is_marlin, BoolField(config, {"is_marlin_format"}, false));
  GEMMD_ASSIGN_OR_RETURN(const int64_t group_size,
                         GroupSizeField(config, {"group_size"}, -1));
  GEMMD_ASSIGN_OR_RETURN(scheme.activation_order, BoolField(config, {"desc_act"}, false));
  GEMMD_ASSIGN_OR_RETURN(scheme.symmetric, BoolField(config, {"sym"}, false));
  if (is_marlin || (format != "gptq" && format != "gptq_v2" && format != "gptq_p")) {
    return UnsupportedFormat(absl::StrCat("GPTQ checkpoint_format \"",
                                          is_marlin ? "marlin" : format,
                                          "\" is not read: gptq, gptq_v2 and gptq_p are"));
  }
  if (pack_dtype != "int32") {
    return UnsupportedFormat(
        absl::StrCat("GPTQ pack_dtype \"", pack_dtype, "\" is not read: int32 is"));
  }
  scheme.planar = format == "gptq_p";
  scheme.zeros_minus_one = format == "gptq";
  const bool is_continuous = bits == 2 || bits == 3 || bits == 4 || bits == 8;
  if (!is_continuous && !(scheme.planar && bits >= 5 && bits <= 7)) {
    return UnsupportedFormat(
        absl::StrCat("GPTQ with bits ", bits, " and checkpoint_format \"", format,
                     "\" is not read: 2, 3, 4, 8, and with gptq_p 5 to 7 are"));
  }
  scheme.bits = static_cast<int>(bits);
  scheme.zeros_by_field = bits == 3 || options.gptq_zero_points == GptqZeroPoints::kFieldMasked;
  scheme.group_size = std::max<int64_t>(group_size, 0);
  return scheme;
}

// What the shapes of the tensors follow from.
std::string ConfigSays(const GptqScheme& scheme) {
  return absl::StrCat("bits ", scheme.bits, ", group_size ", scheme.group_size == 0 ? -1 : scheme.group_size);
}

// The planes of the planar layout, low bits first; 2, 4 and 8 bits are one plane.
std::vector<int> PlanesOf(int bits) {
  std::vector<int> planes;
  for (const int width : {8, 4, 2, 1}) {
    if ((bits & width) != 0) planes.push_back(width);
  }
  return planes;
}

// Turns a stream of planar units (32 codes: the words of each plane in turn, LSB first) into a
// dense one.
void PlanarToDense(int bits, uint32_t* words, int64_t word_count) {
  const std::vector<int> planes = PlanesOf(bits);
  for (int64_t unit = 0; unit + bits <= word_count; unit += bits) {
    uint8_t codes[kPlaneCodes] = {};
    int low_bit = 0;
    int64_t first_word = unit;
    for (const int width : planes) {
      const int per_word = 32 / width;
      for (int i = 0; i < kPlaneCodes; ++i) {
        const uint32_t field =
            (words[first_word + i / per_word] >> (i % per_word * width)) & ((1u << width) - 1);
        codes[i] |= static_cast<uint8_t>(field << low_bit);
      }
      low_bit += width;
      first_word += width;
    }
    PackBitRow(codes, bits, reinterpret_cast<std::byte*>(words + unit));
  }
}

void PlanarToDense(int bits, Buffer& rows, int64_t row_words) {
  std::vector<uint32_t> words(row_words);
  for (size_t offset = 0; offset < rows.size(); offset += row_words * 4) {
    std::memcpy(words.data(), rows.data() + offset, row_words * 4);
    PlanarToDense(bits, words.data(), row_words);
    std::memcpy(rows.data() + offset, words.data(), row_words * 4);
  }
}

// K and N from the shapes of qweight and scales.
absl::StatusOr<LayerShape> ShapeOf(const GptqScheme& scheme, const ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo info, tensors.Require(".qweight", 2));
  const auto [rows, n] = std::pair(info.shape[0], info.shape[1]);
  if (rows * 32 % scheme.bits != 0) {
    return tensors.Bad(".qweight", absl::StrCat("expected rows that hold whole codes of ",
                                                scheme.bits, " bits, got ", info.Describe()));
  }
  const LayerShape shape{1, n, rows * 32 / scheme.bits};
  const int64_t unit =
      scheme.bits == 2 || scheme.bits == 4 || scheme.bits == 8 ? 32 / scheme.bits : 32;
  if (n % unit != 0 || shape.k % unit != 0) {
    return tensors.Bad(".qweight",
                       absl::StrCat("N ", n, " and K ", shape.k, ", expected multiples of ", unit,
                                    " with ", scheme.bits, " bits"));
  }
  return shape;
}

absl::Status ReadCodes(const GptqScheme& scheme, ModuleTensors& tensors, StandardTensor& tensor) {
  const int64_t row_words = tensor.spec.RowWords(tensor.shape.k);
  GEMMD_ASSIGN_OR_RETURN(const TensorData packed,
                         tensors.Read(".qweight", {"I32"}, {{row_words, tensor.shape.n}}));
  tensor.codes = Transpose(packed.bytes, row_words, tensor.shape.n, 4);
  if (scheme.planar) PlanarToDense(scheme.bits, tensor.codes, row_words);
  return absl::OkStatus();
}

// Stored fields -> zero points of version 1, whole words at a time. Writers subtract the constant that has a 1 in every
// field from the whole word, so a zero point of 0 borrows from the next field: only the same addition undoes it.
void AddOneToWords(int bits, Buffer& row) {
  uint32_t constant = 0;
  for (int shift = 0; shift < 32; shift += bits) constant |= 1u << shift;
  for (size_t offset = 0; offset < row.size(); offset += 4) {
    uint32_t word;
    std::memcpy(&word, row.data() + offset, 4);
    word += constant;
    std::memcpy(row.data() + offset, &word, 4);
  }
}

// The same of fields taken one by one, as those of 3 bits are written, which cross words.
void AddOneToFields(int bits, std::vector<uint8_t>& fields) {
  const int largest = (1 << bits) - 1;
  for (uint8_t& field : fields) field = static_cast<uint8_t>((field + 1) & largest);
}

// Zero points [G, N], one byte each, as the fields say (`add_one` false) or plus one.
std::vector<uint8_t> UnpackZeroPoints(const GptqScheme& scheme, const TensorData& packed,
                                      int64_t groups, int64_t n, bool add_one) {
  std::vector<uint8_t> zero_points(groups * n);
  const int64_t row_bytes = BitRowBytes(n, scheme.bits);
  for (int64_t group = 0; group < groups; ++group) {
    Buffer row(packed.bytes.begin() + group * row_bytes,
               packed.bytes.begin() + (group + 1) * row_bytes);
    if (scheme.planar) PlanarToDense(scheme.bits, row, row_bytes / 4);
    if (add_one && !scheme.zeros_by_field) AddOneToWords(scheme.bits, row);
    UnpackBitRow(row.data(), scheme.bits, absl::MakeSpan(zero_points).subspan(group * n, n));
  }
  if (add_one && scheme.zeros_by_field) AddOneToFields(scheme.bits, zero_points);
  return zero_points;
}

// Symmetric weights have one zero point, 2^(bits-1). Files whose config names the wrong version
// exist, so both ways of storing it are accepted, but nothing else.
absl::Status CheckSymmetric(const GptqScheme& scheme, const ModuleTensors& tensors,
                            const std::vector<uint8_t>& stored) {
  const int middle = 1 << (scheme.bits - 1);
  const uint8_t first = stored.front();
  const bool known = first == middle || (!scheme.planar && first == middle - 1);
  const auto other =
      std::find_if(stored.begin(), stored.end(), [&](uint8_t z) { return z != first; });
  if (known && other == stored.end()) return absl::OkStatus();
  return tensors.Bad(".qzeros",
                     absl::StrCat("expected ", middle - 1, " or ", middle,
                                  " everywhere with sym true, got ", known ? *other : first));
}

absl::Status ReadZeroPoints(const GptqScheme& scheme, ModuleTensors& tensors,
                            StandardTensor& tensor) {
  if (tensors.Find(".qzeros") == nullptr && scheme.symmetric) return absl::OkStatus();
  const int64_t groups = tensor.scale_columns;
  const int64_t n = tensor.shape.n;
  GEMMD_ASSIGN_OR_RETURN(const TensorData packed, ReadShaped(tensors, ".qzeros", {"I32"},
                                                             {{groups, n * scheme.bits / 32}}, ConfigSays(scheme)));
  if (scheme.symmetric) {
    return CheckSymmetric(scheme, tensors, UnpackZeroPoints(scheme, packed, groups, n, false));
  }
  const std::vector<uint8_t> zero_points =
      UnpackZeroPoints(scheme, packed, groups, n, scheme.zeros_minus_one);
  Buffer wide(zero_points.size() * sizeof(int16_t));
  for (size_t i = 0; i < zero_points.size(); ++i) {
    const int16_t value = zero_points[i];
    std::memcpy(wide.data() + i * sizeof(value), &value, sizeof(value));
  }
  tensor.spec.zero_point = ZeroPointKind::kInteger;
  tensor.zero_points = Transpose(wide, groups, n, sizeof(int16_t));
  return absl::OkStatus();
}

absl::Status ReadGroups(const GptqScheme& scheme, ModuleTensors& tensors, StandardTensor& tensor) {
  const int64_t k = tensor.shape.k;
  if (tensors.Find(".g_idx") == nullptr) {
    if (!scheme.activation_order) return absl::OkStatus();
    return tensors.Bad(".g_idx", "missing, expected with desc_act true");
  }
  GEMMD_ASSIGN_OR_RETURN(TensorData index, ReadShaped(tensors, ".g_idx", {"I32"}, {{k}}, ConfigSays(scheme)));
  const int64_t group_size = scheme.group_size == 0 ? k : scheme.group_size;
  bool is_plain = true;
  for (int64_t i = 0; i < k; ++i) {
    const int32_t group = index.at<int32_t>(i);
    if (group < 0 || group >= tensor.scale_columns) {
      return tensors.Bad(".g_idx", absl::StrCat("element ", i, ": expected 0 to ",
                                                tensor.scale_columns - 1, ", got ", group));
    }
    is_plain = is_plain && group == i / group_size;
  }
  if (is_plain) return absl::OkStatus();
  tensor.spec.has_group_index = true;
  tensor.group_index = std::move(index.bytes);
  return absl::OkStatus();
}

absl::StatusOr<StandardTensor> ReadLinear(const GptqScheme& scheme, ModuleTensors& tensors) {
  StandardTensor tensor;
  GEMMD_ASSIGN_OR_RETURN(tensor.shape, ShapeOf(scheme, tensors));
  tensor.spec.weight = IntegerFormat(scheme.bits);
  tensor.spec.scale_block_k = scheme.group_size;
  tensor.scale_columns = tensor.spec.ScaleColumns(tensor.shape.k);
  GEMMD_RETURN_IF_ERROR(ReadCodes(scheme, tensors, tensor));
  GEMMD_ASSIGN_OR_RETURN(const TensorData scales,
                         ReadScales(tensors, ".scales", {"F16", "BF16", "F32"},
                                    {{tensor.scale_columns, tensor.shape.n}}, ScaleSign::kAny,
                                    ConfigSays(scheme)));
  tensor.spec.scale = FormatOfDtype(scales.info.dtype);
  tensor.scales =
      Transpose(scales.bytes, tensor.scale_columns, tensor.shape.n, tensor.spec.scale.bits / 8);
  GEMMD_RETURN_IF_ERROR(ReadZeroPoints(scheme, tensors, tensor));
  GEMMD_RETURN_IF_ERROR(ReadGroups(scheme, tensors, tensor));
  GEMMD_RETURN_IF_ERROR(ReadBias(tensors, ".bias", tensor));
  return tensor;
}

// The key of "dynamic" whose overrides ApplyDynamic takes for `module`; empty: none.
std::string OverridesOf(const Json& config, const std::string& module) {
  const Json* dynamic = FindField(config, {"dynamic"});
  if (dynamic == nullptr) return "";
  for (const auto& [key, overrides] : dynamic->items()) {
    absl::string_view pattern = key;
    absl::ConsumePrefix(&pattern, "+:");
    if (PythonMatch(std::string(pattern), module).value_or(false)) return key;
  }
  return "";
}

// The scheme of `own_config`, which is `config` with the overrides for `module`. An error that these make names their key.
absl::StatusOr<GptqScheme> SchemeOf(const Json& config, const Json& own_config, const ReadingOptions& options,
                                    const std::string& module) {
  const absl::StatusOr<GptqScheme> scheme = ParseScheme(own_config, options);
  if (scheme.ok()) return scheme;
  const std::string key = OverridesOf(config, module);
  if (key.empty() || ParseScheme(config, options).status() == scheme.status()) return scheme;
  return Annotate(scheme.status(), absl::StrCat("\"dynamic.", key, "\""));
}

absl::StatusOr<StandardTensor> Read(const Json& config, const ReadingOptions& options, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const std::optional<Json> own_config,
                         ApplyDynamic(config, tensors.module()));
  GEMMD_ASSIGN_OR_RETURN(const bool lm_head, BoolField(config, {"lm_head"}, false));
  const bool config_says = own_config.has_value() && (lm_head || tensors.module() != "lm_head");
  GEMMD_RETURN_IF_ERROR(
      CheckAgreement(tensors, config_says, tensors.Find(".qweight") != nullptr, "tensor .qweight",
                     own_config.has_value() ? "\"lm_head\" is not true" : "\"dynamic\" leaves it out"));
  GEMMD_ASSIGN_OR_RETURN(const GptqScheme scheme, SchemeOf(config, *own_config, options, tensors.module()));
  return ReadLinear(scheme, tensors);
}

// What plus one becomes of the largest number, here and elsewhere.
std::string HowTheyWrap(const GptqScheme& scheme) {
  const std::string others = absl::StrCat("; some programs read them as ", 1 << scheme.bits);
  if (scheme.bits == 3) return absl::StrCat("they wrap to 0", others);
  if (scheme.zeros_by_field) {
    return absl::StrCat("they wrap to 0, each alone (field-masked)", others,
                        ", or with a carry into the next of their word (word)");
  }
  return absl::StrCat("they wrap to 0, with a carry into the next of their word (word)", others,
                      ", or without the carry (field-masked)");
}

// Symmetric zero points as the version that the config does not name stores them. They are the same by either; programs
// that believe the config are one off.
absl::StatusOr<std::string> NoteOfVersion(const GptqScheme& scheme, const ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const TensorData row, tensors.ReadFirstRow(".qzeros"));
  if (row.info.dtype != "I32") return "";
  const int middle = 1 << (scheme.bits - 1);
  const int stored = static_cast<int>(row.at<uint32_t>(0) & ((1u << scheme.bits) - 1));
  const int named = scheme.zeros_minus_one ? 1 : 2;
  const int other = scheme.zeros_minus_one ? middle : middle - 1;
  if (scheme.planar || stored != other) return "";
  return absl::StrCat("tensor ", tensors.module(), ".qzeros: the config names version ", named,
                      " of GPTQ, and zero points of ", middle, " are stored as ", stored, ", as version ", 3 - named,
                      " has them; some programs read them as ", scheme.zeros_minus_one ? stored + 1 : stored);
}

// Zero points of version 1 that hold the largest number. Plus one they are 0 and carry into the next of their word, as
// the writers that borrow from it need it; readers that take each field alone have 0 or 2^bits, and no carry.
absl::StatusOr<std::string> NoteOfWrapping(const GptqScheme& scheme, ModuleTensors& tensors) {
  if (!scheme.zeros_minus_one) return "";
  GEMMD_ASSIGN_OR_RETURN(const LayerShape shape, ShapeOf(scheme, tensors));
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo info, tensors.Require(".qzeros", 2));
  const int64_t groups = info.shape[0];
  GEMMD_ASSIGN_OR_RETURN(const TensorData packed,
                         tensors.Read(".qzeros", {"I32"}, {{groups, shape.n * scheme.bits / 32}}));
  const std::vector<uint8_t> stored = UnpackZeroPoints(scheme, packed, groups, shape.n, false);
  const int largest = (1 << scheme.bits) - 1;
  const auto wrapping = std::count(stored.begin(), stored.end(), largest);
  if (wrapping == 0) return "";
  return absl::StrCat("tensor ", tensors.module(), ".qzeros: ", wrapping, " of ", stored.size(),
                      " zero points are stored as ", largest, ", and plus one ", HowTheyWrap(scheme));
}

absl::StatusOr<std::string> Note(const Json& config, const ReadingOptions& options, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const std::optional<Json> own_config, ApplyDynamic(config, tensors.module()));
  if (!own_config || tensors.Find(".qzeros") == nullptr) return "";
  GEMMD_ASSIGN_OR_RETURN(const GptqScheme scheme, ParseScheme(*own_config, options));
  return scheme.symmetric ? NoteOfVersion(scheme, tensors) : NoteOfWrapping(scheme, tensors);
}

}  // namespace
}  // namespace gptq

CheckpointReader GptqReader() {
  return {"gptq", {".qweight", ".qzeros", ".scales"}, &gptq::Read, &gptq::Note};
}

}  // namespace gemmd

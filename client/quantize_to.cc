#include "client/quantize_to.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "kernels/base/status.h"

namespace gemmd::client {
namespace {

using Words = std::vector<std::string>;

absl::Status Expected(absl::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_ARGUMENT", absl::StrCat("expected ", what));
}

absl::Status Contradiction(absl::string_view one, absl::string_view other) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_ARGUMENT",
               absl::StrCat("'", one, "' and '", other, "' contradict each other"));
}

v1::NumberFormat Integer(uint32_t bits) {
  v1::NumberFormat format;
  format.set_kind(v1::NUMBER_KIND_INTEGER);
  format.set_bits(bits);
  return format;
}

v1::NumberFormat Float(uint32_t exponent, uint32_t mantissa) {
  v1::NumberFormat format;
  format.set_kind(v1::NUMBER_KIND_FLOAT);
  format.set_bits(1 + exponent + mantissa);
  format.set_exponent_bits(exponent);
  format.set_mantissa_bits(mantissa);
  const bool ieee = format.bits() > 8 || (exponent == 5 && mantissa == 2);
  const bool nan = exponent == 4 && mantissa == 3;
  format.set_special(ieee  ? v1::SPECIAL_VALUES_IEEE
                     : nan ? v1::SPECIAL_VALUES_NAN_ONLY
                           : v1::SPECIAL_VALUES_NONE);
  return format;
}

v1::NumberFormat Exponent8() {
  v1::NumberFormat format;
  format.set_kind(v1::NUMBER_KIND_EXPONENT);
  format.set_bits(8);
  format.set_special(v1::SPECIAL_VALUES_NAN_ONLY);
  return format;
}

// int1 to int8, and eXmY of at most 8 bits.
bool ReadElement(absl::string_view text, v1::NumberFormat& format) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? static_cast<uint32_t>(c - '0') : 100u; };
  if (text.size() == 4 && text.substr(0, 3) == "int" && digit(text[3]) >= 1 && digit(text[3]) <= 8) {
    format = Integer(digit(text[3]));
    return true;
  }
  if (text.size() != 4 || text[0] != 'e' || text[2] != 'm') return false;
  const uint32_t exponent = digit(text[1]);
  const uint32_t mantissa = digit(text[3]);
  if (exponent + mantissa < 1 || exponent + mantissa > 7) return false;
  format = Float(exponent, mantissa);
  return true;
}

bool ReadScale(absl::string_view text, v1::NumberFormat& format) {
  if (text == "f32") return format = Float(8, 23), true;
  if (text == "f16") return format = Float(5, 10), true;
  if (text == "bf16") return format = Float(8, 7), true;
  if (text == "e4m3") return format = Float(4, 3), true;
  if (text == "e5m2") return format = Float(5, 2), true;
  if (text == "e8m0") return format = Exponent8(), true;
  return false;
}

bool ReadSize(absl::string_view text, uint64_t& size) {
  return absl::SimpleAtoi(text, &size) && size >= 1 && size <= uint64_t{1} << 40;
}

// What the words say, before it is a message.
struct Wish {
  v1::QuantizeTo target;
  bool has_scale = false;
  uint64_t x_group = 0;
  std::string x_scale;
};

// ---- one function for each key ----

absl::Status SetGroup(const std::string& value, Wish& wish) {
  uint64_t columns = 0;
  if (!ReadSize(value, columns)) return Expected("columns, as in group=128");
  wish.target.mutable_spec()->set_scale_block_n(1);
  wish.target.mutable_spec()->set_scale_block_k(columns);
  return absl::OkStatus();
}

absl::Status SetBlock(const std::string& value, Wish& wish) {
  const Words extents = absl::StrSplit(value, 'x');
  uint64_t n = 0;
  uint64_t k = 0;
  if (extents.size() != 2 || !ReadSize(extents[0], n) || !ReadSize(extents[1], k)) {
    return Expected("rows and columns, as in block=128x128");
  }
  wish.target.mutable_spec()->set_scale_block_n(n);
  wish.target.mutable_spec()->set_scale_block_k(k);
  return absl::OkStatus();
}

absl::Status SetScale(const std::string& value, Wish& wish) {
  v1::NumberFormat scale;
  if (value != "none" && !ReadScale(value, scale)) {
    return Expected("one of f16, bf16, f32, e4m3, e5m2, e8m0, none");
  }
  wish.has_scale = true;
  wish.target.mutable_spec()->clear_scale();
  if (value != "none") *wish.target.mutable_spec()->mutable_scale() = scale;
  return absl::OkStatus();
}

// The value as one of the names of `kinds`.
template <typename Enum>
absl::StatusOr<Enum> KindOf(const std::string& value, const std::vector<std::pair<std::string, Enum>>& kinds) {
  Words names;
  for (const auto& [name, kind] : kinds) {
    if (name == value) return kind;
    names.push_back(name);
  }
  return Expected(absl::StrCat("one of ", absl::StrJoin(names, ", ")));
}

absl::Status SetZero(const std::string& value, Wish& wish) {
  GEMMD_ASSIGN_OR_RETURN(const auto kind,
                         KindOf<v1::ZeroPointKind>(value, {{"none", v1::ZERO_POINT_KIND_NONE},
                                                           {"int", v1::ZERO_POINT_KIND_INTEGER},
                                                           {"float", v1::ZERO_POINT_KIND_FLOAT}}));
  wish.target.mutable_spec()->set_zero_point(kind);
  return absl::OkStatus();
}

absl::Status SetSecondary(const std::string& value, Wish& wish) {
  GEMMD_ASSIGN_OR_RETURN(const auto kind,
                         KindOf<v1::SecondaryScaleKind>(value, {{"none", v1::SECONDARY_SCALE_KIND_NONE},
                                                                {"tensor", v1::SECONDARY_SCALE_KIND_TENSOR},
                                                                {"channel", v1::SECONDARY_SCALE_KIND_CHANNEL}}));
  wish.target.mutable_spec()->set_secondary_scale(kind);
  return absl::OkStatus();
}

absl::Status SetRule(const std::string& value, Wish& wish) {
  GEMMD_ASSIGN_OR_RETURN(const auto rule,
                         KindOf<v1::ScaleRule>(value, {{"largest", v1::SCALE_RULE_LARGEST},
                                                       {"full_range", v1::SCALE_RULE_FULL_RANGE},
                                                       {"ocp", v1::SCALE_RULE_OCP},
                                                       {"nearest_power", v1::SCALE_RULE_NEAREST_POWER}}));
  wish.target.set_rule(rule);
  return absl::OkStatus();
}

absl::Status SetX(const std::string& value, Wish& wish) {
  v1::NumberFormat x;
  if (value != "none" && !ReadElement(value, x)) return Expected("int1 to int8, eXmY such as e4m3, or none");
  wish.target.mutable_spec()->clear_activation();
  if (value != "none") *wish.target.mutable_spec()->mutable_activation() = x;
  return absl::OkStatus();
}

absl::Status SetXGroup(const std::string& value, Wish& wish) {
  return ReadSize(value, wish.x_group) ? absl::OkStatus() : Expected("columns, as in x_group=128");
}

absl::Status SetXScale(const std::string& value, Wish& wish) {
  wish.x_scale = value;
  return value == "f32" || value == "e8m0" ? absl::OkStatus() : Expected("f32 or e8m0");
}

constexpr std::pair<absl::string_view, absl::Status (*)(const std::string&, Wish&)> kKeys[] = {
    {"group", SetGroup}, {"block", SetBlock},         {"scale", SetScale},
    {"zero", SetZero},   {"secondary", SetSecondary}, {"rule", SetRule},
    {"x", SetX},         {"x_group", SetXGroup},      {"x_scale", SetXScale}};

absl::Status TakeWeight(const std::string& word, Wish& wish) {
  if (ReadElement(word, *wish.target.mutable_spec()->mutable_weight())) {
    wish.target.mutable_spec()->set_scale_block_n(1);
    return absl::OkStatus();
  }
  Words presets;
  for (const auto& [name, text] : QuantizePresets()) presets.push_back(name);
  return Expected(absl::StrCat("int1 to int8, eXmY such as e4m3, or one of ", absl::StrJoin(presets, ", ")));
}

absl::Status Take(const std::string& word, Wish& wish) {
  if (word == "channel" || word == "tensor") {
    wish.target.mutable_spec()->set_scale_block_n(word == "channel" ? 1 : 0);
    wish.target.mutable_spec()->set_scale_block_k(0);
    return absl::OkStatus();
  }
  const std::pair<std::string, std::string> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
  Words known = {"channel", "tensor"};
  for (const auto& [key, set] : kKeys) {
    if (key == parts.first) return set(parts.second, wish);
    known.push_back(absl::StrCat(key, "="));
  }
  return Expected(absl::StrCat("one of ", absl::StrJoin(known, ", ")));
}

constexpr char kPlace[] = "place of the scales";

// The one thing of which a word says something: channel, tensor, group and block say where the scales are.
std::string Subject(const std::string& word) {
  const std::string key = word.substr(0, word.find('='));
  return key == "channel" || key == "tensor" || key == "group" || key == "block" ? kPlace : key;
}

// Words of the caller that say different things of the same, and places of scales where there are none.
absl::Status CheckTogether(absl::Span<const std::string> words) {
  std::map<std::string, std::string> said;  // by the subject
  for (const std::string& word : words) {
    const auto [before, is_new] = said.emplace(Subject(word), word);
    if (is_new || before->second == word) continue;
    return Contradiction(before->second, word);
  }
  const auto scale = said.find("scale");
  if (scale == said.end() || scale->second != "scale=none") return absl::OkStatus();
  const auto place = said.find(kPlace);
  return place == said.end() ? absl::OkStatus() : Contradiction(scale->second, place->second);
}

// What follows from the words together.
absl::Status Finish(Wish& wish) {
  v1::QuantSpec& spec = *wish.target.mutable_spec();
  if (!wish.has_scale) {
    *spec.mutable_scale() = spec.weight().kind() == v1::NUMBER_KIND_INTEGER ? Float(5, 10) : Float(8, 23);
  }
  if (!spec.has_activation()) {
    if (wish.x_group == 0 && wish.x_scale.empty()) return absl::OkStatus();
    return Expected("x=TYPE beside x_group and x_scale");
  }
  const bool grouped = wish.x_group != 0;
  spec.set_activation_scale(grouped ? v1::ACTIVATION_SCALE_KIND_DYNAMIC_GROUP
                                    : v1::ACTIVATION_SCALE_KIND_DYNAMIC_TOKEN);
  spec.set_activation_group(wish.x_group);
  if (wish.x_scale != "e8m0") return absl::OkStatus();
  if (!grouped) return Expected("x_group=COLUMNS beside x_scale=e8m0");
  v1::ActivationEncoding& encoding = *wish.target.mutable_encoding();
  *encoding.mutable_format() = spec.activation();
  encoding.set_scale(spec.activation_scale());
  encoding.set_group(spec.activation_group());
  *encoding.mutable_group_scale() = Exponent8();
  return absl::OkStatus();
}

// The words of a preset that the caller's own leave standing: those of other subjects, without how x is scaled where it
// is not quantized.
Words Standing(absl::Span<const std::string> preset, absl::Span<const std::string> own) {
  Words standing;
  for (const std::string& word : preset) {
    const std::string subject = Subject(word);
    const bool is_replaced =
        std::any_of(own.begin(), own.end(), [&subject](const std::string& other) {
          return Subject(other) == subject ||
                 (other == "x=none" && absl::StartsWith(subject, "x_"));
        });
    if (!is_replaced) standing.push_back(word);
  }
  return standing;
}

// A preset places its scales: without them its weights would be something else.
absl::Status CheckPreset(absl::string_view preset, absl::string_view weight,
                         absl::Span<const std::string> standing,
                         absl::Span<const std::string> own) {
  if (std::find(own.begin(), own.end(), "scale=none") == own.end()) return absl::OkStatus();
  for (const std::string& word : standing) {
    if (Subject(word) != kPlace) continue;
    return Annotate(
        Contradiction("scale=none", word),
        absl::StrCat("preset ", preset, " has scales ('", weight, ",scale=none' has none)"));
  }
  return absl::OkStatus();
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& QuantizePresets() {
  static const auto* const presets = new std::vector<std::pair<std::string, std::string>>{
      {"w4a16", "int4,group=128,scale=f16"},
      {"w8a16", "int8,channel,scale=f16"},
      {"w8a8", "int8,channel,scale=f32,x=int8"},
      {"fp8", "e4m3,channel,scale=f32,x=e4m3"},
      {"fp8-block", "e4m3,block=128x128,scale=f32,x=e4m3,x_group=128"},
      {"mxfp4", "e2m1,group=32,scale=e8m0,rule=ocp"},
      {"mxfp8", "e4m3,group=32,scale=e8m0,rule=ocp"},
      {"nvfp4", "e2m1,group=16,scale=e4m3,secondary=tensor"}};
  return *presets;
}

absl::StatusOr<v1::QuantizeTo> ParseQuantizeTo(absl::string_view text) {
  Words words = absl::StrSplit(text, ',');
  const Words own(words.begin() + 1, words.end());  // a preset's words give way to these
  std::string preset;
  Words standing;
  for (const auto& [name, meaning] : QuantizePresets()) {
    if (words[0] != name) continue;
    const Words meant = absl::StrSplit(meaning, ',');
    preset = name;
    standing = Standing(absl::MakeConstSpan(meant).subspan(1), own);
    words[0] = meant[0];
    words.insert(words.begin() + 1, standing.begin(), standing.end());
    break;
  }
  Wish wish;
  for (size_t i = 0; i < words.size(); ++i) {
    const absl::Status taken = i == 0 ? TakeWeight(words[i], wish) : Take(words[i], wish);
    if (!taken.ok()) return Annotate(taken, absl::StrCat("'", words[i], "'"));
  }
  GEMMD_RETURN_IF_ERROR(CheckTogether(own));
  GEMMD_RETURN_IF_ERROR(CheckPreset(preset, words[0], standing, own));
  GEMMD_RETURN_IF_ERROR(Finish(wish));
  return wish.target;
}

}  // namespace gemmd::client

#include "core/checkpoint/json.h"

#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/errors.h"

namespace gemmd {
namespace {

constexpr int64_t kLargestExtent = 1 << 30;

// Of the one of `names` that `object` has.
absl::Status WrongType(const Json& object, std::initializer_list<const char*> names,
                       absl::string_view expected) {
  for (const char* name : names) {
    const Json* const field = FindField(object, {name});
    if (field != nullptr) return WrongField(name, expected, *field);
  }
  return WrongField(*names.begin(), expected, nullptr);
}

bool IsExtent(const Json& value) { return IsIntegerIn(value, 1, kLargestExtent); }

bool IsNotFinite(const Json& value) {
  return value.is_number_float() && !std::isfinite(value.get<double>());
}

// As ParseJsonObject reads them: JSON itself has no names for these.
std::string NameOfNotFinite(double value) {
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
}

// `value` with those numbers as strings.
Json Writable(const Json& value) {
  if (IsNotFinite(value)) return NameOfNotFinite(value.get<double>());
  Json copy = value;
  if (!copy.is_structured()) return copy;
  for (Json& element : copy) element = Writable(element);
  return copy;
}

// "65536", "2^30", "2^63 - 1".
std::string BoundText(int64_t bound) {
  constexpr int64_t kLargestPlain = 1 << 16;
  if (bound == std::numeric_limits<int64_t>::max()) return "2^63 - 1";
  if (bound == std::numeric_limits<int64_t>::min()) return "-2^63";
  const bool is_power = bound > kLargestPlain && (bound & (bound - 1)) == 0;
  return is_power ? absl::StrCat("2^", __builtin_ctzll(static_cast<uint64_t>(bound))) : absl::StrCat(bound);
}

constexpr int64_t kWholeRow = -1;

std::string GroupSizes() { return absl::StrCat(kWholeRow, " or ", IntegersText(1, kLargestExtent)); }

}  // namespace

bool IsIntegerIn(const Json& value, int64_t least, int64_t most) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return false;
  }
  return value.get<int64_t>() >= least && value.get<int64_t>() <= most;
}

std::string IntegersText(int64_t least, int64_t most) {
  return absl::StrCat("an integer from ", BoundText(least), " to ", BoundText(most));
}

std::string Shown(const Json& value) {
  if (IsNotFinite(value)) return NameOfNotFinite(value.get<double>());
  const std::string text = Writable(value).dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= 80 ? text : absl::StrCat(text.substr(0, 80), "...");
}

absl::Status WrongField(absl::string_view name, absl::string_view expected, const Json& got) {
  return BadCheckpoint(absl::StrCat("\"", name, "\": expected ", expected, ", got ",
                                    got.is_null() ? "none" : Shown(got)));
}

absl::StatusOr<int64_t> IntegerField(const Json& object, std::initializer_list<const char*> names,
                                     int64_t fallback) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const Json* field = FindField(object, names);
  if (field == nullptr) return fallback;
  if (!IsIntegerIn(*field, kLeast, kMost)) return WrongType(object, names, IntegersText(kLeast, kMost));
  return field->get<int64_t>();
}

absl::StatusOr<int64_t> GroupSizeField(const Json& object, std::initializer_list<const char*> names,
                                       int64_t fallback) {
  const Json* field = FindField(object, names);
  const Json size = field == nullptr ? Json(fallback) : *field;
  if (IsIntegerIn(size, kWholeRow, kWholeRow) || IsExtent(size)) return size.get<int64_t>();
  return WrongType(object, names, GroupSizes());
}

absl::Status CheckGroupSize(int64_t size, absl::string_view when) {
  if (IsExtent(size)) return absl::OkStatus();
  return WrongField("group_size", absl::StrCat(IntegersText(1, kLargestExtent), when), size);
}

absl::StatusOr<bool> BoolField(const Json& object, std::initializer_list<const char*> names,
                               bool fallback) {
  const Json* field = FindField(object, names);
  if (field == nullptr) return fallback;
  if (!field->is_boolean()) return WrongType(object, names, "true or false");
  return field->get<bool>();
}

absl::StatusOr<std::string> NameField(const Json& object, std::initializer_list<const char*> names,
                                      const std::string& fallback) {
  const Json* field = FindField(object, names);
  if (field == nullptr) return fallback;
  if (!field->is_string()) return WrongType(object, names, "a string");
  return absl::AsciiStrToLower(field->get_ref<const std::string&>());
}

absl::StatusOr<std::vector<std::string>> StringsField(const Json& object,
                                                      std::initializer_list<const char*> names) {
  const Json* field = FindField(object, names);
  std::vector<std::string> strings;
  if (field == nullptr) return strings;
  if (!field->is_array()) return WrongType(object, names, "a list of strings");
  for (const Json& element : *field) {
    if (!element.is_string()) return WrongType(object, names, "a list of strings");
    strings.push_back(element.get<std::string>());
  }
  return strings;
}

absl::StatusOr<const Json*> ObjectField(const Json& object,
                                        std::initializer_list<const char*> names) {
  const Json* field = FindField(object, names);
  if (field != nullptr && !field->is_object()) return WrongType(object, names, "an object");
  return field;
}

absl::StatusOr<std::pair<int64_t, int64_t>> PairField(const Json& object,
                                                      std::initializer_list<const char*> names) {
  const Json* field = FindField(object, names);
  if (field == nullptr || !field->is_array() || field->size() != 2 || !IsExtent((*field)[0]) ||
      !IsExtent((*field)[1])) {
    return WrongType(object, names, kExtentPair);
  }
  return std::pair((*field)[0].get<int64_t>(), (*field)[1].get<int64_t>());
}

}  // namespace gemmd

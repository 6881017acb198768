#include "core/checkpoint/json.h"

#include <limits>
#include <unordered_set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/errors.h"

namespace gemmd {
namespace {

constexpr size_t kLargestDepth = 32;
constexpr int64_t kLargestExtent = 1 << 30;

// Reads a document without building it and stops at what it must not have. A parser callback would be
// shorter and takes quadratic time: nlohmann's looks through the whole parent after every inner object.
class Strictness : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_array(std::size_t) override { return Enter(); }
  bool end_array() override { return Leave(); }
  bool start_object(std::size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }

  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    status_ = BadCheckpoint(absl::StrCat("duplicate key \"", name, "\""));
    return false;
  }

  bool parse_error(std::size_t byte, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;  // nlohmann's
    status_ = BadCheckpoint(error.id == kNumberOverflow
                                ? absl::StrCat("the number ", token, " is none of float64")
                                : absl::StrCat("not valid JSON at byte ", byte));
    return false;
  }

  const absl::Status& status() const { return status_; }

 private:
  bool Enter() {
    keys_.emplace_back();
    if (keys_.size() <= kLargestDepth) return true;
    status_ = BadCheckpoint(absl::StrCat("nested deeper than ", kLargestDepth));
    return false;
  }
  bool Leave() {
    keys_.pop_back();
    return true;
  }

  absl::Status status_;
  std::vector<std::unordered_set<std::string>> keys_;  // of every open object; arrays have none
};

// Of the one of `names` that `object` has.
absl::Status WrongType(const Json& object, std::initializer_list<const char*> names,
                       const char* expected) {
  for (const char* name : names) {
    const Json* const field = FindField(object, {name});
    if (field != nullptr) return WrongField(name, expected, *field);
  }
  return WrongField(*names.begin(), expected, nullptr);
}

bool IsExtent(const Json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() >= 1 &&
         value.get<uint64_t>() <= uint64_t{kLargestExtent};
}

}  // namespace

std::string Shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= 80 ? text : absl::StrCat(text.substr(0, 80), "...");
}

absl::Status WrongField(absl::string_view name, absl::string_view expected, const Json& got) {
  return BadCheckpoint(absl::StrCat("\"", name, "\": expected ", expected, ", got ",
                                    got.is_null() ? "none" : Shown(got)));
}

template <typename J>
absl::StatusOr<J> ParseJsonObject(absl::string_view text) {
  const char* const end = text.data() + text.size();
  Strictness strictness;
  nlohmann::json::sax_parse(text.data(), end, &strictness);
  GEMMD_RETURN_IF_ERROR(strictness.status());
  J document = J::parse(text.data(), end, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return BadCheckpoint("not valid JSON");
  if (!document.is_object()) {
    return BadCheckpoint(absl::StrCat("expected a JSON object, got ", Shown(Json(document))));
  }
  return document;
}

template absl::StatusOr<Json> ParseJsonObject<Json>(absl::string_view);
template absl::StatusOr<JsonTable> ParseJsonObject<JsonTable>(absl::string_view);

absl::StatusOr<int64_t> IntegerField(const Json& object, std::initializer_list<const char*> names,
                                     int64_t fallback) {
  const Json* field = FindField(object, names);
  if (field == nullptr) return fallback;
  const bool too_large = field->is_number_unsigned() &&
                         field->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  if (!field->is_number_integer() || too_large) return WrongType(object, names, "an integer below 2^63");
  return field->get<int64_t>();
}

absl::StatusOr<int64_t> GroupSizeField(const Json& object, std::initializer_list<const char*> names,
                                       int64_t fallback) {
  GEMMD_ASSIGN_OR_RETURN(const int64_t size, IntegerField(object, names, fallback));
  if (size == -1 || (size >= 1 && size <= kLargestExtent)) return size;
  return WrongType(object, names, "-1 or a positive number up to 2^30");
}

absl::Status CheckGroupSize(int64_t size, absl::string_view when) {
  if (size >= 1 && size <= kLargestExtent) return absl::OkStatus();
  return WrongField("group_size", absl::StrCat("a positive number up to 2^30", when), size);
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
    return WrongType(object, names, "two positive integers");
  }
  return std::pair((*field)[0].get<int64_t>(), (*field)[1].get<int64_t>());
}

}  // namespace gemmd

#include "core/checkpoint/json.h"

#include <limits>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/errors.h"

namespace gemmd {
namespace {

constexpr size_t kLargestDepth = 32;

// Sees every event of the parser; remembers what the document must not have.
template <typename J>
class Strictness {
 public:
  // False drops the value, so that a hostile document does not take memory.
  bool Accept(typename J::parse_event_t event, const J& parsed) {
    switch (event) {
      case J::parse_event_t::object_start:
      case J::parse_event_t::array_start:
        if (++depth_ > kLargestDepth) too_deep_ = true;
        if (event == J::parse_event_t::object_start && !too_deep_) keys_.emplace_back();
        break;
      case J::parse_event_t::object_end:
        if (!keys_.empty() && depth_ <= kLargestDepth) keys_.pop_back();
        --depth_;
        break;
      case J::parse_event_t::array_end:
        --depth_;
        break;
      case J::parse_event_t::key:
        if (!too_deep_ && !keys_.empty() && duplicate_.empty()) Remember(parsed);
        break;
      case J::parse_event_t::value:
        break;
    }
    return !too_deep_;
  }

  absl::Status status() const {
    if (too_deep_) return BadCheckpoint(absl::StrCat("nested deeper than ", kLargestDepth));
    if (!duplicate_.empty()) return BadCheckpoint(absl::StrCat("duplicate key ", duplicate_));
    return absl::OkStatus();
  }

 private:
  void Remember(const J& key) {
    const std::string& name = key.template get_ref<const std::string&>();
    if (!keys_.back().insert(name).second) duplicate_ = absl::StrCat("\"", name, "\"");
  }

  size_t depth_ = 0;
  bool too_deep_ = false;
  std::string duplicate_;
  std::vector<std::set<std::string>> keys_;
};

std::string Shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= 80 ? text : absl::StrCat(text.substr(0, 80), "...");
}

absl::Status WrongType(std::initializer_list<const char*> names, const char* expected,
                       const Json& got) {
  return BadCheckpoint(
      absl::StrCat("\"", *names.begin(), "\": expected ", expected, ", got ", Shown(got)));
}

}  // namespace

template <typename J>
absl::StatusOr<J> ParseJsonObject(absl::string_view text) {
  Strictness<J> strictness;
  J document = J::parse(
      text.data(), text.data() + text.size(),
      [&strictness](int, typename J::parse_event_t event, J& parsed) {
        return strictness.Accept(event, parsed);
      },
      /*allow_exceptions=*/false);
  GEMMD_RETURN_IF_ERROR(strictness.status());
  if (document.is_discarded()) return BadCheckpoint("not valid JSON");
  if (!document.is_object()) return BadCheckpoint("expected a JSON object");
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
  if (!field->is_number_integer() || too_large) return WrongType(names, "an integer", *field);
  return field->get<int64_t>();
}

absl::StatusOr<bool> BoolField(const Json& object, std::initializer_list<const char*> names,
                               bool fallback) {
  const Json* field = FindField(object, names);
  if (field == nullptr) return fallback;
  if (!field->is_boolean()) return WrongType(names, "true or false", *field);
  return field->get<bool>();
}

absl::StatusOr<std::string> NameField(const Json& object, std::initializer_list<const char*> names,
                                      const std::string& fallback) {
  const Json* field = FindField(object, names);
  if (field == nullptr) return fallback;
  if (!field->is_string()) return WrongType(names, "a string", *field);
  return absl::AsciiStrToLower(field->get_ref<const std::string&>());
}

absl::StatusOr<std::vector<std::string>> StringsField(const Json& object,
                                                      std::initializer_list<const char*> names) {
  const Json* field = FindField(object, names);
  std::vector<std::string> strings;
  if (field == nullptr) return strings;
  if (!field->is_array()) return WrongType(names, "a list of strings", *field);
  for (const Json& element : *field) {
    if (!element.is_string()) return WrongType(names, "a list of strings", *field);
    strings.push_back(element.get<std::string>());
  }
  return strings;
}

}  // namespace gemmd

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/json.h"

namespace gemmd {
namespace {

constexpr size_t kLargestDepth = 32;

// ---- Python's numbers ----

// What Python writes for a number that JSON has no name for, and a number of the same length that nobody writes.
struct PythonNumber {
  absl::string_view text;
  absl::string_view stand_in;
  double value;
};

constexpr PythonNumber kPythonNumbers[] = {
    {"NaN", "0E0", std::numeric_limits<double>::quiet_NaN()},
    {"Infinity", "0E000000", std::numeric_limits<double>::infinity()},
    {"-Infinity", "-0E000000", -std::numeric_limits<double>::infinity()},
};

bool HasPythonNumber(absl::string_view text) {
  return absl::StrContains(text, "NaN") || absl::StrContains(text, "Infinity");
}

bool IsBetweenTokens(char c) { return absl::string_view(" \t\r\n,:[]{}").find(c) != absl::string_view::npos; }

// The number that is written at `at`, as a token of its own, or nullptr.
const PythonNumber* PythonNumberAt(absl::string_view text, size_t at) {
  if (at > 0 && !IsBetweenTokens(text[at - 1])) return nullptr;
  for (const PythonNumber& number : kPythonNumbers) {
    const size_t end = at + number.text.size();
    if (!absl::StartsWith(text.substr(at), number.text)) continue;
    if (end == text.size() || IsBetweenTokens(text[end])) return &number;
  }
  return nullptr;
}

// `text` with their stand-ins outside of strings: a parser judges the rest, and finds each byte where it was.
std::string WithStandIns(absl::string_view text) {
  std::string out(text);
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_string = !in_string;
    if (in_string) {
      if (text[i] == '\\') ++i;  // whatever follows ends no string
      continue;
    }
    const PythonNumber* const number = PythonNumberAt(text, i);
    if (number == nullptr) continue;
    out.replace(i, number->stand_in.size(), number->stand_in.data(), number->stand_in.size());
    i += number->text.size() - 1;
  }
  return out;
}

double ValueOf(double value, const std::string& token) {
  for (const PythonNumber& number : kPythonNumbers) {
    if (token == number.stand_in) return number.value;
  }
  return value;
}

// ---- parsing ----

// "line 3, column 7 (byte 61)"; bytes count from 1.
std::string PlaceOf(absl::string_view text, size_t byte) {
  const absl::string_view before = text.substr(0, byte == 0 ? 0 : byte - 1);
  const size_t line_end = before.rfind('\n');
  const size_t line_begin = line_end == absl::string_view::npos ? 0 : line_end + 1;
  return absl::StrCat("line ", 1 + std::count(before.begin(), before.end(), '\n'), ", column ",
                      before.size() - line_begin + 1, " (byte ", byte, ")");
}

// Builds a document and stops at what it must not have. A callback of nlohmann's own builder would be shorter and takes
// quadratic time: it looks through the whole parent after every inner object.
template <typename J>
class Builder : public nlohmann::json_sax<J> {
 public:
  using typename nlohmann::json_sax<J>::number_integer_t;
  using typename nlohmann::json_sax<J>::number_unsigned_t;
  using typename nlohmann::json_sax<J>::number_float_t;
  using typename nlohmann::json_sax<J>::string_t;
  using typename nlohmann::json_sax<J>::binary_t;

  Builder(absl::string_view text, bool has_stand_ins) : text_(text), has_stand_ins_(has_stand_ins) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t& token) override {
    return Add(has_stand_ins_ ? ValueOf(value, token) : value);
  }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t& value) override { return Add(std::move(value)); }
  bool start_array(std::size_t) override { return Enter(J::array()); }
  bool end_array() override { return Leave(); }
  bool start_object(std::size_t) override { return Enter(J::object()); }
  bool end_object() override { return Leave(); }

  bool key(string_t& name) override {
    key_ = name;
    if (open_.back().keys.insert(name).second) return true;
    status_ = BadCheckpoint(absl::StrCat("duplicate key \"", name, "\""));
    return false;
  }

  bool parse_error(std::size_t byte, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;  // nlohmann's
    status_ = BadCheckpoint(error.id == kNumberOverflow
                                ? absl::StrCat("the number ", token, " is none of float64")
                                : absl::StrCat("not valid JSON at ", PlaceOf(text_, byte)));
    return false;
  }

  absl::StatusOr<J> Take() {
    if (!status_.ok()) return status_;
    return std::move(document_);
  }

 private:
  // An array or object that has not ended; arrays have no keys.
  struct Open {
    J* value;
    std::unordered_set<std::string> keys;
  };

  J* Place(J value) {
    if (open_.empty()) {
      document_ = std::move(value);
      return &document_;
    }
    J& parent = *open_.back().value;
    if (!parent.is_array()) return &(parent[key_] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }
  bool Add(J value) {
    Place(std::move(value));
    return true;
  }
  bool Enter(J value) {
    open_.push_back({Place(std::move(value)), {}});
    if (open_.size() <= kLargestDepth) return true;
    status_ = BadCheckpoint(absl::StrCat("nested deeper than ", kLargestDepth, " at \"", key_, "\""));
    return false;
  }
  bool Leave() {
    open_.pop_back();
    return true;
  }

  absl::string_view text_;
  bool has_stand_ins_;
  absl::Status status_;
  J document_;
  std::string key_;  // the last one
  std::vector<Open> open_;
};

}  // namespace

template <typename J>
absl::StatusOr<J> ParseJsonObject(absl::string_view text, JsonDialect dialect) {
  std::string replaced;
  const bool has_stand_ins = dialect == JsonDialect::kPython && HasPythonNumber(text);
  if (has_stand_ins) {
    replaced = WithStandIns(text);
    text = replaced;
  }
  Builder<J> builder(text, has_stand_ins);
  J::sax_parse(text.data(), text.data() + text.size(), &builder);
  GEMMD_ASSIGN_OR_RETURN(J document, builder.Take());
  if (!document.is_object()) {
    return BadCheckpoint(absl::StrCat("expected a JSON object, got ", Shown(Json(document))));
  }
  return document;
}

template absl::StatusOr<Json> ParseJsonObject<Json>(absl::string_view, JsonDialect);
template absl::StatusOr<JsonTable> ParseJsonObject<JsonTable>(absl::string_view, JsonDialect);

}  // namespace gemmd

// What    JSON of a checkpoint: strict parsing, and fields with their type checked.
// Errors  InvalidArgument BAD_CHECKPOINT, naming the field, expected and got.
#ifndef GEMMD_CORE_CHECKPOINT_JSON_H_
#define GEMMD_CORE_CHECKPOINT_JSON_H_

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd {

// A config: its keys keep their order, which some exporters give a meaning.
using Json = nlohmann::ordered_json;
// A table of tensors: many keys, found in logarithmic time.
using JsonTable = nlohmann::json;

enum class JsonDialect {
  kStrict,
  kPython,  // NaN, Infinity and -Infinity are numbers too, as Python's json writes them
};

// Parses one JSON object. Rejects duplicate keys, nesting deeper than 32 and anything after the
// object; what is no JSON is told with its line and column. J is Json or JsonTable.
template <typename J>
absl::StatusOr<J> ParseJsonObject(absl::string_view text, JsonDialect dialect = JsonDialect::kStrict);

// The first of `names` that `object` has and that is not null, or nullptr. Exporters spell some
// keys in two ways.
template <typename J>
const J* FindField(const J& object, std::initializer_list<const char*> names) {
  if (!object.is_object()) return nullptr;
  for (const char* name : names) {
    const auto field = object.find(name);
    if (field != object.end() && !field->is_null()) return &*field;
  }
  return nullptr;
}

// As FindField, converted; `fallback` where the field is absent.
absl::StatusOr<int64_t> IntegerField(const Json& object, std::initializer_list<const char*> names,
                                     int64_t fallback);
absl::StatusOr<bool> BoolField(const Json& object, std::initializer_list<const char*> names,
                               bool fallback);
// Lower case.
absl::StatusOr<std::string> NameField(const Json& object, std::initializer_list<const char*> names,
                                      const std::string& fallback);
absl::StatusOr<std::vector<std::string>> StringsField(const Json& object,
                                                      std::initializer_list<const char*> names);
// As FindField, an error where the field is no object.
absl::StatusOr<const Json*> ObjectField(const Json& object,
                                        std::initializer_list<const char*> names);
// Whether `value` is an integer (2.0 and "2" are none) of at least `least` and at most `most`; and what is said to be
// expected of one that is not: "an integer from 1 to 2^30".
bool IsIntegerIn(const Json& value, int64_t least, int64_t most);
std::string IntegersText(int64_t least, int64_t most);

// Columns of a group of weights, at `names`: 1 to 2^30, or -1 for all of a row.
absl::StatusOr<int64_t> GroupSizeField(const Json& object, std::initializer_list<const char*> names,
                                       int64_t fallback);
// Of a "group_size" that must be a number of columns, 1 to 2^30; `when` says why: " with strategy group".
absl::Status CheckGroupSize(int64_t size, absl::string_view when);
// Two integers from 1 to 2^30, such as the extents of a block.
inline constexpr char kExtentPair[] = "two integers from 1 to 2^30";
absl::StatusOr<std::pair<int64_t, int64_t>> PairField(const Json& object,
                                                      std::initializer_list<const char*> names);

// BAD_CHECKPOINT: the field `name` is not what is expected.
absl::Status WrongField(absl::string_view name, absl::string_view expected, const Json& got);
// `value` as text, cut where it is long.
std::string Shown(const Json& value);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_JSON_H_

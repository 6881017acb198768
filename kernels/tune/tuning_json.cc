#include "kernels/tune/tuning_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "nlohmann/json.hpp"

namespace gemmd {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLargest = int64_t{1} << 52;  // whole numbers that JSON readers agree on
constexpr double kLongestNs = 1e12;

absl::Status Damaged(absl::string_view why) {
  return Error(absl::StatusCode::kDataLoss, "TUNING_DAMAGED", absl::StrCat("tuning: ", why));
}

constexpr size_t kMostShown = 40;  // of a value that is wrong

// "entries[2].layer.n is "x", expected ..."
absl::Status Wrong(const std::string& field, const Json* got, absl::string_view expected) {
  if (got == nullptr) return Damaged(absl::StrCat(field, " is missing, expected ", expected));
  std::string text = got->dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "...";
  return Damaged(absl::StrCat(field, " is ", text, ", expected ", expected));
}

// Reads the fields of one object, which is at `path` of the file; the first that is wrong stays in `status`.
class Reader {
 public:
  Reader(const Json& object, std::string path, absl::Status& status)
      : object_(object), path_(std::move(path)), status_(status) {}

  const Json& Object(const char* name) {
    return Field(name, "an object", [](const Json& field) { return field.is_object(); });
  }
  const Json& Array(const char* name) {
    return Field(name, "a list", [](const Json& field) { return field.is_array(); });
  }
  Reader Inner(const char* name) { return Reader(Object(name), PathOf(name), status_); }
  void Read(const char* name, std::string& to) {
    const Json& field = Field(name, "text", [](const Json& found) { return found.is_string(); });
    if (status_.ok()) to = field.get<std::string>();
  }
  template <typename Integer>
  void ReadInteger(const char* name, int64_t least, Integer& to) {
    const auto most = std::min<uint64_t>(kLargest, std::numeric_limits<Integer>::max());
    const Json& field =
        Field(name, absl::StrCat("a whole number from ", least, " to ", most), [&](const Json& found) {
          return found.is_number_unsigned() && found.get<uint64_t>() >= static_cast<uint64_t>(least) &&
                 found.get<uint64_t>() <= most;
        });
    if (status_.ok()) to = static_cast<Integer>(field.get<uint64_t>());
  }
  void ReadTime(const char* name, double& to) {
    const Json& field =
        Field(name, absl::StrCat("a number from 0 to ", kLongestNs), [](const Json& found) {
          if (!found.is_number()) return false;
          const double value = found.get<double>();
          return std::isfinite(value) && value >= 0 && value <= kLongestNs;
        });
    if (status_.ok()) to = field.get<double>();
  }

 private:
  std::string PathOf(const char* name) const {
    return path_.empty() ? std::string(name) : absl::StrCat(path_, ".", name);
  }
  template <typename Fits>
  const Json& Field(const char* name, const std::string& expected, Fits fits) {
    static const Json nothing;
    if (!status_.ok()) return nothing;
    const auto found = object_.is_object() ? object_.find(name) : object_.end();
    const bool is_there = found != object_.end();
    if (is_there && fits(*found)) return *found;
    status_ = Wrong(PathOf(name), is_there ? &*found : nullptr, expected);
    return nothing;
  }

  const Json& object_;
  const std::string path_;
  absl::Status& status_;
};

Json ToJson(const MeasuredPoint& point) {
  Json tiling;
  VisitTiling(point.tiling, [&](const char* name, int value) { tiling[name] = value; });
  return {{"m", point.m},
          {"tiling", tiling},
          {"ns", point.ns},
          {"fastest_ns", point.fastest_ns},
          {"slowest_ns", point.slowest_ns},
          {"samples", point.samples},
          {"candidates", point.candidates},
          {"model_choice_ns", point.model_choice_ns},
          {"model_ns", point.model_ns}};
}

MeasuredPoint PointOf(const Json& json, const std::string& path, absl::Status& status) {
  MeasuredPoint point;
  Reader reader(json, path, status);
  reader.ReadInteger("m", 1, point.m);
  Reader tiling = reader.Inner("tiling");
  VisitTiling(point.tiling,
              [&](const char* name, int& value) { tiling.ReadInteger(name, 0, value); });
  reader.ReadTime("ns", point.ns);
  reader.ReadTime("fastest_ns", point.fastest_ns);
  reader.ReadTime("slowest_ns", point.slowest_ns);
  reader.ReadInteger("samples", 1, point.samples);
  reader.ReadInteger("candidates", 1, point.candidates);
  reader.ReadTime("model_choice_ns", point.model_choice_ns);
  reader.ReadTime("model_ns", point.model_ns);
  return point;
}

Json ToJson(const TuningEntry& entry) {
  const TuningKey& key = entry.key;
  const TuningConditions& conditions = entry.conditions;
  Json points = Json::array();
  for (const MeasuredPoint& point : entry.points) points.push_back(ToJson(point));
  return {{"device",
           {{"name", key.device.name},
            {"multiprocessors", key.device.multiprocessors},
            {"clock_mhz", key.device.clock_mhz}}},
          {"layer", {{"spec", key.spec}, {"n", key.n}, {"k", key.k}, {"x", key.x_type}}},
          {"conditions",
           {{"gemmd", conditions.gemmd},
            {"kernels", conditions.kernels},
            {"driver", conditions.driver},
            {"date", conditions.date},
            {"protocol", conditions.protocol},
            {"flush_bytes", conditions.flush_bytes},
            {"empty_kernel_ns", conditions.empty_kernel_ns}}},
          {"points", points}};
}

void ReadKey(Reader& reader, TuningKey& key) {
  Reader device = reader.Inner("device");
  device.Read("name", key.device.name);
  device.ReadInteger("multiprocessors", 1, key.device.multiprocessors);
  device.ReadInteger("clock_mhz", 0, key.device.clock_mhz);
  Reader layer = reader.Inner("layer");
  layer.Read("spec", key.spec);
  layer.ReadInteger("n", 1, key.n);
  layer.ReadInteger("k", 1, key.k);
  layer.Read("x", key.x_type);
}

void ReadConditions(Reader& reader, TuningConditions& to) {
  Reader conditions = reader.Inner("conditions");
  conditions.Read("gemmd", to.gemmd);
  conditions.Read("kernels", to.kernels);
  conditions.Read("driver", to.driver);
  conditions.Read("date", to.date);
  conditions.Read("protocol", to.protocol);
  conditions.ReadInteger("flush_bytes", 0, to.flush_bytes);
  conditions.ReadTime("empty_kernel_ns", to.empty_kernel_ns);
}

TuningEntry EntryOf(const Json& json, const std::string& path, absl::Status& status) {
  TuningEntry entry;
  Reader reader(json, path, status);
  ReadKey(reader, entry.key);
  ReadConditions(reader, entry.conditions);
  for (const Json& json_point : reader.Array("points")) {
    const size_t index = entry.points.size();
    const std::string point = absl::StrCat(path, ".points[", index, "]");
    entry.points.push_back(PointOf(json_point, point, status));
    if (status.ok() && index > 0 && entry.points[index - 1].m >= entry.points[index].m) {
      status = Damaged(absl::StrCat(point, ".m is ", entry.points[index].m, ", expected more than ",
                                    entry.points[index - 1].m, ", that of the point before"));
    }
    if (!status.ok()) break;
  }
  return entry;
}

}  // namespace

std::string RenderTuning(const std::vector<TuningEntry>& entries) {
  Json list = Json::array();
  for (const TuningEntry& entry : entries) list.push_back(ToJson(entry));
  const Json file = {{"schema", kTuningSchema}, {"entries", list}};
  return file.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<std::vector<TuningEntry>> ParseTuning(absl::string_view text) {
  const Json file = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!file.is_object()) return Damaged("it is no JSON object");
  absl::Status status;
  Reader reader(file, "", status);
  int schema = 0;
  reader.ReadInteger("schema", 0, schema);
  if (status.ok() && schema != kTuningSchema) {
    return Damaged(absl::StrCat("schema is ", schema, ", expected ", kTuningSchema));
  }
  std::vector<TuningEntry> entries;
  for (const Json& entry : reader.Array("entries")) {
    entries.push_back(EntryOf(entry, absl::StrCat("entries[", entries.size(), "]"), status));
    if (!status.ok()) return status;
  }
  GEMMD_RETURN_IF_ERROR(status);
  return entries;
}

}  // namespace gemmd

#include "kernels/tune/tuning_json.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

// Reads the fields of one object; the first that is wrong stays in `status`.
class Reader {
 public:
  Reader(const Json& object, absl::Status& status) : object_(object), status_(status) {}

  const Json& Field(const char* name, Json::value_t type) {
    static const Json nothing;
    if (!status_.ok()) return nothing;
    const auto found = object_.is_object() ? object_.find(name) : object_.end();
    if (found != object_.end() && found->type() == type) return *found;
    status_ = Damaged(absl::StrCat("'", name, "' is missing or of another type"));
    return nothing;
  }
  void Read(const char* name, std::string& to) {
    const Json& field = Field(name, Json::value_t::string);
    if (status_.ok()) to = field.get<std::string>();
  }
  template <typename Integer>
  void ReadInteger(const char* name, int64_t least, Integer& to) {
    const Json& field = Field(name, Json::value_t::number_unsigned);
    if (!status_.ok()) return;
    const auto value = field.get<uint64_t>();
    const auto most = std::min<uint64_t>(kLargest, std::numeric_limits<Integer>::max());
    if (value < static_cast<uint64_t>(least) || value > most) {
      status_ = Damaged(absl::StrCat("'", name, "' is ", value, ", expected ", least, " to ", most));
      return;
    }
    to = static_cast<Integer>(value);
  }
  void ReadTime(const char* name, double& to) {
    if (!status_.ok()) return;
    const auto found = object_.is_object() ? object_.find(name) : object_.end();
    if (found == object_.end() || !found->is_number()) {
      status_ = Damaged(absl::StrCat("'", name, "' is missing or no number"));
      return;
    }
    to = found->get<double>();
    if (std::isfinite(to) && to >= 0 && to <= kLongestNs) return;
    status_ = Damaged(absl::StrCat("'", name, "' is ", to, ", expected 0 to ", kLongestNs));
  }

 private:
  const Json& object_;
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

MeasuredPoint PointOf(const Json& json, absl::Status& status) {
  MeasuredPoint point;
  Reader reader(json, status);
  reader.ReadInteger("m", 1, point.m);
  Reader tiling(reader.Field("tiling", Json::value_t::object), status);
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

void ReadKey(Reader& reader, absl::Status& status, TuningKey& key) {
  Reader device(reader.Field("device", Json::value_t::object), status);
  device.Read("name", key.device.name);
  device.ReadInteger("multiprocessors", 1, key.device.multiprocessors);
  device.ReadInteger("clock_mhz", 0, key.device.clock_mhz);
  Reader layer(reader.Field("layer", Json::value_t::object), status);
  layer.Read("spec", key.spec);
  layer.ReadInteger("n", 1, key.n);
  layer.ReadInteger("k", 1, key.k);
  layer.Read("x", key.x_type);
}

void ReadConditions(Reader& reader, absl::Status& status, TuningConditions& to) {
  Reader conditions(reader.Field("conditions", Json::value_t::object), status);
  conditions.Read("gemmd", to.gemmd);
  conditions.Read("kernels", to.kernels);
  conditions.Read("driver", to.driver);
  conditions.Read("date", to.date);
  conditions.Read("protocol", to.protocol);
  conditions.ReadInteger("flush_bytes", 0, to.flush_bytes);
  conditions.ReadTime("empty_kernel_ns", to.empty_kernel_ns);
}

TuningEntry EntryOf(const Json& json, absl::Status& status) {
  TuningEntry entry;
  Reader reader(json, status);
  ReadKey(reader, status, entry.key);
  ReadConditions(reader, status, entry.conditions);
  for (const Json& point : reader.Field("points", Json::value_t::array)) {
    entry.points.push_back(PointOf(point, status));
    const size_t count = entry.points.size();
    if (status.ok() && count > 1 && entry.points[count - 2].m >= entry.points.back().m) {
      status = Damaged("points are not ascending in 'm'");
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
  Reader reader(file, status);
  int schema = 0;
  reader.ReadInteger("schema", 0, schema);
  if (status.ok() && schema != kTuningSchema) {
    return Damaged(absl::StrCat("its schema is ", schema, ", expected ", kTuningSchema));
  }
  std::vector<TuningEntry> entries;
  for (const Json& entry : reader.Field("entries", Json::value_t::array)) {
    entries.push_back(EntryOf(entry, status));
    if (!status.ok()) return status;
  }
  GEMMD_RETURN_IF_ERROR(status);
  return entries;
}

}  // namespace gemmd

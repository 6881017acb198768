#include "tests/bench/jit/parts/measurement.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gemmd::jit_bench {
namespace {

using Json = nlohmann::ordered_json;

double Rounded(double value) { return std::round(value * 1000) / 1000; }

Json ToJson(const bench::Summary& summary) {
  if (summary.samples == 0) return nullptr;
  return {{"median", Rounded(summary.median)}, {"min", Rounded(summary.min)},
          {"p10", Rounded(summary.p10)},       {"p90", Rounded(summary.p90)},
          {"max", Rounded(summary.max)},       {"samples", summary.samples}};
}

Json ToJson(Verdict verdict) {
  return verdict == Verdict::kNone ? Json(nullptr) : Json(verdict == Verdict::kMet);
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json ToJson(const Conditions& conditions) {
  return {{"device", TextOrNull(conditions.device)},
          {"driver", TextOrNull(conditions.driver)},
          {"cpu", conditions.cpu},
          {"cores", conditions.cores},
          {"kernel", conditions.kernel},
          {"date", conditions.date},
          {"commit", conditions.commit},
          {"compiler", conditions.compiler},
          {"device_sources", conditions.sources},
          {"architecture", conditions.architecture},
          {"workers", conditions.workers},
          {"entries", conditions.entries}};
}

Json ToJson(const Measurement& row, int cores) {
  Json json = {
      {"part", row.part}, {"what", row.what}, {"subject", row.subject}, {"unit", row.unit}};
  json["value"] = ToJson(row.value);
  json["reason"] = TextOrNull(row.reason);
  json["bar"] = row.bar > 0 ? Json(row.bar) : Json(nullptr);
  json["bar_cores"] = row.bar_cores > 0 ? Json(row.bar_cores) : Json(nullptr);
  json["within_bar"] = ToJson(Judge(row, cores));
  json["note"] = TextOrNull(row.note);
  return json;
}

}  // namespace

Verdict Judge(const Measurement& measurement, int cores) {
  if (measurement.bar <= 0 || measurement.value.samples == 0) return Verdict::kNone;
  const bool met = measurement.value.median < measurement.bar;
  if (!met && cores < measurement.bar_cores) return Verdict::kNone;  // too small a machine
  return met ? Verdict::kMet : Verdict::kMissed;
}

std::string RenderReport(const Conditions& conditions, const std::vector<Measurement>& rows) {
  // One line per row: a later run gives a readable difference.
  std::string text =
      absl::StrCat("{\n\"conditions\": ", ToJson(conditions).dump(), ",\n\"rows\": [");
  const char* separator = "\n";
  for (const Measurement& row : rows) {
    absl::StrAppend(&text, separator, ToJson(row, conditions.cores).dump());
    separator = ",\n";
  }
  return absl::StrCat(text, "\n]\n}\n");
}

std::string Describe(const Measurement& row, int cores) {
  std::string line = absl::StrFormat("(%s) %-34s %-36s ", row.part, row.what, row.subject);
  if (row.value.samples == 0) {
    return absl::StrCat(line, "not measured: ", row.reason.substr(0, row.reason.find('\n')));
  }
  absl::StrAppendFormat(&line, "%10.3f %s  (%.3f to %.3f, %d samples)", row.value.median, row.unit,
                        row.value.p10, row.value.p90, row.value.samples);
  switch (Judge(row, cores)) {
    case Verdict::kMet:
      return absl::StrCat(line, "  below ", row.bar);
    case Verdict::kMissed:
      return absl::StrCat(line, "  NOT below ", row.bar);
    case Verdict::kNone:
      return line;
  }
  return line;
}

}  // namespace gemmd::jit_bench

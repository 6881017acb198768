#include "tests/bench/host/report.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gemmd::bench {
namespace {

using Json = nlohmann::ordered_json;

// Three decimals: a nanosecond, where CUPTI's clock ends.
double Rounded(double value) { return std::round(value * 1000) / 1000; }

Json ToJson(const Summary& summary) {
  if (summary.samples == 0) return nullptr;
  return {{"median", Rounded(summary.median)}, {"min", Rounded(summary.min)},
          {"p10", Rounded(summary.p10)},       {"p90", Rounded(summary.p90)},
          {"max", Rounded(summary.max)},       {"samples", summary.samples}};
}

// JSON has no NaN.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json("not a number"); }

Json ToJson(const CheckResult& check) {
  if (check.elements == 0) return nullptr;
  return {{"passed", check.passed},
          {"elements", check.elements},
          {"relative_error", Number(check.error)},
          {"control_error", Number(check.control_error)},
          {"inspected", check.inspected},
          {"unwritten", check.unwritten}};
}

Json ToJson(const GpuState& gpu) {
  return {{"sm_mhz", gpu.sm_mhz},
          {"memory_mhz", gpu.memory_mhz},
          {"celsius", gpu.celsius},
          {"watts", gpu.watts}};
}

double Flops(const Row& row) {
  return 2 * static_cast<double>(row.m) * static_cast<double>(row.n) * static_cast<double>(row.k);
}

int64_t Bytes(const Row& row) { return row.weight_bytes + row.activation_bytes; }

double Rate(double amount, double microseconds, double unit) {
  return microseconds > 0 ? amount / (microseconds * 1e-6) / unit : 0;
}

}  // namespace

Json ToJson(const Conditions& conditions) {
  return {
      {"device", conditions.device},
      {"uuid", conditions.uuid},
      {"driver", conditions.driver},
      {"cuda", conditions.cuda},
      {"date", conditions.date},
      {"commit", conditions.commit},
      {"kernels_digest", conditions.digest},
      {"cupti", conditions.cupti},
      {"cublas", conditions.cublas},
      {"sm_count", conditions.sm_count},
      {"max_sm_mhz", conditions.max_sm_mhz},
      {"max_memory_mhz", conditions.max_memory_mhz},
      {"l2", absl::StrCat("cold: ", conditions.flush_bytes, " bytes written before each launch")},
      {"warmups", conditions.warmups},
      {"samples", conditions.samples},
      {"kernel_us", "sum of the CUPTI durations of the kernels of one operation"}};
}

Json ToJson(const Row& row, const Conditions& conditions) {
  Json json = {
      {"implementation", row.implementation},
      {"format", row.format},
      {"N", row.n},
      {"K", row.k},
      {"M", row.m},
      {"kernel_us", ToJson(row.kernel_us)},
      {"graph_us", ToJson(row.graph_us)},
      {"graph_span_us", ToJson(row.graph_span_us)},
      {"host_us", ToJson(row.host_us)},
      {"weight_bytes", row.weight_bytes},
      {"activation_bytes", row.activation_bytes},
      {"gb_per_s", Rounded(Rate(static_cast<double>(Bytes(row)), row.kernel_us.median, 1e9))},
      {"tflops", Rounded(Rate(Flops(row), row.kernel_us.median, 1e12))},
      {"x_type", row.x_type},
      {"y_type", row.y_type},
      {"activation_used", row.activation_used},
      {"reason", row.reason},
      {"kernel", row.kernel},
      {"device_kernels", row.device_kernels},
      {"check", ToJson(row.check)},
      {"gpu", ToJson(row.gpu)},
      {"device", conditions.device},
      {"driver", conditions.driver},
      {"commit", conditions.commit},
      {"error", row.error}};
  Json config = Json::object();
  for (const auto& [field, value] : row.config) config[field] = value;
  json["config"] = std::move(config);
  return json;
}

std::string RenderReport(const Conditions& conditions, const std::vector<Row>& rows,
                         const std::vector<std::string>& missing) {
  // One line per row: a later run of the same points gives a readable difference.
  std::string text = absl::StrCat("{\n\"conditions\": ", ToJson(conditions).dump(),
                                  ",\n\"missing\": ", Json(missing).dump(), ",\n\"rows\": [");
  const char* separator = "\n";
  for (const Row& row : rows) {
    absl::StrAppend(&text, separator, ToJson(row, conditions).dump());
    separator = ",\n";
  }
  return absl::StrCat(text, "\n]\n}\n");
}

std::string Describe(const Row& row) {
  std::string line = absl::StrFormat(
      "%-18s %-24s N %5d K %5d M %5d  kernel %9.2f us  graph %9.2f us  host %6.2f us  "
      "%7.1f GB/s %7.1f TFLOP/s",
      row.implementation, row.format, row.n, row.k, row.m, row.kernel_us.median,
      row.graph_us.median, row.host_us.median,
      Rate(static_cast<double>(Bytes(row)), row.kernel_us.median, 1e9),
      Rate(Flops(row), row.kernel_us.median, 1e12));
  if (row.check.elements > 0) absl::StrAppend(&line, row.check.passed ? "  right" : "  WRONG");
  if (!row.error.empty()) absl::StrAppend(&line, "  ", row.error);
  return line;
}

}  // namespace gemmd::bench

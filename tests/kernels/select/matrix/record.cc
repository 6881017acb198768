#include "tests/kernels/select/matrix/record.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status.h"
#include "kernels/jit/embedded_sources.h"

namespace gemmd::matrix {
namespace {

using Json = nlohmann::ordered_json;

struct Counts {
  size_t cases = 0;
  size_t compiled = 0;
  size_t failed = 0;
  size_t missing() const { return cases - compiled - failed; }
};

std::map<std::string, Counts> CountByArchitecture(const Record& record,
                                                  const std::vector<MatrixCase>& cases) {
  std::map<std::string, Counts> counts;
  for (size_t i = 0; i < cases.size() && i < record.size; ++i) {
    Counts& of = counts[cases[i].source.architecture];
    ++of.cases;
    of.compiled += record.compiled.Has(i);
    of.failed += record.failed.Has(i);
  }
  return counts;
}

Extremes ExtremesOf(const Record& record, const std::string& architecture) {
  const auto found = record.extremes.find(architecture);
  return found == record.extremes.end() ? Extremes{} : found->second;
}

Json ToJson(const Fault& fault) {
  return {{"case", fault.number},
          {"kernel", fault.kernel},
          {"architecture", fault.architecture},
          {"what", fault.what},
          {"text", fault.text}};
}

Fault FaultOf(const Json& json) {
  return {json.at("case"), json.at("kernel"), json.at("architecture"), json.at("what"),
          json.at("text")};
}

Json ToJson(const Run& run) {
  return {{"date", run.date},       {"cpu", run.cpu},     {"cores", run.cores},
          {"workers", run.workers}, {"shard", run.shard}, {"seconds", run.seconds},
          {"cases", run.cases}};
}

Run RunOf(const Json& json) {
  return {json.at("date"),  json.at("cpu"),     json.at("cores"), json.at("workers"),
          json.at("shard"), json.at("seconds"), json.at("cases")};
}

Json ToJson(const std::vector<Fault>& faults) {
  Json list = Json::array();
  for (const Fault& fault : faults) list.push_back(ToJson(fault));
  return list;
}

Json Architectures(const Record& record, const std::vector<MatrixCase>& cases) {
  Json json = Json::object();
  for (const auto& [architecture, counts] : CountByArchitecture(record, cases)) {
    const Extremes extremes = ExtremesOf(record, architecture);
    json[architecture] = {{"cases", counts.cases},
                          {"compiled", counts.compiled},
                          {"failed", counts.failed},
                          {"missing", counts.missing()},
                          {"largest_frame", extremes.largest_frame},
                          {"largest_registers", extremes.largest_registers},
                          {"longest_seconds", extremes.longest_seconds}};
  }
  return json;
}

absl::StatusOr<Record> FromJson(const Json& json) {
  Record record(json.at("matrix").at("cases").get<size_t>());
  record.matrix_digest = json.at("matrix").at("digest");
  record.sources_digest = json.at("device_sources");
  record.compiler = json.at("compiler");
  record.commit = json.at("commit");
  GEMMD_ASSIGN_OR_RETURN(record.compiled, CaseSet::Parse(json.at("compiled"), record.size));
  GEMMD_ASSIGN_OR_RETURN(record.failed, CaseSet::Parse(json.at("failed"), record.size));
  for (const Json& fault : json.at("faults")) record.faults.push_back(FaultOf(fault));
  for (const Json& fault : json.at("stacks")) record.stacks.push_back(FaultOf(fault));
  for (const auto& [architecture, counts] : json.at("architectures").items()) {
    record.extremes[architecture] = {counts.at("largest_frame"), counts.at("largest_registers"),
                                     counts.at("longest_seconds")};
  }
  for (const Json& run : json.at("runs")) record.runs.push_back(RunOf(run));
  return record;
}

template <typename T>
void AddMissing(const std::vector<T>& from, std::vector<T>& into) {
  for (const T& item : from) {
    if (std::find(into.begin(), into.end(), item) == into.end()) into.push_back(item);
  }
}

}  // namespace

Record RecordOf(const std::vector<MatrixCase>& cases, const std::string& compiler,
                const std::string& commit) {
  Record record(cases.size());
  record.matrix_digest = DigestOf(cases);
  record.sources_digest = jit::EmbeddedSourcesDigest();
  record.compiler = compiler;
  record.commit = commit;
  return record;
}

std::string Render(const Record& record, const std::vector<MatrixCase>& cases) {
  Json json;
  json["matrix"] = {{"digest", record.matrix_digest}, {"cases", record.size}};
  json["device_sources"] = record.sources_digest;
  json["compiler"] = record.compiler;
  json["commit"] = record.commit;
  json["complete"] = record.complete();
  json["passed"] = record.complete() && record.faults.empty();
  json["architectures"] = Architectures(record, cases);
  json["faults"] = ToJson(record.faults);
  json["stacks"] = ToJson(record.stacks);
  json["compiled"] = record.compiled.ToText();
  json["failed"] = record.failed.ToText();
  json["runs"] = Json::array();
  for (const Run& run : record.runs) json["runs"].push_back(ToJson(run));
  // A log may hold bytes that are no UTF-8.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<Record> Parse(const std::string& text) {
  try {
    return FromJson(Json::parse(text));
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("no record of a matrix: ", error.what()));
  }
}

absl::Status SameMatrix(const Record& a, const Record& b) {
  const auto differs = [](const char* what, const std::string& one, const std::string& other) {
    return absl::FailedPreconditionError(
        absl::StrCat("records of different ", what, ": ", one, " and ", other));
  };
  if (a.sources_digest != b.sources_digest) {
    return differs("device sources", a.sources_digest, b.sources_digest);
  }
  if (a.matrix_digest != b.matrix_digest || a.size != b.size) {
    return differs("matrices", a.matrix_digest, b.matrix_digest);
  }
  if (a.compiler != b.compiler) return differs("compilers", a.compiler, b.compiler);
  return absl::OkStatus();
}

absl::Status Merge(const Record& from, Record& into) {
  GEMMD_RETURN_IF_ERROR(SameMatrix(from, into));
  into.compiled |= from.compiled;
  into.failed |= from.failed;
  AddMissing(from.faults, into.faults);
  AddMissing(from.stacks, into.stacks);
  AddMissing(from.runs, into.runs);
  for (const auto& [architecture, extremes] : from.extremes) {
    Extremes& of = into.extremes[architecture];
    of.largest_frame = std::max(of.largest_frame, extremes.largest_frame);
    of.largest_registers = std::max(of.largest_registers, extremes.largest_registers);
    of.longest_seconds = std::max(of.longest_seconds, extremes.longest_seconds);
  }
  return absl::OkStatus();
}

std::string Describe(const Record& record, const std::vector<MatrixCase>& cases) {
  std::string text;
  for (const auto& [architecture, counts] : CountByArchitecture(record, cases)) {
    const Extremes extremes = ExtremesOf(record, architecture);
    absl::StrAppendFormat(&text,
                          "%-8s %6d kernels: %6d compiled, %d failed, %d missing; at most %d "
                          "registers, %d bytes of stack, %.1f s\n",
                          architecture, counts.cases, counts.compiled, counts.failed,
                          counts.missing(), extremes.largest_registers, extremes.largest_frame,
                          extremes.longest_seconds);
  }
  absl::StrAppend(&text, record.size, " kernels in all, ", record.size - record.done(),
                  " missing, ", record.faults.size(), " faults, ", record.stacks.size(),
                  " with a stack where none was promised\n");
  return text;
}

}  // namespace gemmd::matrix

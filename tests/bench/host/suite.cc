#include "tests/bench/host/suite.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace gemmd::bench {
namespace {

template <typename T>
bool Passes(const std::vector<T>& list, const T& value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

bool IsCount(const nlohmann::json& value) {
  return value.is_number_integer() && value.get<int64_t>() > 0;
}

absl::StatusOr<Problem> ParseProblem(const nlohmann::json& entry) {
  const bool complete = entry.is_object() && entry.contains("format") &&
                        entry["format"].is_string() && entry.contains("N") && IsCount(entry["N"]) &&
                        entry.contains("K") && IsCount(entry["K"]) && entry.contains("M") &&
                        entry["M"].is_array() &&
                        std::all_of(entry["M"].begin(), entry["M"].end(), IsCount);
  if (!complete) {
    return absl::InvalidArgumentError(absl::StrCat(
        "suite: a dense entry needs format, N, K and a list M of positive integers; got ",
        entry.dump()));
  }
  return Problem{entry["format"].get<std::string>(), entry["N"].get<int64_t>(),
                 entry["K"].get<int64_t>(), entry["M"].get<std::vector<int64_t>>()};
}

}  // namespace

absl::StatusOr<std::vector<Problem>> ParseSuite(const std::string& json) {
  const nlohmann::json suite = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!suite.is_object() || !suite.contains("dense") || !suite["dense"].is_array()) {
    return absl::InvalidArgumentError("suite: no JSON object with a list `dense`");
  }
  std::vector<Problem> problems;
  for (const nlohmann::json& entry : suite["dense"]) {
    absl::StatusOr<Problem> problem = ParseProblem(entry);
    if (!problem.ok()) return problem.status();
    problems.push_back(*std::move(problem));
  }
  return problems;
}

std::vector<Problem> Narrow(const std::vector<Problem>& problems, const Filter& filter) {
  std::vector<Problem> kept;
  for (const Problem& problem : problems) {
    if (!Passes(filter.formats, problem.format) || !Passes(filter.n, problem.n) ||
        !Passes(filter.k, problem.k)) {
      continue;
    }
    kept.push_back(problem);
    if (!filter.m.empty()) kept.back().m = filter.m;
  }
  return kept;
}

}  // namespace gemmd::bench

// What    gemmctl inspect, run as a user would, and what it reports.
#ifndef GEMMD_TESTS_CLIENT_GEMMCTL_INSPECTION_H_
#define GEMMD_TESTS_CLIENT_GEMMCTL_INSPECTION_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/client/gemmctl/tool.h"

namespace gemmd::gemmctl {

inline constexpr char kGptqCase[] = "gptq_v1_autogptq_b4_g128_sym";
inline constexpr char kDownProj[] = "model.layers.0.mlp.down_proj";

struct Inspection {
  int code = -1;
  nlohmann::json report;
};

inline Inspection Inspect(const std::filesystem::path& directory) {
  const ToolRun run = Tool({"inspect", directory.string(), "-o", "json"});
  return {run.code, nlohmann::json::parse(run.out)};
}

// Of a checkpoint with exactly one.
inline nlohmann::json OnlyProblem(const std::filesystem::path& directory) {
  const Inspection inspection = Inspect(directory);
  EXPECT_EQ(inspection.code, kFailed);
  EXPECT_EQ(inspection.report["problems"].size(), 1u) << inspection.report["problems"].dump(2);
  return inspection.report["problems"].empty() ? nlohmann::json() : inspection.report["problems"][0];
}

// The answer of `device` for the first module.
inline nlohmann::json DeviceOf(const nlohmann::json& report, const std::string& device) {
  const nlohmann::json& module = report["modules"][0];
  for (const nlohmann::json& answer : report["device_sets"][module["device_set"].get<size_t>()]) {
    if (answer["device"] == device) return answer;
  }
  ADD_FAILURE() << "no device " << device;
  return {};
}

}  // namespace gemmd::gemmctl

#endif  // GEMMD_TESTS_CLIENT_GEMMCTL_INSPECTION_H_

#include "client/gemmctl/execution_report.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/gemmctl/arguments.h"
#include "client/gemmctl/proto_json.h"

namespace gemmd::gemmctl {

std::string NumericsText(const v1::ExecutionReport& report) {
  const auto hex = [](uint64_t id) { return absl::StrCat(absl::Hex(id, absl::kZeroPad16)); };
  if (report.numerics() == 0) return "";
  if (report.armed_numerics() == 0) return hex(report.numerics());
  return absl::StrCat(hex(report.numerics()), "; ready beside them: ", hex(report.armed_numerics()));
}

std::string SumsText(const v1::ExecutionReport& report) {
  const bool half = absl::StrContains(report.kernel(), "_f16sums");  // as kernels/select names them
  return half ? "float16" : "not float16: --fp16-accumulation had no effect on this kernel";
}

nlohmann::ordered_json ReportJson(const v1::ExecutionReport& report) {
  nlohmann::ordered_json json = ToJson(report);
  if (report.numerics() == 0) json.erase("numerics");
  if (report.armed_numerics() == 0) json.erase("armed_numerics");
  if (report.hadamard_block() == 0) json.erase("hadamard_block");
  return json;
}

absl::StatusOr<uint64_t> ParseNumerics(const std::string& text) {
  uint64_t id = 0;
  if (!absl::SimpleHexAtoi(text, &id)) {
    return BadArgument(absl::StrCat("--numerics '", text, "' is no id of 16 hexadecimal digits"));
  }
  if (id == 0) {
    return BadArgument(absl::StrCat("--numerics '", text,
                                    "' is no kernel's id: the device or the layer has no kernels that can be "
                                    "named; --batch-invariant works everywhere"));
  }
  return id;
}

}  // namespace gemmd::gemmctl

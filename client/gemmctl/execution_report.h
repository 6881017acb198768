// What    What a reply says of its execution, as text and as JSON.
// Threads Pure functions.
#ifndef GEMMD_CLIENT_GEMMCTL_EXECUTION_REPORT_H_
#define GEMMD_CLIENT_GEMMCTL_EXECUTION_REPORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "gemmd/v1/types.pb.h"
#include "nlohmann/json.hpp"

namespace gemmd::gemmctl {

// "0123456789abcdef; ready beside them: fedcba9876543210"; empty where the kernel has no id.
std::string NumericsText(const v1::ExecutionReport& report);

// Of a request that permitted sums of float16: whether the kernel made use of it.
std::string SumsText(const v1::ExecutionReport& report);

// ToJson() without the ids that there are not.
nlohmann::ordered_json ReportJson(const v1::ExecutionReport& report);

// An id as NumericsText() and ReportJson() write it. InvalidArgument BAD_ARGUMENT.
absl::StatusOr<uint64_t> ParseNumerics(const std::string& text);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_EXECUTION_REPORT_H_

// What    A CheckpointReport for people and for scripts.
// Layout  Text: a summary, the modules (numbered names with the same scheme and shape share a line), the
//         devices of each scheme, the problems. JSON: the report, every module by
//         itself; device_set is its index in device_sets, the distinct answers of devices.
// Threads Pure functions.
#ifndef GEMMD_CLIENT_GEMMCTL_INSPECT_TEXT_H_
#define GEMMD_CLIENT_GEMMCTL_INSPECT_TEXT_H_

#include <string>

#include "client/gemmctl/inspect_checkpoint.h"
#include "nlohmann/json.hpp"

namespace gemmd::gemmctl {

// "int4, bfloat16 scale per 1 x 128": weight, zero points, scales, secondary scale, order of columns.
std::string SchemeText(const StandardTensor& tensor);

// "as given", or what the checkpoint declares: "e4m3, per token".
std::string ActivationText(const StandardTensor& tensor);

// `every_module`: a line for each, whatever their names have in common.
std::string ReportText(const CheckpointReport& report, bool every_module);

nlohmann::ordered_json ReportJson(const CheckpointReport& report);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_INSPECT_TEXT_H_

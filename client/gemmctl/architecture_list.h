// What    The names of --arch LIST.
#ifndef GEMMD_CLIENT_GEMMCTL_ARCHITECTURE_LIST_H_
#define GEMMD_CLIENT_GEMMCTL_ARCHITECTURE_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gemmd::gemmctl {

// "sm_90a,sm_80" -> {sm_90a, sm_80}. Usage error: an empty name.
absl::StatusOr<std::vector<std::string>> ArchitectureNames(const std::string& list);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_ARCHITECTURE_LIST_H_

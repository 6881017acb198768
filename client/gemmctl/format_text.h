// What    Number formats by their usual short names: "int4", "float32", "bfloat16", "e4m3", "e8m0".
// Threads Pure functions.
#ifndef GEMMD_CLIENT_GEMMCTL_FORMAT_TEXT_H_
#define GEMMD_CLIENT_GEMMCTL_FORMAT_TEXT_H_

#include <string>

#include "gemmd/v1/types.pb.h"

namespace gemmd::gemmctl {

// `absent` for a format that is not set.
std::string FormatText(const v1::NumberFormat& format, const std::string& absent);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_FORMAT_TEXT_H_

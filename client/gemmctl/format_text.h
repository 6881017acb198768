// What    Number formats by their usual short names: "int4", "float32", "bfloat16", "e4m3", "e8m0"; what a layer is
//         said to be made of.
// Threads Pure functions.
#ifndef GEMMD_CLIENT_GEMMCTL_FORMAT_TEXT_H_
#define GEMMD_CLIENT_GEMMCTL_FORMAT_TEXT_H_

#include <string>

#include "gemmd/v1/layer.pb.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::gemmctl {

// Where a layer's weights come from: "gptq"; "unquantized, quantized" by the daemon.
std::string SourceText(const v1::LayerInfo& info);
// How the daemon quantized it, and what that cost; empty where it did not.
std::string QuantizedText(const v1::LayerInfo& info);

// `absent` for a format that is not set.
std::string FormatText(const v1::NumberFormat& format, const std::string& absent);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_FORMAT_TEXT_H_

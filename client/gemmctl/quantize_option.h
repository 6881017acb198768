// What    --quantize SPEC: what the daemon, or export, makes of unquantized weights.
// Errors  InvalidArgument BAD_ARGUMENT naming SPEC and the word in it.
// Threads One thread.
#ifndef GEMMD_CLIENT_GEMMCTL_QUANTIZE_OPTION_H_
#define GEMMD_CLIENT_GEMMCTL_QUANTIZE_OPTION_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/gemmctl/arguments.h"
#include "core/quant/quantize_layer.h"
#include "gemmd/v1/layer.pb.h"

namespace gemmd::gemmctl {

// `when` comes before what it says.
Option QuantizeOption(const std::string& when = "");

// Paragraphs for --help: what SPEC is made of.
std::string QuantizeHelp();

// None where it is not given.
absl::StatusOr<std::optional<v1::QuantizeTo>> QuantizeOf(const Arguments& arguments);

// The same for core, of what QuantizeOf gave.
QuantizeTarget TargetOf(const v1::QuantizeTo& from);

// Both, for commands without a daemon. What the daemon says of a target that cannot be made, too: InvalidArgument
// BAD_SPEC, Unimplemented UNSUPPORTED_SPEC.
absl::StatusOr<std::optional<QuantizeTarget>> QuantizeTargetOf(const Arguments& arguments);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_QUANTIZE_OPTION_H_

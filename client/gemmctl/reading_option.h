// What    --gptq-zero-points RULE: how files are read that can be read in two ways, for the daemon or for commands
//         without one.
// Errors  InvalidArgument BAD_ARGUMENT naming RULE and what it may be.
// Threads One thread.
#ifndef GEMMD_CLIENT_GEMMCTL_READING_OPTION_H_
#define GEMMD_CLIENT_GEMMCTL_READING_OPTION_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/gemmctl/arguments.h"
#include "core/checkpoint/reading_options.h"
#include "gemmd/v1/layer.pb.h"

namespace gemmd::gemmctl {

// `otherwise`: what happens where it is not given.
Option GptqZeroPointsOption(const std::string& otherwise);

// UNSPECIFIED where it is not given: as the daemon is set.
absl::StatusOr<v1::GptqZeroPoints> GptqZeroPointsOf(const Arguments& arguments);

// For commands without a daemon, whose default is core's.
absl::StatusOr<ReadingOptions> ReadingOptionsOf(const Arguments& arguments);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_READING_OPTION_H_

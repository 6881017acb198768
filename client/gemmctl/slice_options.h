// What    The options that name a part of a module: one rank's rows, columns and experts.
// Errors  InvalidArgument BAD_ARGUMENT.
// Threads One thread.
#ifndef GEMMD_CLIENT_GEMMCTL_SLICE_OPTIONS_H_
#define GEMMD_CLIENT_GEMMCTL_SLICE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/gemmctl/arguments.h"
#include "gemmd/v1/layer.pb.h"

namespace gemmd::gemmctl {

// --rows, --columns, --experts, --row-parts.
std::vector<Option> SliceOptions();

absl::StatusOr<v1::LayerSlice> SliceOf(const Arguments& arguments);

// Of RANK/SIZE, which `option` has as `text`.
absl::Status CheckRank(const std::string& option, const std::string& text, uint32_t rank,
                       uint32_t size);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_SLICE_OPTIONS_H_

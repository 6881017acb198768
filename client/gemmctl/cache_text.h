// What    What the commands about compiled kernels say alike.
// Threads Any.
#ifndef GEMMD_CLIENT_GEMMCTL_CACHE_TEXT_H_
#define GEMMD_CLIENT_GEMMCTL_CACHE_TEXT_H_

#include <string>

#include "client/gemmctl/command.h"
#include "gemmd/v1/admin.pb.h"

namespace gemmd::gemmctl {

using NamedKernels = google::protobuf::RepeatedPtrField<v1::CachedKernel>;

// A line for each on stderr: "`what` KEY: its problem".
void TellProblems(const Context& context, const std::string& what, const NamedKernels& kernels);

// A warning on stderr, when kernels went again: for want of room, or because somebody removed them. `what`: "imported", for example.
void WarnOfOverflow(const Context& context, const std::string& what, const v1::CacheOverflow& overflow);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_CACHE_TEXT_H_

// What    Many cache entries as one file, to carry a warm cache to another machine.
// Layout  Little-endian: magic "GEMMDBND", u32 schema, u32 number of entries; per entry a u64 size
//         and the entry (cache_entry.h); then SHA-256 over everything before it.
// Errors  DataLoss BUNDLE_DAMAGED: short, long, changed, or an entry in it that is not whole.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_JIT_BUNDLE_H_
#define GEMMD_KERNELS_JIT_BUNDLE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd::jit {

// Of the first bytes of what may become a bundle, however few: whether they can be a bundle's.
absl::Status CheckBundleStart(absl::string_view start);

std::string EncodeBundle(const std::vector<std::string>& entries);

// (key, entry) in the order of the bundle, every entry verified.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> DecodeBundle(
    absl::string_view bundle);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_BUNDLE_H_

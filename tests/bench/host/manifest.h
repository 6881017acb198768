// What    The layers of a suite as a manifest of gemmctl prewarm and tune: a PrewarmRequest as JSON.
// Errors  NotFound: an unknown format.
// Threads Pure function.
#ifndef GEMMD_TESTS_BENCH_HOST_MANIFEST_H_
#define GEMMD_TESTS_BENCH_HOST_MANIFEST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/bench/host/suite.h"

namespace gemmd::bench {

// Each layer once.
absl::StatusOr<std::string> RenderManifest(const std::vector<Problem>& problems);

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_HOST_MANIFEST_H_

// What    How fast the files of a folder can be read and do nothing else: the bound for loading them.
// How     pread of 16 MiB at a time, whole files dealt to `threads` threads: into one buffer each, or into memory
//         that was never touched, which is what loading into host memory cannot avoid.
// Errors  Unavailable: a file cannot be read.
// Threads Pure functions of the files.
#ifndef GEMMD_TESTS_BENCH_LOADING_PLAIN_READ_H_
#define GEMMD_TESTS_BENCH_LOADING_PLAIN_READ_H_

#include <cstdint>
#include <filesystem>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gemmd::bench {

struct ReadRate {
  uint64_t bytes = 0;
  double seconds = 0;
  double bytes_per_second() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

// The .safetensors files of `directory`, sorted.
absl::StatusOr<std::vector<std::filesystem::path>> TensorFiles(
    const std::filesystem::path& directory);

enum class Target { kOneBuffer, kFreshMemory };
absl::StatusOr<ReadRate> ReadAll(const std::vector<std::filesystem::path>& files, int threads,
                                 Target target = Target::kOneBuffer);

// Asks the system to forget the files' pages, so that the next read comes from the disk. Written pages are
// synced first.
absl::Status DropFromCache(const std::vector<std::filesystem::path>& files);

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_LOADING_PLAIN_READ_H_

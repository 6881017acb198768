// What    A cache directory of many entries: the subjects' kernels, compiled once each and stored
//         again and again under the keys of their variants, as whole entries of a cache.
// Errors  As jit::Compile and jit::DiskTier.
// Threads One thread.
#ifndef GEMMD_TESTS_BENCH_JIT_PARTS_FILLED_CACHE_H_
#define GEMMD_TESTS_BENCH_JIT_PARTS_FILLED_CACHE_H_

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/jit/compiler.h"

namespace gemmd::jit_bench {

// What was stored, one source an entry.
absl::StatusOr<std::vector<jit::KernelSource>> FillCache(const std::filesystem::path& directory,
                                                         const std::string& architecture,
                                                         int entries);

// Makes the next reads of the directory's files go to the disk, as far as the system obeys.
void DropFromPageCache(const std::filesystem::path& directory);

}  // namespace gemmd::jit_bench

#endif  // GEMMD_TESTS_BENCH_JIT_PARTS_FILLED_CACHE_H_

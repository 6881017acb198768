// What    Checkpoints of a wanted size for measuring how they load: int4, groups of 128 or another size, random
//         codes, in several safetensors files with an index. Every layer differs, so none is loaded once for two.
// Layout  As GPTQ ("gptq", checkpoint_format gptq, symmetric) or compressed-tensors ("pack-quantized") write
//         it: core/checkpoint/README.md. Modules are model.layers.<i>.mlp.down_proj.
// Errors  InvalidArgument: the options contradict each other. Unavailable: a file cannot be written.
// Threads Pure functions of the files.
#ifndef GEMMD_TESTS_BENCH_LOADING_SYNTHETIC_CHECKPOINT_H_
#define GEMMD_TESTS_BENCH_LOADING_SYNTHETIC_CHECKPOINT_H_

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace gemmd::bench {

struct SyntheticOptions {
  std::string format = "pack-quantized";
  uint64_t bytes = uint64_t{2} << 30;  // of all tensors, rounded up to whole layers
  int64_t n = 8192;                    // a multiple of 8
  int64_t k = 8192;                    // a multiple of group
  int64_t group = 128;                 // a multiple of 8
  int shards = 4;
};

struct SyntheticCheckpoint {
  int64_t layers = 0;
  uint64_t tensor_bytes = 0;
};

// Writes into `directory`, which is created.
absl::StatusOr<SyntheticCheckpoint> MakeCheckpoint(const std::filesystem::path& directory,
                                                   const SyntheticOptions& options);

std::string LayerName(int64_t layer);

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_LOADING_SYNTHETIC_CHECKPOINT_H_

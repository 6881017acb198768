// What    Compiles cases of the matrix on several threads and notes what became of each.
// Errors  None: a kernel that does not compile, warns, or spills where it promises not to is a fault of
//         the record.
// Threads CasesToCompile is a pure function. CompileCases starts and joins its own; `tick` is called from the calling thread.
#ifndef GEMMD_TESTS_KERNELS_SELECT_MATRIX_RUNNER_H_
#define GEMMD_TESTS_KERNELS_SELECT_MATRIX_RUNNER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "kernels/jit/nvrtc.h"
#include "tests/kernels/select/matrix/matrix_cases.h"
#include "tests/kernels/select/matrix/record.h"

namespace gemmd::matrix {

struct RunOptions {
  int workers = 1;
  size_t shard = 0;  // of `shards`: cases shard, shard + shards, ...
  size_t shards = 1;
  std::optional<uint64_t> seed = {};  // in a random order: what is done before the deadline is a sample
  absl::Time deadline = absl::InfiniteFuture();  // no case begins after it
  absl::Duration tick_every = absl::Seconds(5);
};

struct Progress {
  size_t finished = 0;  // cases of this run
  size_t total = 0;     // of the shard, without what was done before
};

// What the shard has and the record has not, in the order of compiling.
std::vector<size_t> CasesToCompile(const RunOptions& options, const Record& record);

// Compiles what the shard has and the record has not; the number of cases. `tick` is called now and then
// with the record as it is.
size_t CompileCases(const jit::NvrtcTable& nvrtc, const std::vector<MatrixCase>& cases,
                    const RunOptions& options, Record& record,
                    const std::function<void(const Progress&, const Record&)>& tick);

}  // namespace gemmd::matrix

#endif  // GEMMD_TESTS_KERNELS_SELECT_MATRIX_RUNNER_H_

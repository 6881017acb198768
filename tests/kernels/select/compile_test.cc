// Compiles kernels with NVRTC, which needs no GPU. The normal run takes a sample that meets every format,
// scale type, option and architecture at least once; GEMMD_TEST_FULL=1 compiles the whole matrix, as
// gemmd_compile_matrix does, which can also do it in parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/base/status.h"
#include "kernels/jit/compile_queue.h"
#include "tests/kernels/select/matrix/runner.h"

namespace gemmd::matrix {
namespace {

TEST(CompileTest, EveryKernelCompilesWithoutSpillsAndWarnings) {
  const absl::StatusOr<const jit::NvrtcTable*> nvrtc = jit::LoadNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  const std::vector<MatrixCase> cases =
      std::getenv("GEMMD_TEST_FULL") != nullptr ? WholeMatrix() : Sample();
  Record record = RecordOf(cases, jit::CompilerName(**nvrtc), "");
  CompileCases(**nvrtc, cases, {.workers = jit::UsableProcessors()}, record,
               [](const Progress& progress, const Record&) {
                 std::printf("%zu of %zu\n", progress.finished, progress.total);
                 std::fflush(stdout);
               });
  EXPECT_TRUE(record.complete());
  for (const Fault& fault : record.faults) {
    ADD_FAILURE() << fault.kernel << " for " << fault.architecture << " " << fault.what << ": "
                  << fault.text;
  }
  std::printf("%s", Describe(record, cases).c_str());
}

}  // namespace
}  // namespace gemmd::matrix

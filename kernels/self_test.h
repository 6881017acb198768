// What    A kernel's self-test: before it serves on a GPU it must compute one small problem
//         (self_test_problem.h) exactly, and write nothing else.
// Errors  Test: SELF_TEST_FAILED is a verdict. Internal: a wrong element, a write outside of y, or a
//         launch that the driver refused. DataLoss: the kernel faulted or did not end, and the GPU's
//         context is lost. Any other error says nothing about the kernel: it could not be tested
//         (GPU_OOM, CONTEXT_LOST before its launch, SELF_TEST_IMPOSSIBLE).
// Threads One test at a time; the GPU's context is current.
#ifndef GEMMD_KERNELS_SELF_TEST_H_
#define GEMMD_KERNELS_SELF_TEST_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/cuda/driver.h"
#include "kernels/launch/gemm_plan.h"
#include "kernels/self_test_problem.h"

namespace gemmd {

class SelfTester {
 public:
  virtual ~SelfTester() = default;
  virtual absl::Status Test(const GemmKernel& kernel, const SelfTestSubject& subject) = 0;
};

// On the GPU, in memory of its own: some megabytes, kept for the next test.
std::unique_ptr<SelfTester> DeviceSelfTester(const cuda::DriverTable& driver);
// A kernel that runs longer than `limit` is taken to be stuck; above, a minute.
std::unique_ptr<SelfTester> DeviceSelfTester(const cuda::DriverTable& driver, absl::Duration limit);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_SELF_TEST_H_

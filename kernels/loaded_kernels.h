// What    The kernels that one GPU has loaded, each once per cubin; they stay loaded. A GEMM kernel
//         passes its self-test before it is handed out; one that fails is quarantined: no process of
//         the node runs it again under this driver.
// Errors  As cuda::LoadedLibrary. Internal KERNEL_QUARANTINED: the kernel failed its self-test, now or
//         earlier. DataLoss CONTEXT_LOST: its test took the GPU's context along. Else why it could not
//         be tested; it is tested when it is asked for again.
// Threads Thread-safe, one load at a time; the GPU's context is current in every call.
#ifndef GEMMD_KERNELS_LOADED_KERNELS_H_
#define GEMMD_KERNELS_LOADED_KERNELS_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "kernels/cuda/library.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/kernel_event.h"
#include "kernels/self_test.h"

namespace gemmd {

class LoadedKernels {
 public:
  // `tester` null: GEMM kernels are not tested. `observer` may be null.
  LoadedKernels(const cuda::DriverTable& driver, std::shared_ptr<jit::KernelCache> cache,
                std::unique_ptr<SelfTester> tester, KernelObserver observer);

  absl::StatusOr<CUkernel> Load(const jit::CompiledKernel& compiled);
  // `launch`: how the kernel is launched.
  absl::StatusOr<CUkernel> LoadGemm(const jit::CompiledKernel& compiled, const GemmKernel& launch,
                                    const SelfTestSubject& subject);

  // Since the start.
  uint64_t self_tests() const { return self_tests_; }
  uint64_t quarantined() const { return quarantined_; }

 private:
  struct Loaded {
    cuda::LoadedLibrary library;
    CUkernel kernel;
    bool may_serve = false;  // a GEMM that passed
  };

  absl::StatusOr<Loaded*> Find(const jit::CompiledKernel& compiled)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckGemm(const jit::CompiledKernel& compiled, GemmKernel launch,
                         const SelfTestSubject& subject, Loaded& loaded)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Quarantine(const jit::CompiledKernel& compiled, const absl::Status& verdict)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const cuda::DriverTable& driver_;
  const std::shared_ptr<jit::KernelCache> cache_;
  const std::unique_ptr<SelfTester> tester_;
  const KernelObserver observer_;
  int driver_version_ = 0;
  std::atomic<uint64_t> self_tests_{0};
  std::atomic<uint64_t> quarantined_{0};
  Mutex mutex_;
  std::map<std::string, Loaded> kernels_ ABSL_GUARDED_BY(mutex_);  // by key
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_LOADED_KERNELS_H_

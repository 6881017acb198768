// What    One GPU's kernels that transform x by Hadamard blocks in front of a dense GEMM. No layer knows them when
//         it is loaded, requests name the block: the first one starts the compilation and is refused, as nothing
//         compiles inside a request; those after it are served.
//
//   (new) ──cached──▶ READY
//     │                 ▲
//     └──asked──▶ COMPILING ──failed──▶ (new): one request tells why, the next asks again
//
// Errors  Find: Unavailable KERNEL_COMPILING. Unimplemented NO_KERNEL: groups of the layer and the block do not
//         fit each other. As jit::KernelCache and cuda::LoadedLibrary.
// Threads Thread-safe, one look-up at a time; the GPU's context is current in every call.
#ifndef GEMMD_KERNELS_HADAMARD_KERNELS_H_
#define GEMMD_KERNELS_HADAMARD_KERNELS_H_

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/layer_programs.h"
#include "kernels/loaded_kernels.h"

namespace gemmd {

class HadamardKernels {
 public:
  // `kernels` outlives the object.
  HadamardKernels(std::shared_ptr<jit::KernelCache> cache, LoadedKernels* kernels, std::string architecture);
  ~HadamardKernels();  // compilations that nobody else waits for are stopped
  HadamardKernels(const HadamardKernels&) = delete;
  HadamardKernels& operator=(const HadamardKernels&) = delete;

  // HadamardProgram's kernel, compiled and loaded. Valid while the object lives.
  absl::StatusOr<const QuantizeKernel*> Find(const QuantizeKernel& plain, int64_t block);

 private:
  struct Key {
    ElementType x_type;
    ElementType code_type;
    QuantizeMode mode;
    bool multiplies;
    int64_t k;
    int64_t group;
    int64_t block;
    auto operator<=>(const Key&) const = default;
  };
  // Shared with the cache, whose answer may come late.
  struct Answer {
    Mutex mutex;
    std::optional<absl::StatusOr<jit::SharedKernel>> compiled ABSL_GUARDED_BY(mutex);
  };
  struct Entry {
    QuantizeProgram program;         // its launch has a kernel: READY
    std::shared_ptr<Answer> answer;  // COMPILING
    uint64_t wish = 0;               // COMPILING: KernelCache::Ask's
  };

  absl::Status Advance(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Ask(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Load(Entry& entry, const jit::CompiledKernel& compiled)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<jit::KernelCache> cache_;
  LoadedKernels& kernels_;
  const std::string architecture_;
  Mutex mutex_;
  std::map<Key, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_HADAMARD_KERNELS_H_

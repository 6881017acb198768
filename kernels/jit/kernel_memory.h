// What    The memory tier: kernels by their source, so that a hit computes no digest; and the
//         failures that are remembered, by key.
// Threads None of its own: KernelTiers calls it under its mutex.
#ifndef GEMMD_KERNELS_JIT_KERNEL_MEMORY_H_
#define GEMMD_KERNELS_JIT_KERNEL_MEMORY_H_

#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/jit/compiler.h"

namespace gemmd::jit {

// Whether a failure was not met now, but is remembered (KernelMemory::FailureOf).
bool IsRemembered(const absl::Status& status);

using SharedKernel = std::shared_ptr<const CompiledKernel>;

class KernelMemory {
 public:
  SharedKernel Find(const KernelSource& source) const;  // or null
  void Keep(const KernelSource& source, SharedKernel kernel);

  // OK, or why `key` fails: the failure as it was, marked (IsRemembered), and its message says how long it is
  // remembered and what forgets it.
  absl::Status FailureOf(const std::string& key, absl::Time now) const;
  // Remembers failures that would come again: for good when the compiler rejects the source, for a
  // while when the compiler crashed.
  void RememberFailure(const std::string& key, const absl::Status& status, absl::Time now);
  void ForgetFailure(const std::string& key) { failures_.erase(key); }
  void ForgetFailures() { failures_.clear(); }

 private:
  struct Hash {
    size_t operator()(const KernelSource& source) const;
  };
  struct Equal {
    bool operator()(const KernelSource& a, const KernelSource& b) const;
  };
  struct Failure {
    absl::Status status;
    absl::Time until;
  };
  std::unordered_map<KernelSource, SharedKernel, Hash, Equal> kernels_;
  std::map<std::string, Failure> failures_;
};

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_KERNEL_MEMORY_H_

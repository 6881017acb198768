// What    Compilations that somebody wants and does not wait for, as long as the object lives.
//           Wishes wishes(cache);
//           wishes.Ask(source, CompilePriority::kSpecialise);  // starts, or joins the flight
// Threads Not thread-safe. No method waits for a compilation.
#ifndef GEMMD_KERNELS_JIT_WISHES_H_
#define GEMMD_KERNELS_JIT_WISHES_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/jit/kernel_cache.h"

namespace gemmd::jit {

class Wishes {
 public:
  explicit Wishes(std::shared_ptr<KernelCache> cache) : cache_(std::move(cache)) {}
  // Compilations that nobody else wants are stopped.
  ~Wishes() {
    for (const uint64_t wish : wishes_) cache_->Forget(wish);
  }
  Wishes(const Wishes&) = delete;
  Wishes& operator=(const Wishes&) = delete;

  void Ask(const KernelSource& source, CompilePriority priority) {
    wishes_.push_back(cache_->Ask(source, priority, [](const auto&) {}));
  }

 private:
  const std::shared_ptr<KernelCache> cache_;
  std::vector<uint64_t> wishes_;
};

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_WISHES_H_

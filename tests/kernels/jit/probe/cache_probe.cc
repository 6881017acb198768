// The other process of the kernel cache tests. Waits for the end of its standard input, then
//   cache_probe get DIRECTORY FACTOR   asks a KernelCache for a kernel and prints what it did
//   cache_probe lock DIRECTORY KEY     takes the lock of KEY, prints "held", and waits to be killed
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/jit/disk_tier.h"
#include "kernels/jit/kernel_cache.h"
#include "tests/kernels/jit/test_source.h"

namespace gemmd::jit {
namespace {

int Get(const char* directory, int factor) {
  const auto cache = KernelCache::Open(directory);
  if (!cache.ok()) return 1;
  const auto kernel = (*cache)->GetOrCompile(ScaleKernel(factor), absl::InfiniteFuture());
  if (!kernel.ok()) return 2;
  const CacheStats stats = (*cache)->stats();
  std::printf("compilations %d disk_hits %d\n", static_cast<int>(stats.compilations),
              static_cast<int>(stats.disk_hits));
  return 0;
}

int HoldLock(const char* directory, const char* key) {
  const auto tier = DiskTier::Open(directory);
  if (!tier.ok()) return 1;
  const KeyLock lock = tier->TryLock(key);
  if (lock.state() != KeyLock::State::kHeld) return 2;
  std::printf("held\n");
  std::fflush(stdout);
  while (true) pause();
}

}  // namespace
}  // namespace gemmd::jit

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  while (std::getchar() != EOF) {
  }
  const std::string mode = argv[1];
  return mode == "get" ? gemmd::jit::Get(argv[2], std::atoi(argv[3]))
                       : gemmd::jit::HoldLock(argv[2], argv[3]);
}

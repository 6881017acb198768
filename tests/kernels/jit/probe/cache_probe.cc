// The other process of the kernel cache tests. Waits for the end of its standard input, then
//   cache_probe get DIRECTORY FACTOR   asks a KernelCache for a kernel and prints what it did
//   cache_probe lock DIRECTORY KEY     takes the lock of KEY, prints "held", and waits to be killed
//   cache_probe crash DIRECTORY STEP   publishes a kernel and kills itself at the STEPth step of it
//   cache_probe builtins LIBRARY -     compiles with that NVRTC, prints which of its libraries it used
// `cache_probe helper` is a compile helper.
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/jit/compile_helper.h"
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
  const auto tier = DiskTier::Open({.directory = directory});
  if (!tier.ok()) return 1;
  const KeyLock lock = (*tier)->TryLock(key);
  if (lock.state() != KeyLock::State::kHeld) return 2;
  std::printf("held\n");
  std::fflush(stdout);
  while (true) pause();
}

int steps_left = 0;

void Step() {
  if (--steps_left == 0) raise(SIGKILL);
}

// The system's calls, each a step; a write is two.
FileCalls DeadlyCalls() {
  FileCalls calls = SystemFileCalls();
  calls.open = [](const char* path, int flags, mode_t mode) {
    if ((flags & O_CREAT) != 0) Step();
    return SystemFileCalls().open(path, flags, mode);
  };
  calls.write = [](int fd, const void* bytes, size_t size) -> ssize_t {
    static bool first = true;
    Step();
    const size_t part = first ? size / 2 : size;
    first = false;
    return write(fd, bytes, part);
  };
  calls.sync = [](int fd) {
    Step();
    return fsync(fd);
  };
  calls.rename = [](const char* from, const char* to) {
    Step();
    return rename(from, to);
  };
  return calls;
}

int Crash(const char* directory, int step) {
  const FileCalls calls = DeadlyCalls();
  const auto cache = KernelCache::Open({.directory = directory, .files = &calls});
  if (!cache.ok()) return 1;
  steps_left = step;
  return (*cache)->GetOrCompile(ScaleKernel(2), absl::InfiniteFuture()).ok() ? 0 : 2;
}

int PrintNvrtcLibrary(dl_phdr_info* info, size_t, void*) {
  if (std::string(info->dlpi_name).find("nvrtc") != std::string::npos) {
    std::printf("%s\n", info->dlpi_name);
  }
  return 0;
}

int UseBuiltins(const char* library) {
  const auto nvrtc = LoadNvrtcFrom({library});
  if (!nvrtc.ok()) return 1;
  if (!Compile(ScaleKernel(2), *nvrtc).ok()) return 2;
  dl_iterate_phdr(&PrintNvrtcLibrary, nullptr);
  return 0;
}

}  // namespace
}  // namespace gemmd::jit

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "helper") return gemmd::jit::RunCompileHelper();
  if (argc != 4) return 64;
  while (std::getchar() != EOF) {
  }
  const std::string mode = argv[1];
  if (mode == "get") return gemmd::jit::Get(argv[2], std::atoi(argv[3]));
  if (mode == "builtins") return gemmd::jit::UseBuiltins(argv[2]);
  if (mode == "crash") return gemmd::jit::Crash(argv[2], std::atoi(argv[3]));
  return gemmd::jit::HoldLock(argv[2], argv[3]);
}

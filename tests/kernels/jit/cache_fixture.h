// What    What the tests of the kernel cache share: a directory, a compiler that can be slow, and
//         other processes.
#ifndef GEMMD_TESTS_KERNELS_JIT_CACHE_FIXTURE_H_
#define GEMMD_TESTS_KERNELS_JIT_CACHE_FIXTURE_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "kernels/jit/kernel_cache.h"
#include "tests/kernels/jit/test_source.h"

namespace gemmd::jit {

namespace fs = std::filesystem;

inline const NvrtcTable* real_nvrtc = nullptr;
inline std::atomic<int> compile_delay_ms{0};

inline nvrtcResult SlowCompile(nvrtcProgram program, int count, const char* const* options) {
  absl::SleepFor(absl::Milliseconds(compile_delay_ms.load()));
  return real_nvrtc->nvrtcCompileProgram(program, count, options);
}

// A directory for a cache, and the compiler, which can be made slow.
class CacheFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto nvrtc = LoadNvrtc();
    if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status();
    real_nvrtc = *nvrtc;
    slow_nvrtc_ = **nvrtc;
    slow_nvrtc_.nvrtcCompileProgram = &SlowCompile;
    compile_delay_ms = 0;
    std::string pattern = (fs::temp_directory_path() / "gemmd_cache_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    parent_ = pattern;
    directory_ = parent_ / "kernels";
  }
  void TearDown() override {
    if (!parent_.empty()) fs::remove_all(parent_);
  }

  std::unique_ptr<KernelCache> Open() { return *KernelCache::Open(directory_); }
  static absl::StatusOr<std::shared_ptr<const CompiledKernel>> Get(KernelCache& cache,
                                                                   int factor = 2) {
    return cache.GetOrCompile(ScaleKernel(factor), absl::InfiniteFuture());
  }
  fs::path EntryOf(int factor) const {
    return directory_ / (KernelKey(ScaleKernel(factor), *real_nvrtc) + ".kernel");
  }
  std::string ReadEntry(int factor) const {
    std::ifstream file(EntryOf(factor), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void WriteEntry(int factor, const std::string& bytes) const {
    std::ofstream(EntryOf(factor), std::ios::binary | std::ios::trunc) << bytes;
  }
  int FilesWith(const std::string& extension) const {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      count += entry.path().extension() == extension;
    }
    return count;
  }
  // Replaces the entry by `bytes`; a new cache must rebuild it, and the next one find it whole.
  void ExpectRebuilt(const std::string& bytes, const std::string& what) {
    WriteEntry(2, bytes);
    const auto cache = Open();
    ASSERT_TRUE(Get(*cache).ok()) << what;
    EXPECT_EQ(cache->stats().damaged_entries, 1) << what;
    EXPECT_EQ(cache->stats().compilations, 1) << what;
    EXPECT_EQ(cache->stats().disk_hits, 0) << what;
    const auto next = Open();
    ASSERT_TRUE(Get(*next).ok()) << what;
    EXPECT_EQ(next->stats().disk_hits, 1) << what;
  }

  NvrtcTable slow_nvrtc_;
  fs::path parent_;
  fs::path directory_;
};

// Becomes an ordinary user, whom permissions bind, while it lives.
class OrdinaryUser {
 public:
  OrdinaryUser() : was_root_(geteuid() == 0) {
    if (was_root_ && seteuid(65534) != 0) ADD_FAILURE() << "seteuid";
  }
  ~OrdinaryUser() {
    if (was_root_ && seteuid(0) != 0) ADD_FAILURE() << "seteuid back";
  }

 private:
  const bool was_root_;
};

// A cache_probe process; it starts working when Start closes its standard input.
class Probe {
 public:
  Probe(const std::string& mode, const fs::path& directory, const std::string& what) {
    int input[2];
    int output[2];
    if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(input[0], STDIN_FILENO);
      dup2(output[1], STDOUT_FILENO);
      execl(GEMMD_CACHE_PROBE, GEMMD_CACHE_PROBE, mode.c_str(), directory.c_str(), what.c_str(),
            nullptr);
      _exit(127);
    }
    close(input[0]);
    close(output[1]);
    input_ = input[1];
    output_ = output[0];
  }
  ~Probe() {
    Start();
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(output_);
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  void Start() {
    if (input_ >= 0) close(input_);
    input_ = -1;
  }
  std::string ReadLine() {
    std::string line;
    char c = 0;
    while (read(output_, &c, 1) == 1 && c != '\n') line += c;
    return line;
  }
  void Kill() { kill(pid_, SIGKILL); }
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
};

}  // namespace gemmd::jit

#endif  // GEMMD_TESTS_KERNELS_JIT_CACHE_FIXTURE_H_

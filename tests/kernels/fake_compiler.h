// What    A compiler that a test holds up or makes fail, in helper processes: programs are not compiled,
//         their text behind an ELF header is the "cubin", which the fake driver takes. One at a time in a process.
//           FakeCompiler compiler;                       // before the cache is opened
//           compiler.Hold("gemm_sm90.cuh");              // programs with this text wait
//           cache = KernelCache::Open({.helper = FakeCompiler::Helper()});
#ifndef GEMMD_TESTS_KERNELS_FAKE_COMPILER_H_
#define GEMMD_TESTS_KERNELS_FAKE_COMPILER_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/eventually.h"

namespace gemmd::testing {

class FakeCompiler {
 public:
  FakeCompiler() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gemmd_fake_XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    setenv("GEMMD_NVRTC", GEMMD_FAKE_NVRTC, 1);
    setenv("FAKE_NVRTC_VERSION", "13.0", 1);
    setenv("FAKE_NVRTC_DIR", directory_.c_str(), 1);
  }
  ~FakeCompiler() {
    for (const char* name : {"GEMMD_NVRTC", "FAKE_NVRTC_VERSION", "FAKE_NVRTC_DIR"}) unsetenv(name);
    std::filesystem::remove_all(directory_);
  }
  FakeCompiler(const FakeCompiler&) = delete;
  FakeCompiler& operator=(const FakeCompiler&) = delete;

  static std::vector<std::string> Helper() { return {GEMMD_CACHE_PROBE, "helper"}; }

  void Hold(const std::string& text) { Say("hold", text); }
  void Release() { std::filesystem::remove(directory_ / "hold"); }
  void Reject(const std::string& text) { Say("reject", text); }
  void Accept() { std::filesystem::remove(directory_ / "reject"); }

  // For a cache that is shared by several openings.
  std::filesystem::path cache_directory() const { return directory_ / "cache"; }

 private:
  // Renamed into place: a compiler that looks meanwhile finds the whole text or nothing.
  void Say(const char* name, const std::string& text) {
    std::ofstream(directory_ / "new") << text;
    std::filesystem::rename(directory_ / "new", directory_ / name);
  }
  std::filesystem::path directory_;
};

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_KERNELS_FAKE_COMPILER_H_

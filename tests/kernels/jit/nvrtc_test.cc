// Where NVRTC's second library comes from.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include "tests/kernels/jit/cache_fixture.h"

namespace gemmd::jit {
namespace {

using ::testing::Contains;

class NvrtcLibraryTest : public CacheFixture {
 protected:
  // Of the NVRTC of this machine.
  static fs::path Library() {
    Dl_info info = {};
    dladdr(reinterpret_cast<const void*>(real_nvrtc->nvrtcVersion), &info);
    return info.dli_fname;
  }
  static std::string Builtins() { return "libnvrtc-builtins.so." + real_nvrtc->version; }

  // Libraries with nvrtc in their names that a process uses for one compilation.
  static std::vector<std::string> LibrariesUsedWith(const fs::path& library) {
    Probe probe("builtins", library, "-");
    probe.Start();
    std::vector<std::string> names;
    for (std::string line = probe.ReadLine(); !line.empty(); line = probe.ReadLine()) {
      names.push_back(line);
    }
    return names;
  }
};

TEST_F(NvrtcLibraryTest, TakesTheBuiltinsBesideTheLibrary) {
  const fs::path folder = parent_ / "cuda";
  fs::create_directory(folder);
  fs::create_symlink(Library(), folder / "libnvrtc.so");
  fs::create_symlink(Library().parent_path() / Builtins(), folder / Builtins());
  const std::vector<std::string> used = LibrariesUsedWith(folder / "libnvrtc.so");
  EXPECT_THAT(used, Contains((folder / "libnvrtc.so").string()));
  EXPECT_THAT(used, Contains((folder / Builtins()).string()));
}

TEST_F(NvrtcLibraryTest, WithoutBuiltinsBesideItTheLoaderSearches) {
  const fs::path folder = parent_ / "alone";
  fs::create_directory(folder);
  fs::create_symlink(Library(), folder / "libnvrtc.so");
  const char* before = getenv("LD_LIBRARY_PATH");
  const std::string restored = before != nullptr ? before : "";
  setenv("LD_LIBRARY_PATH", Library().parent_path().c_str(), 1);
  const std::vector<std::string> used = LibrariesUsedWith(folder / "libnvrtc.so");
  if (before != nullptr) {
    setenv("LD_LIBRARY_PATH", restored.c_str(), 1);
  } else {
    unsetenv("LD_LIBRARY_PATH");
  }
  EXPECT_THAT(used, Contains((Library().parent_path() / Builtins()).string()));
}

}  // namespace
}  // namespace gemmd::jit

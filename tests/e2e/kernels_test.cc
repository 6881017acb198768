// Prewarming and the kernel cache with real processes: the daemon, its compile helpers and gemmctl, on a
// machine without a GPU.
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/environment.h"

namespace gemmd::e2e {
namespace {

using testing::HasSubstr;

class KernelsTest : public DaemonTest {
 protected:
  void SetUp() override {
    daemon_device_ = "cpu";                 // a GPU's daemon compiles kernels of its own
    cache_ = directory_ + "/cache";  // these tests count, damage and purge
    StartDaemon();
    const Result warm = Prewarm("sm_80");
    std::ifstream log_file(log());
    const std::string said((std::istreambuf_iterator<char>(log_file)), {});
    if (warm.code != 0 && said.find("NVRTC_MISSING") != std::string::npos) {
      GTEST_SKIP() << "the daemon found no NVRTC: set GEMMD_NVRTC, or run deploy/install-deps";
    }
    ASSERT_EQ(warm.code, 0) << said;
  }

  struct Result {
    int code;
    std::string out;
  };
  Result Gemmctl(std::vector<std::string> words) {
    words.insert(words.begin(), {Program("gemmctl"), "--socket", socket()});
    auto tool = Start(words);
    const int code = tool->Wait(absl::Minutes(3));
    return {code, tool->Rest()};
  }
  Result Prewarm(const std::string& architectures) {
    return Gemmctl({"prewarm", Checkpoints() + "/awq_gemm_g128", "--arch", architectures});
  }
  uint64_t Kernels() {
    const Result listed = Gemmctl({"cache", "list", "-o", "json"});
    EXPECT_EQ(listed.code, 0) << listed.out;
    return nlohmann::json::parse(listed.out)["matching"];
  }
};

TEST_F(KernelsTest, AKilledDaemonLeavesAWarmCacheAndNothingIsCompiledAgain) {
  const uint64_t kernels = Kernels();
  EXPECT_GT(kernels, 0u);
  KillDaemon();
  StartDaemon();
  EXPECT_EQ(Kernels(), kernels);
  const Result again = Prewarm("sm_80");
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.out, HasSubstr(absl::StrCat(kernels, " cached")));
  EXPECT_THAT(again.out, testing::Not(HasSubstr("compiled")));
}

TEST_F(KernelsTest, AManifestRepeatsAPrewarmAndABundleCarriesIt) {
  const std::string manifest = directory_ + "/layers.json";
  const std::string bundle = directory_ + "/kernels";
  ASSERT_EQ(
      Gemmctl({"prewarm", Checkpoints() + "/awq_gemm_g128", "--arch", "sm_80", "--save", manifest})
          .code,
      0);
  const uint64_t kernels = Kernels();
  const Result nothing = Gemmctl({"cache", "export", bundle, "--arch", "sm_90a"});
  EXPECT_EQ(nothing.code, 1) << "no kernel is for it";
  EXPECT_FALSE(std::filesystem::exists(bundle));
  const Result written = Gemmctl({"cache", "export", bundle});
  EXPECT_EQ(written.code, 0);
  EXPECT_THAT(written.out, HasSubstr(absl::StrCat(kernels, " kernels, ")));
  EXPECT_EQ(Gemmctl({"cache", "purge"}).code, 2) << "says what it wants to be told";
  EXPECT_EQ(Gemmctl({"cache", "list", "more"}).code, 2);
  EXPECT_EQ(Gemmctl({"cache", "show", ""}).code, 2) << "several kernels";
  EXPECT_EQ(Gemmctl({"cache", "purge", "--all"}).code, 0);
  EXPECT_EQ(Kernels(), 0u);
  EXPECT_EQ(Gemmctl({"cache", "import", bundle}).code, 0);
  EXPECT_EQ(Kernels(), kernels);
  const Result repeated = Gemmctl({"prewarm", "--manifest", manifest});
  EXPECT_EQ(repeated.code, 0);
  EXPECT_THAT(repeated.out, HasSubstr(absl::StrCat(kernels, " cached")));
}

TEST_F(KernelsTest, VerifyDropsADamagedEntryAndPrewarmBringsItBack) {
  const uint64_t kernels = Kernels();
  for (const auto& file : std::filesystem::directory_iterator(directory_ + "/cache")) {
    if (file.path().extension() != ".kernel") continue;
    std::filesystem::resize_file(file.path(), 100);
    break;
  }
  const Result verified = Gemmctl({"cache", "verify"});
  EXPECT_EQ(verified.code, 1);
  EXPECT_THAT(verified.out, HasSubstr("1 dropped"));
  EXPECT_EQ(Gemmctl({"cache", "verify"}).code, 0);
  EXPECT_EQ(Prewarm("sm_80").code, 0);
  EXPECT_EQ(Kernels(), kernels);
}

TEST_F(KernelsTest, ShowsRegistersAndSpillsOfAKernel) {
  const Result listed = Gemmctl({"cache", "list", "-o", "json", "--limit", "1"});
  const std::string key = nlohmann::json::parse(listed.out)["kernels"][0]["key"];
  const Result shown = Gemmctl({"cache", "show", key});
  EXPECT_EQ(shown.code, 0);
  EXPECT_THAT(shown.out, HasSubstr("registers"));
  EXPECT_THAT(shown.out, HasSubstr("sm_80"));
}

}  // namespace
}  // namespace gemmd::e2e

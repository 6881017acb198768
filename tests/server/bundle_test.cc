// The bound of bundles through a daemon and gemmctl: whoever may export may import. Needs no compiler.
#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/jit/bundle.h"
#include "tests/client/gemmctl/tool.h"
#include "tests/kernels/put_entry.h"
#include "tests/server/fixture.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

class BundleTest : public DaemonTest {
 protected:
  void SetUp() override {
    const std::string cache = directory_ / "cache";
    const size_t large = jit::PutEntry(cache, 'b', 3 << 20).size();
    const size_t small = jit::PutEntry(cache, 'c', 1000, "sm_80").size();
    std::filesystem::permissions(cache, std::filesystem::perms::owner_all);
    bytes_ = jit::BundleBytes(2, large + small);
  }
  void StartWithBound(uint64_t bound) {
    max_bundle_bytes_ = bound;
    StartDaemon();
  }
  gemmctl::ToolRun Cache(std::vector<std::string> words) {
    words.insert(words.begin(), {"--socket", daemon_->config().socket, "cache"});
    return gemmctl::Tool(words);
  }

  const std::string file_ = directory_ / "bundle";
  uint64_t bytes_ = 0;  // of a bundle of all
};

TEST_F(BundleTest, AnExportAboveTheBoundIsRefusedBeforeAnythingComes) {
  StartWithBound(bytes_ - 1);
  const auto context = Context(OpenBySocket());
  const auto reader = admin_->ExportCache(context.get(), {});
  v1::CacheChunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(status), "OUT_OF_RANGE");

  const gemmctl::ToolRun run = Cache({"export", file_});
  EXPECT_EQ(run.code, gemmctl::kFailed);
  EXPECT_THAT(run.err, HasSubstr(absl::StrCat("has ", bytes_, " bytes, must have at most ", bytes_ - 1)));
  EXPECT_THAT(run.err, HasSubstr("(--arch, --key)"));
  EXPECT_FALSE(std::filesystem::exists(file_));
  EXPECT_EQ(Cache({"export", file_, "--arch", "sm_80"}).code, gemmctl::kDone);
  EXPECT_EQ(Cache({"export", file_, "--key", "b", "--force"}).code, gemmctl::kDone);
}

TEST_F(BundleTest, AnImportEndsAsSoonAsItIsAboveTheBound) {
  StartWithBound(bytes_);
  ASSERT_EQ(Cache({"export", file_}).code, gemmctl::kDone);
  EXPECT_EQ(Cache({"import", file_}).code, gemmctl::kDone);
  StartWithBound(2 << 20);
  ASSERT_EQ(Cache({"purge", "--all"}).code, gemmctl::kDone);
  const gemmctl::ToolRun run = Cache({"import", file_});
  EXPECT_EQ(run.code, gemmctl::kFailed);
  EXPECT_THAT(run.err, HasSubstr(file_ + ": the bundle has at least 3145728 bytes, must have at most 2097152"));
  EXPECT_THAT(Cache({"list"}).out, HasSubstr("0 kernels"));
}

}  // namespace
}  // namespace gemmd

#include "core/layer/file_identity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "kernels/base/status.h"

namespace gemmd {
namespace {

class FileIdentityTest : public ::testing::Test {
 protected:
  FileIdentityTest() {
    char name[] = "/tmp/gemmd_identity_XXXXXX";
    directory = mkdtemp(name);
    Write("config.json", "{}");
    Write("model.safetensors", "1234");
  }
  ~FileIdentityTest() override { std::filesystem::remove_all(directory); }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(directory / name) << text;
  }
  std::filesystem::path directory;
};

TEST_F(FileIdentityTest, StaysWhileNothingChanges) {
  EXPECT_EQ(FileIdentity(directory).value(), FileIdentity(directory).value());
}

TEST_F(FileIdentityTest, ChangesWithSizeTimeAndNewFiles) {
  const std::string before = FileIdentity(directory).value();
  Write("model.safetensors", "12345");
  const std::string longer = FileIdentity(directory).value();
  EXPECT_NE(before, longer);
  std::filesystem::last_write_time(
      directory / "model.safetensors",
      std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5));
  const std::string later = FileIdentity(directory).value();
  EXPECT_NE(longer, later);
  Write("model-2.safetensors", "");
  const std::string more = FileIdentity(directory).value();
  EXPECT_NE(later, more);
  std::filesystem::create_symlink("gone", directory / "model-3.safetensors");
  EXPECT_NE(more, FileIdentity(directory).value()) << "a link that leads nowhere is a fault of the checkpoint";
}

TEST_F(FileIdentityTest, AMissingDirectoryIsNotFound) {
  EXPECT_EQ(ReasonOf(FileIdentity(directory / "none").status()), "CHECKPOINT_NOT_FOUND");
}

}  // namespace
}  // namespace gemmd

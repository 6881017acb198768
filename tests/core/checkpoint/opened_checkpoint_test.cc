// A checkpoint that stays open: what is parsed once, what is read each time, and from several threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/checkpoint/checkpoint.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

constexpr char kFirst[] = "model-00001-of-00002.safetensors";
constexpr char kSecond[] = "model-00002-of-00002.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

// Linears "a" and "b" in two shards.
class OpenedCheckpointTest : public testing::Test {
 protected:
  OpenedCheckpointTest() {
    WriteFile(directory_.path() / "config.json", "{}");
    WriteFile(directory_.path() / kIndex,
              nlohmann::json{{"weight_map", {{"a.weight", kFirst}, {"b.weight", kSecond}}}}.dump());
    WriteTensors(directory_.path() / kFirst, PlainLinears({"a"}, 1));
    WriteTensors(directory_.path() / kSecond, PlainLinears({"b"}, 2));
  }

  std::shared_ptr<const Checkpoint> Open() const {
    auto checkpoint = Checkpoint::Open(directory_.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return *std::move(checkpoint);
  }

  // The first byte of a module's weights, or the reason why there is none.
  static std::string Read(const Checkpoint& checkpoint, const std::string& module) {
    const auto layer = checkpoint.ReadLayer(module);
    if (!layer.ok()) return ReasonOf(layer.status());
    return std::to_string(static_cast<int>(layer->tensor.codes.front()));
  }

  TemporaryDirectory directory_;
};

TEST_F(OpenedCheckpointTest, ReadsConfigAndIndexOnce) {
  const auto checkpoint = Open();
  std::filesystem::remove(directory_.path() / "config.json");
  std::filesystem::remove(directory_.path() / kIndex);
  EXPECT_EQ(Read(*checkpoint, "a"), "1");
  EXPECT_EQ(Read(*checkpoint, "b"), "2");
  EXPECT_EQ(Read(*checkpoint, "c"), "MODULE_NOT_FOUND");
  EXPECT_THAT(*checkpoint->ListModules(), testing::ElementsAre("a", "b"));
}

TEST_F(OpenedCheckpointTest, KeepsNoFileOpen) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto before = open_files();
  const auto checkpoint = Open();
  EXPECT_EQ(Read(*checkpoint, "a"), "1");
  EXPECT_EQ(Read(*checkpoint, "b"), "2");
  EXPECT_EQ(open_files(), before);
}

TEST_F(OpenedCheckpointTest, RefusesAShardThatWasWrittenAnew) {
  const auto checkpoint = Open();
  EXPECT_EQ(Read(*checkpoint, "a"), "1");
  EXPECT_EQ(Read(*checkpoint, "b"), "2");
  WriteTensors(directory_.path() / kFirst, PlainLinears({"a"}, 3));  // of the same size
  MakeNewer(directory_.path() / kFirst);
  const auto layer = checkpoint->ReadLayer("a");
  EXPECT_EQ(ReasonOf(layer.status()), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(layer.status().message()), HasSubstr(kFirst));
  EXPECT_THAT(std::string(layer.status().message()), HasSubstr("changed"));
  EXPECT_EQ(Read(*checkpoint, "b"), "2") << "the other shard is as it was";
  EXPECT_EQ(Read(*Open(), "a"), "3");
}

TEST_F(OpenedCheckpointTest, RefusesAShardThatAnotherFileReplaced) {
  const auto checkpoint = Open();
  EXPECT_EQ(Read(*checkpoint, "a"), "1");
  WriteTensors(directory_.path() / "new", PlainLinears({"a"}, 3));
  MakeNewer(directory_.path() / "new");
  std::filesystem::rename(directory_.path() / "new", directory_.path() / kFirst);
  EXPECT_EQ(Read(*checkpoint, "a"), "BAD_CHECKPOINT");
  std::filesystem::remove(directory_.path() / kFirst);
  EXPECT_EQ(Read(*checkpoint, "a"), "BAD_CHECKPOINT");
}

TEST_F(OpenedCheckpointTest, RefusesAShardThatChangesWhileItIsRead) {
  const auto checkpoint = Open();
  const auto layer = checkpoint->ReadLayer("a", [this](uint64_t, uint64_t) {
    WriteTensors(directory_.path() / kFirst, PlainLinears({"a"}, 3));
    MakeNewer(directory_.path() / kFirst);
    return true;
  });
  EXPECT_EQ(ReasonOf(layer.status()), "BAD_CHECKPOINT");
}

TEST_F(OpenedCheckpointTest, RemembersNoError) {
  const auto checkpoint = Open();
  std::filesystem::rename(directory_.path() / kFirst, directory_.path() / "away");
  EXPECT_EQ(Read(*checkpoint, "a"), "BAD_CHECKPOINT");
  std::filesystem::rename(directory_.path() / "away", directory_.path() / kFirst);
  EXPECT_EQ(Read(*checkpoint, "a"), "1");
}

TEST_F(OpenedCheckpointTest, GivesEveryThreadWhatOneAloneGets) {
  const std::string experts = "model.layers.0.mlp.experts.";
  const auto directory = CaseDirectory("modelopt_nvfp4_qwen3moe");
  std::vector<std::string> modules = *ListModules(directory);
  modules.push_back(experts + "gate_up_proj");  // of many parts
  std::map<std::string, std::string> digests;
  for (const std::string& module : modules) {
    const auto layer = ReadLayer(directory, module);
    ASSERT_TRUE(layer.ok()) << layer.status();
    digests[module] = Digest(layer->tensor);
  }
  const auto checkpoint = Checkpoint::Open(directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  std::atomic<int> equal{0};
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t i = 0; i < modules.size(); ++i) {
        const std::string& module = modules[(i + thread) % modules.size()];
        const auto layer = (*checkpoint)->ReadLayer(module);
        if (layer.ok() && Digest(layer->tensor) == digests.at(module)) ++equal;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, static_cast<int>(8 * modules.size()));
}

}  // namespace
}  // namespace gemmd

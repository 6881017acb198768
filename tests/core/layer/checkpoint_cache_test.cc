#include "core/layer/checkpoint_cache.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/layer/file_identity.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

constexpr char kShard[] = "model-00001-of-00001.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

// Checkpoints of one plain linear "a".
class CheckpointCacheTest : public ::testing::Test {
 protected:
  CheckpointCacheTest() { WriteCheckpoint(Directory("model"), 1); }

  std::filesystem::path Directory(const std::string& name) const { return root_.path() / name; }

  static void WriteCheckpoint(const std::filesystem::path& directory, char value) {
    std::filesystem::create_directories(directory);
    WriteFile(directory / "config.json", "{}");
    WriteFile(directory / kIndex, nlohmann::json{{"weight_map", {{"a.weight", kShard}}}}.dump());
    WriteTensors(directory / kShard, PlainLinears({"a"}, value));
    for (const char* file : {"config.json", kIndex, kShard}) MakeNewer(directory / file);
  }

  std::shared_ptr<const Checkpoint> Open(const std::string& name = "model") {
    auto opened = cache_.Open(Directory(name));
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.value_or(nullptr);
  }

  // The first byte of the weights of `module`, or the reason why there is none.
  std::string Read(const std::string& module = "a") {
    const auto checkpoint = cache_.Open(Directory("model"));
    if (!checkpoint.ok()) return ReasonOf(checkpoint.status());
    const auto layer = (*checkpoint)->ReadLayer(module);
    if (!layer.ok()) return ReasonOf(layer.status());
    return std::to_string(static_cast<int>(layer->tensor.codes.front()));
  }

  TemporaryDirectory root_;
  CheckpointCache cache_{{root_.path()}, 2};
};

TEST_F(CheckpointCacheTest, OpensACheckpointOnce) {
  const auto first = Open();
  EXPECT_EQ(Read(), "1");
  EXPECT_EQ(Open(), first);
  EXPECT_EQ(cache_.size(), 1u);
}

TEST_F(CheckpointCacheTest, OpensByAnIdentityThatTheCallerTook) {
  const auto first = Open();
  const std::string identity = FileIdentity(Directory("model")).value();
  EXPECT_EQ(cache_.Open(Directory("model"), identity).value(), first);
  WriteTensors(Directory("model") / kShard, PlainLinears({"a"}, 2));
  MakeNewer(Directory("model") / kShard);
  EXPECT_EQ(cache_.Open(Directory("model"), identity).value(), first) << "as the caller wants it";
  EXPECT_EQ(Read(), "2");
}

TEST_F(CheckpointCacheTest, NoticesAShardThatWasWrittenAnew) {
  EXPECT_EQ(Read(), "1");
  WriteTensors(Directory("model") / kShard, PlainLinears({"a"}, 2));  // of the same size
  MakeNewer(Directory("model") / kShard);
  EXPECT_EQ(Read(), "2");
  WriteTensors(Directory("model") / kShard, PlainLinears({"a", "b"}, 3));
  EXPECT_EQ(Read(), "3");
  EXPECT_EQ(cache_.size(), 1u) << "the files as they were are forgotten";
}

TEST_F(CheckpointCacheTest, NoticesAShardThatAnotherFileReplaced) {
  EXPECT_EQ(Read(), "1");
  WriteTensors(Directory("model") / "new", PlainLinears({"a"}, 2));
  std::filesystem::rename(Directory("model") / "new", Directory("model") / kShard);
  EXPECT_EQ(Read(), "2");
}

TEST_F(CheckpointCacheTest, NoticesALinkThatLeadsElsewhere) {
  EXPECT_EQ(Read(), "1");
  WriteTensors(root_.path() / "blob", PlainLinears({"a"}, 2));
  std::filesystem::remove(Directory("model") / kShard);
  std::filesystem::create_symlink(root_.path() / "blob", Directory("model") / kShard);
  EXPECT_EQ(Read(), "2");
  TemporaryDirectory elsewhere;
  WriteTensors(elsewhere.path() / "blob", PlainLinears({"a"}, 3));
  std::filesystem::remove(Directory("model") / kShard);
  std::filesystem::create_symlink(elsewhere.path() / "blob", Directory("model") / kShard);
  EXPECT_EQ(Read(), "PATH_NOT_ALLOWED");
}

TEST_F(CheckpointCacheTest, NoticesAnotherConfigAndIndex) {
  EXPECT_EQ(Read(), "1");
  WriteFile(Directory("model") / "config.json",
            R"({"quantization_config": {"quant_method": "unheard of"}})");
  EXPECT_EQ(Read(), "UNSUPPORTED_FORMAT");
  WriteFile(Directory("model") / "config.json", "{}");
  EXPECT_EQ(Read(), "1");
  EXPECT_EQ(Read("b"), "MODULE_NOT_FOUND");
  WriteTensors(Directory("model") / "more.safetensors", PlainLinears({"b"}, 4));
  WriteFile(Directory("model") / kIndex,
            nlohmann::json{{"weight_map", {{"a.weight", kShard}, {"b.weight", "more.safetensors"}}}}
                .dump());
  EXPECT_EQ(Read("b"), "4");
  EXPECT_EQ(Read(), "1");
}

TEST_F(CheckpointCacheTest, RemembersNoError) {
  WriteFile(Directory("model") / kIndex, "{");
  EXPECT_EQ(Read(), "BAD_CHECKPOINT");
  EXPECT_EQ(cache_.size(), 0u);
  std::filesystem::remove_all(Directory("model"));
  EXPECT_EQ(Read(), "CHECKPOINT_NOT_FOUND");
  WriteCheckpoint(Directory("model"), 5);
  EXPECT_EQ(Read(), "5");
}

TEST_F(CheckpointCacheTest, KeepsTheCheckpointsThatWereUsedLast) {
  WriteCheckpoint(Directory("second"), 2);
  WriteCheckpoint(Directory("third"), 3);
  const auto model = Open();
  const auto second = Open("second");
  EXPECT_EQ(Open(), model);
  Open("third");
  EXPECT_EQ(cache_.size(), 2u);
  EXPECT_EQ(Open(), model);
  EXPECT_NE(Open("second"), second);
  EXPECT_TRUE(second->ReadLayer("a").ok()) << "whoever holds it may go on";
}

TEST_F(CheckpointCacheTest, ThreadsThatComeAtOnceShareOne) {
  std::vector<std::shared_ptr<const Checkpoint>> opened(8);
  std::vector<std::thread> threads;
  for (auto& checkpoint : opened) {
    threads.emplace_back([this, &checkpoint] { checkpoint = Open(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& checkpoint : opened) EXPECT_EQ(checkpoint, opened.front());
  ASSERT_NE(opened.front(), nullptr);
}

}  // namespace
}  // namespace gemmd

// The parts of the loading benchmark: its checkpoints are what the readers take, its measures are of what they say.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/quant/standard_tensor.h"
#include "tests/bench/loading/plain_read.h"
#include "tests/bench/loading/process_usage.h"
#include "tests/bench/loading/synthetic_checkpoint.h"

namespace gemmd::bench {
namespace {

class SyntheticCheckpointTest : public testing::TestWithParam<std::string> {
 protected:
  SyntheticCheckpointTest() {
    directory_ = std::filesystem::path(testing::TempDir()) /
                 ("loading_" + GetParam() + std::to_string(getpid()));
  }
  ~SyntheticCheckpointTest() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path directory_;
};

TEST_P(SyntheticCheckpointTest, IsReadAndEveryLayerDiffers) {
  const SyntheticOptions options{
      .format = GetParam(), .bytes = 300'000, .n = 256, .k = 512, .group = 128, .shards = 3};
  const auto made = MakeCheckpoint(directory_, options);
  ASSERT_TRUE(made.ok()) << made.status();
  const auto modules = ListModules(directory_);
  ASSERT_TRUE(modules.ok()) << modules.status();
  ASSERT_EQ(static_cast<int64_t>(modules->size()), made->layers);
  EXPECT_GE(made->tensor_bytes, options.bytes);
  std::set<std::string> digests;
  for (int64_t i = 0; i < made->layers; ++i) {
    const auto layer = ReadLayer(directory_, LayerName(i));
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_TRUE(layer->tensor.shape == (LayerShape{1, 256, 512}));
    EXPECT_EQ(layer->tensor.spec.weight, IntegerFormat(4));
    EXPECT_EQ(layer->tensor.spec.scale_block_k, 128);
    digests.insert(Digest(layer->tensor));
  }
  EXPECT_EQ(static_cast<int64_t>(digests.size()), made->layers);
  const auto files = TensorFiles(directory_);
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(files->size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(Formats, SyntheticCheckpointTest,
                         testing::Values("gptq", "pack-quantized"), [](const auto& info) {
                           return info.param == "gptq" ? "Gptq" : "PackQuantized";
                         });

TEST(SyntheticCheckpointOptionsTest, RefusesWhatNoReaderWouldTake) {
  EXPECT_FALSE(MakeCheckpoint("/tmp/unused", {.format = "int3"}).ok());
  EXPECT_FALSE(MakeCheckpoint("/tmp/unused", {.k = 100}).ok());
  EXPECT_FALSE(MakeCheckpoint("/tmp/unused", {.n = 4}).ok());
}

TEST(PlainReadTest, ReadsEveryByteWithAnyNumberOfThreads) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("plain_read" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  uint64_t expected = 0;
  for (int i = 0; i < 5; ++i) {
    std::ofstream file(folder / (std::to_string(i) + ".safetensors"));
    file << std::string(1000 * i, 'x');
    expected += 1000 * i;
  }
  std::ofstream(folder / "config.json") << "{}";
  const auto files = TensorFiles(folder);
  ASSERT_TRUE(files.ok());
  EXPECT_TRUE(DropFromCache(*files).ok());
  for (const int threads : {1, 2, 8}) {
    const auto rate = ReadAll(*files, threads);
    ASSERT_TRUE(rate.ok()) << rate.status();
    EXPECT_EQ(rate->bytes, expected);
    EXPECT_GT(rate->bytes_per_second(), 0);
    const auto fresh = ReadAll(*files, threads, Target::kFreshMemory);
    ASSERT_TRUE(fresh.ok()) << fresh.status();
    EXPECT_EQ(fresh->bytes, expected);
  }
  std::filesystem::remove_all(folder);
  EXPECT_FALSE(ReadAll(*files, 1).ok());
  EXPECT_FALSE(TensorFiles(folder).ok());
}

TEST(ProcessUsageTest, SeesAnAllocationAndForgetsItsPeak) {
  constexpr uint64_t kBytes = uint64_t{64} << 20;
  ASSERT_TRUE(ResetPeak(getpid()).ok());
  const auto before = UsageOf(getpid());
  ASSERT_TRUE(before.ok());
  { std::vector<char> block(kBytes, 1); }
  const auto after = UsageOf(getpid());
  ASSERT_TRUE(after.ok());
  EXPECT_GE(after->peak_resident_bytes, before->resident_bytes + kBytes / 2);
  EXPECT_GE(after->user_seconds + after->system_seconds,
            before->user_seconds + before->system_seconds);
  ASSERT_TRUE(ResetPeak(getpid()).ok());
  EXPECT_LT(UsageOf(getpid())->peak_resident_bytes, after->peak_resident_bytes);
  EXPECT_FALSE(UsageOf(-1).ok());
}

}  // namespace
}  // namespace gemmd::bench

// gemmctl register and run on checkpoints of this test, against a daemon with the CPU device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/client/gemmctl/tool.h"
#include "tests/server/fixture.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint16_t kOne = 0x3f80;  // of bfloat16
constexpr uint16_t kNan = 0x7fc0;
constexpr uint16_t kInfinity = 0x7f80;

// Weights [2, 2] of one linear.
using Weights = std::array<uint16_t, 4>;

void WriteModel(const std::filesystem::path& directory, const std::string& config,
                const std::map<std::string, Weights>& linears) {
  std::filesystem::create_directory(directory);
  std::ofstream(directory / "config.json") << config;
  nlohmann::json header;
  std::string data;
  for (const auto& [module, weights] : linears) {
    header[module + ".weight"] = {{"dtype", "BF16"},
                                  {"shape", {2, 2}},
                                  {"data_offsets", {data.size(), data.size() + sizeof(weights)}}};
    data.append(reinterpret_cast<const char*>(weights.data()), sizeof(weights));
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::ofstream file(directory / "model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text << data;
}

class CheckpointToolTest : public DaemonTest {
 protected:
  void SetUp() override {
    model_ = directory_ / "model";
    StartDaemon({{"checkpoint_roots", directory_.path()}});
  }
  gemmctl::ToolRun Gemmctl(std::vector<std::string> words) const {
    words.insert(words.begin(), {"--socket", daemon_->config().socket});
    return gemmctl::Tool(words);
  }

  std::string model_;
};

TEST_F(CheckpointToolTest, TellsOfWeightsThatAreNotFinite) {
  WriteModel(model_, "{}", {{"a", {kOne, kNan, kOne, kInfinity}}, {"b", {kOne, kOne, kOne, kOne}}});
  EXPECT_THAT(Gemmctl({"register", model_, "a"}).out,
              HasSubstr("2 of its weights are NaN or infinite"));
  EXPECT_THAT(Gemmctl({"register", model_, "b"}).out, Not(HasSubstr("infinite")));
  const gemmctl::ToolRun json = Gemmctl({"register", model_, "a", "-o", "json"});
  EXPECT_EQ(nlohmann::json::parse(json.out)["not_finite_weights"], 2) << json.out;
  const gemmctl::ToolRun all = Gemmctl({"register", model_, "--all"});
  EXPECT_EQ(all.code, gemmctl::kDone);
  EXPECT_EQ(all.err, "warning: module a: 2 of its weights are NaN or infinite\n");
  const gemmctl::ToolRun inspected = Gemmctl({"inspect", model_});
  EXPECT_EQ(inspected.code, gemmctl::kDone);
  EXPECT_THAT(inspected.out,
              HasSubstr("2 weights of 1 module are NaN or infinite, the first in a"));
}

TEST_F(CheckpointToolTest, RunCountsWhatIsNotFinite) {
  WriteModel(model_, "{}", {{"a", {kOne, kNan, kOne, kInfinity}}, {"b", {kOne, kOne, kOne, kOne}}});
  const gemmctl::ToolRun run = Gemmctl({"run", model_, "a", "--random", "3"});
  EXPECT_EQ(run.code, gemmctl::kFailed) << "nothing is proven\n" << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("3 NaN and 3 infinite of 6 numbers of y"));
  EXPECT_THAT(run.out, HasSubstr("NOT PROVEN: all 6 numbers"));
  EXPECT_THAT(Gemmctl({"run", model_, "b", "--random", "3"}).out, Not(HasSubstr("infinite")));
  const auto json =
      nlohmann::json::parse(Gemmctl({"run", model_, "a", "--random", "3", "-o", "json"}).out);
  EXPECT_EQ(json["nan"], 3);
  EXPECT_EQ(json["infinite"], 3);
  EXPECT_EQ(json["compared"], 0);
  EXPECT_EQ(json["ok"], false);
}

TEST_F(CheckpointToolTest, RunSaysHowMuchItCompared) {
  WriteModel(model_, "{}", {{"a", {kOne, kNan, kOne, kOne}}});
  const gemmctl::ToolRun half = Gemmctl({"run", model_, "a", "--random", "3"});
  EXPECT_EQ(half.code, gemmctl::kDone) << "the other row is right\n" << half.out << half.err;
  EXPECT_THAT(half.out, HasSubstr("over 3 numbers"));
  const gemmctl::ToolRun empty = Gemmctl({"run", model_, "a", "--random", "0"});
  EXPECT_EQ(empty.code, gemmctl::kDone) << "a request without rows is legal\n" << empty.err;
  EXPECT_THAT(empty.out, HasSubstr("nothing was compared"));
  EXPECT_THAT(empty.out, HasSubstr("none: y has no numbers"));
  EXPECT_THAT(empty.out, Not(HasSubstr("relative")));
}

TEST_F(CheckpointToolTest, TellsWhichPartsStaySingle) {
  const Weights ones = {kOne, kOne, kOne, kOne};
  WriteModel(model_, R"({"attention_k_eq_v": true})",
             {{"l.0.q_proj", ones},
              {"l.0.k_proj", ones},
              {"l.0.v_proj", ones},
              {"l.1.q_proj", ones},
              {"l.1.k_proj", ones}});
  const gemmctl::ToolRun run = Gemmctl({"register", model_, "--all", "--fuse"});
  EXPECT_EQ(run.code, gemmctl::kDone) << run.err;
  EXPECT_EQ(
      run.err,
      "note: module l.1: q_proj, k_proj stay single, there is no qkv_proj: attention_k_eq_v of "
      "config.json\n");
  std::ofstream(model_ + "/config.json") << "{}";
  const gemmctl::ToolRun damaged = Gemmctl({"register", model_, "--all", "--fuse"});
  EXPECT_EQ(damaged.code, gemmctl::kFailed);
  EXPECT_THAT(damaged.err, HasSubstr("module l.1.v_proj: expected beside q_proj"));
}

TEST_F(CheckpointToolTest, RunChecksTheExpectedWeightsFirst) {
  WriteModel(model_, "{}", {{"a", {kOne, kOne, kOne, kOne}}});
  const std::string y = directory_ / "y.npy";
  for (const char* shape : {"(3, 2)", "(4,)"}) {
    const std::string file = directory_ / "w.npy";
    std::string header =
        absl::StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': ", shape, ", }");
    header.resize(118 - 1, ' ');
    const size_t numbers = shape[1] == '3' ? 6 : 4;
    std::ofstream(file, std::ios::binary)
        << std::string("\x93NUMPY\x01\x00\x76\x00", 10) << header << '\n'
        << std::string(numbers * sizeof(float), '\0');
    const gemmctl::ToolRun run =
        Gemmctl({"run", model_, "a", "--random", "1", "--expected", file, "--y", y});
    EXPECT_EQ(run.code, gemmctl::kUsage) << run.err;
    EXPECT_THAT(run.err, HasSubstr("[N, K]"));
    EXPECT_FALSE(std::filesystem::exists(y)) << "nothing was computed";
  }
}

TEST_F(CheckpointToolTest, AnExportOfNothingIsAnError) {
  const std::string file = directory_ / "out";
  const gemmctl::ToolRun tune = Gemmctl({"tune", "--export", file});
  EXPECT_EQ(tune.code, gemmctl::kFailed);
  EXPECT_THAT(tune.err, HasSubstr(file + " is not written"));
  EXPECT_FALSE(std::filesystem::exists(file));
  const gemmctl::ToolRun prewarm =
      Gemmctl({"prewarm", "--running", "--arch", "sm_90a", "--save", file});
  EXPECT_EQ(prewarm.code, gemmctl::kFailed) << prewarm.err;
  EXPECT_FALSE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace gemmd

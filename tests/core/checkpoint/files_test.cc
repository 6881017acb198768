// Paths, configs, indexes and headers that a checkpoint reader must refuse or understand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/safetensors.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using std::filesystem::path;
using testing::HasSubstr;

constexpr char kCase[] = "gptq_v1_autogptq_b4_g128_sym";
constexpr char kModule[] = "model.layers.0.mlp.down_proj";

template <typename T>
std::string Outcome(const absl::StatusOr<T>& result) {
  return result.ok() ? "OK" : ReasonOf(result.status());
}

TEST(ResolvePathTest, AcceptsDirectoriesBelowARootOnly) {
  TemporaryDirectory root;
  TemporaryDirectory elsewhere;
  std::filesystem::create_directories(root.path() / "model");
  std::filesystem::create_directories(elsewhere.path() / "model");
  WriteFile(root.path() / "file", "");
  const std::vector<path> roots = {root.path() / "missing", root.path()};
  const auto resolve = [&](const path& where) {
    return ResolveCheckpointPath(where.string(), roots);
  };
  EXPECT_EQ(*resolve(root.path() / "model"), root.path() / "model");
  EXPECT_EQ(*resolve(root.path() / "model/../model/."), root.path() / "model");
  EXPECT_EQ(Outcome(resolve(root.path())), "OK");
  EXPECT_EQ(Outcome(resolve(elsewhere.path() / "model")), "PATH_NOT_ALLOWED");
  EXPECT_EQ(Outcome(resolve(root.path() / ".." / elsewhere.path().filename() / "model")),
            "PATH_NOT_ALLOWED");
  EXPECT_EQ(Outcome(resolve(root.path().string() + "-sibling")), "PATH_NOT_ALLOWED");
  EXPECT_EQ(Outcome(resolve("model")), "PATH_NOT_ALLOWED");
  EXPECT_EQ(Outcome(resolve("")), "PATH_NOT_ALLOWED");
  EXPECT_EQ(Outcome(resolve(root.path() / "none")), "CHECKPOINT_NOT_FOUND");
  EXPECT_EQ(Outcome(resolve(root.path() / "file")), "CHECKPOINT_NOT_FOUND");
  EXPECT_EQ(Outcome(ResolveCheckpointPath((root.path() / "model").string(), {})),
            "PATH_NOT_ALLOWED");
  EXPECT_EQ(Outcome(ResolveCheckpointPath(root.path().string() + std::string("\0x", 2), roots)),
            "PATH_NOT_ALLOWED");
}

TEST(ResolvePathTest, FollowsLinksBeforeItChecks) {
  TemporaryDirectory root;
  TemporaryDirectory elsewhere;
  std::filesystem::create_directories(root.path() / "model");
  std::filesystem::create_directories(elsewhere.path() / "secret");
  std::filesystem::create_directory_symlink(elsewhere.path() / "secret", root.path() / "out");
  std::filesystem::create_directory_symlink(root.path() / "model", root.path() / "in");
  std::filesystem::create_directory_symlink(root.path() / "loop", root.path() / "loop");
  const std::vector<path> roots = {root.path()};
  EXPECT_EQ(Outcome(ResolveCheckpointPath((root.path() / "out").string(), roots)),
            "PATH_NOT_ALLOWED");
  EXPECT_EQ(*ResolveCheckpointPath((root.path() / "in").string(), roots), root.path() / "model");
  EXPECT_EQ(Outcome(ResolveCheckpointPath((root.path() / "loop").string(), roots)),
            "PATH_NOT_ALLOWED");
}

TEST(CheckpointFilesTest, RefusesALinkToAFileOutside) {
  TemporaryDirectory directory;
  TemporaryDirectory elsewhere;
  EditableCheckpoint(kCase).Write(directory.path());
  std::filesystem::rename(directory.path() / "model.safetensors", elsewhere.path() / "blob");
  std::filesystem::create_symlink(elsewhere.path() / "blob",
                                  directory.path() / "model.safetensors");
  EXPECT_EQ(Outcome(ReadLayer(directory.path(), kModule)), "PATH_NOT_ALLOWED");
  // A model cache that keeps its files beside the directory, both below a root.
  EXPECT_EQ(Outcome(ReadLayer(directory.path(), kModule, nullptr, {elsewhere.path()})), "OK");
}

TEST(CheckpointFilesTest, ALinkToNothingIsNotAnAbsentFile) {
  for (const char* file : {"config.json", "model.safetensors", "model.safetensors.index.json"}) {
    TemporaryDirectory directory;
    EditableCheckpoint(kCase).Write(directory.path());
    std::filesystem::remove(directory.path() / file);
    std::filesystem::create_symlink("../blobs/abc", directory.path() / file);
    const auto layer = ReadLayer(directory.path(), kModule);
    EXPECT_EQ(Outcome(layer), "BAD_CHECKPOINT") << file;
    EXPECT_EQ(layer.status().message(), (directory.path() / file).string() +
                                            ": a symbolic link to a file that does not exist");
  }
}

TEST(CheckpointFilesTest, NamesWhatIsMissing) {
  TemporaryDirectory directory;
  EXPECT_EQ(Outcome(ReadLayer(directory.path() / "none", kModule)), "CHECKPOINT_NOT_FOUND");
  EXPECT_EQ(Outcome(ReadLayer(directory.path(), kModule)), "CHECKPOINT_NOT_FOUND");
  WriteFile(directory.path() / "config.json",
            R"({"quantization_config": {"quant_method": "gptq"}})");
  const auto no_weights = ReadLayer(directory.path(), kModule);
  EXPECT_EQ(Outcome(no_weights), "CHECKPOINT_NOT_FOUND");
  EXPECT_THAT(std::string(no_weights.status().message()), HasSubstr("model.safetensors"));
  EditableCheckpoint(kCase).Write(directory.path());
  for (const char* module :
       {"", "model", "model.layers.0.mlp", "model.layers.0.mlp.down", "lm_head"}) {
    EXPECT_EQ(Outcome(ReadLayer(directory.path(), module)), "MODULE_NOT_FOUND") << module;
  }
}

TEST(CheckpointFilesTest, ATensorIsNoModule) {
  const absl::Status status = ReadLayer(CaseDirectory(kCase), absl::StrCat(kModule, ".qweight")).status();
  EXPECT_EQ(ReasonOf(status), "MODULE_NOT_FOUND");
  EXPECT_EQ(std::string(status.message()),
            absl::StrCat("\"", kModule, ".qweight\" is a tensor, of module \"", kModule, "\""));
}

TEST(CheckpointFilesTest, RefusesUnknownMethods) {
  for (const char* config : {R"({"quantization_config": {"bits": 4}})",
                             R"({"quantization_config": {"quant_method": "eetq"}})",
                             R"({"quantization_config": {"quant_method": "bitsandbytes"}})"}) {
    TemporaryDirectory directory;
    EditableCheckpoint(kCase).Write(directory.path());
    WriteFile(directory.path() / "config.json", config);
    EXPECT_EQ(Outcome(ReadLayer(directory.path(), kModule)), "UNSUPPORTED_FORMAT") << config;
    EXPECT_EQ(Outcome(ListModules(directory.path())), "UNSUPPORTED_FORMAT") << config;
  }
}

TEST(CheckpointFilesTest, RefusesPackedWeightsWithoutAConfig) {
  TemporaryDirectory directory;
  EditableCheckpoint(kCase).Write(directory.path());
  WriteFile(directory.path() / "config.json", "{}");
  EXPECT_EQ(Outcome(ReadLayer(directory.path(), kModule)), "UNSUPPORTED_FORMAT");
  EXPECT_THAT(*ListModules(directory.path()), ::testing::ElementsAre(kModule))
      << "it must not go missing";
}

TEST(CheckpointFilesTest, ReadsUnquantizedCheckpoints) {
  TemporaryDirectory directory;
  WriteFile(directory.path() / "config.json", R"({"hidden_size": 4})");
  RawTensors tensors;
  tensors["a.weight"] = {"BF16", {2, 4}, std::string(16, '\1')};
  tensors["b.weight"] = {"F32", {1, 3}, std::string(12, '\1')};
  tensors["b.bias"] = {"F32", {1}, std::string(4, '\1')};
  tensors["norm.weight"] = {"BF16", {4}, std::string(8, '\1')};
  WriteTensors(directory.path() / "model.safetensors", tensors);
  EXPECT_THAT(*ListModules(directory.path()), testing::ElementsAre("a", "b"));
  const auto a = ReadLayer(directory.path(), "a");
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(a->format, "unquantized");
  EXPECT_EQ(a->tensor.spec.weight, kBFloat16);
  const auto b = ReadLayer(directory.path(), "b");
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(b->tensor.spec.weight, kFloat32);
  EXPECT_EQ(b->tensor.spec.bias, kFloat32);
  EXPECT_EQ(Outcome(ReadLayer(directory.path(), "norm")), "UNSUPPORTED_FORMAT");
}

TEST(CheckpointFilesTest, LinearsStoredTheOtherWayRoundAreRefused) {
  TemporaryDirectory directory;
  WriteFile(directory.path() / "config.json", R"({"model_type": "gpt2"})");
  RawTensors tensors;
  tensors["h.0.attn.c_proj.weight"] = {"F32", {2, 2}, std::string(16, '\1')};
  tensors["lm_head.weight"] = {"F32", {3, 2}, std::string(24, '\1')};
  WriteTensors(directory.path() / "model.safetensors", tensors);
  EXPECT_THAT(*ListModules(directory.path()), testing::ElementsAre("h.0.attn.c_proj", "lm_head"));
  const absl::Status refused = ReadLayer(directory.path(), "h.0.attn.c_proj").status();
  EXPECT_EQ(ReasonOf(refused), "UNSUPPORTED_FORMAT");
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("[K, N]"));
  EXPECT_TRUE(ReadLayer(directory.path(), "lm_head").ok());
  WriteFile(directory.path() / "config.json", R"({"model_type": "gpt_bigcode"})");  // the same names, linears
  EXPECT_TRUE(ReadLayer(directory.path(), "h.0.attn.c_proj").ok());
}

TEST(CheckpointFilesTest, ReadsTheSeparateConfigOfOlderGptqExports) {
  TemporaryDirectory directory;
  EditableCheckpoint checkpoint(kCase);
  checkpoint.Write(directory.path());
  WriteFile(directory.path() / "config.json", "{}");
  checkpoint.config["quantization_config"].erase("quant_method");
  WriteFile(directory.path() / "quantize_config.json",
            checkpoint.config["quantization_config"].dump());
  EXPECT_EQ(Outcome(ReadLayer(directory.path(), kModule)), "OK");
}

TEST(CheckpointFilesTest, RefusesConfigsThatAreNotWhatTheySeem) {
  const std::string deep(100000, '[');
  for (const std::string& config :
       {std::string("[]"), std::string("{"), std::string("{} x"), std::string("\xff\xfe"),
        std::string(R"({"quantization_config": 3})"), R"({"a": )" + deep,
        std::string(R"({"quantization_config": {"quant_method": "gptq", "quant_method": "awq"}})"),
        std::string(R"({"quantization_config": {"quant_method": 7}})"),
        std::string(R"({"quantization_config": {"quant_method": "gptq", "bits": "4"}})"),
        std::string(
            R"({"quantization_config": {"quant_method": "gptq", "bits": 18446744073709551615}})"),
        std::string(R"({"quantization_config": {"quant_method": "gptq", "group_size": 0}})"),
        std::string(
            R"({"quantization_config": {"quant_method": "gptq", "dynamic": {"(": {}}}})")}) {
    TemporaryDirectory directory;
    EditableCheckpoint(kCase).Write(directory.path());
    WriteFile(directory.path() / "config.json", config);
    EXPECT_EQ(Outcome(ReadLayer(directory.path(), kModule)), "BAD_CHECKPOINT")
        << config.substr(0, 90);
  }
}

TEST(CheckpointFilesTest, DoesNotWaitForAPipe) {
  TemporaryDirectory directory;
  EditableCheckpoint(kCase).Write(directory.path());
  std::filesystem::remove(directory.path() / "model.safetensors");
  ASSERT_EQ(mkfifo((directory.path() / "model.safetensors").c_str(), 0600), 0);
  EXPECT_EQ(Outcome(ReadLayer(directory.path(), kModule)), "BAD_CHECKPOINT");
  std::filesystem::remove(directory.path() / "config.json");
  ASSERT_EQ(mkfifo((directory.path() / "config.json").c_str(), 0600), 0);
  EXPECT_EQ(Outcome(ReadLayer(directory.path(), kModule)), "BAD_CHECKPOINT");
}

TEST(CheckpointFilesTest, RefusesTensorsBesideTheKnownOnes) {
  for (const char* extra :
       {"act_scales", "qzeros_2", "pre_quant_scale", "lora_A.weight", "rotation"}) {
    TemporaryDirectory directory;
    EditableCheckpoint checkpoint(kCase);
    checkpoint.tensors[std::string(kModule) + "." + extra] = {"F16", {1}, std::string(2, '\1')};
    checkpoint.Write(directory.path());
    const auto layer = ReadLayer(directory.path(), kModule);
    EXPECT_EQ(Outcome(layer), "BAD_CHECKPOINT");
    EXPECT_THAT(std::string(layer.status().message()), HasSubstr(extra));
  }
}

TEST(CheckpointFilesTest, AModuleThatNoMemoryHoldsIsNoCrash) {
  const TemporaryDirectory directory;
  WriteHugeCheckpoint(directory.path());
  const MemoryLimit limit;
  const absl::Status status = ReadLayer(directory.path(), "a").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), "HOST_MEMORY");
  EXPECT_EQ(std::string(status.message()),
            (directory.path() / "model.safetensors").string() +
                ": the machine has no memory for a tensor of 2199023255552 bytes: module a: tensor a.weight");
}

TEST(CheckpointFilesTest, ReportsProgressAndStopsWhenAsked) {
  uint64_t last = 0;
  uint64_t total = 0;
  const auto layer = ReadLayer(CaseDirectory(kCase), kModule, [&](uint64_t done, uint64_t all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
    return true;
  });
  EXPECT_TRUE(layer.ok()) << layer.status();
  EXPECT_GT(total, 0u);
  EXPECT_EQ(last, total);
  const auto cancelled =
      ReadLayer(CaseDirectory(kCase), kModule, [](uint64_t, uint64_t) { return false; });
  EXPECT_EQ(cancelled.status().code(), absl::StatusCode::kCancelled) << cancelled.status();
}

// A checkpoint of two shards, one tensor of the module in each.
class ShardedTest : public testing::Test {
 protected:
  ShardedTest() {
    EditableCheckpoint checkpoint(kCase);
    checkpoint.Write(directory_.path());
    std::filesystem::remove(directory_.path() / "model.safetensors");
    RawTensors second = checkpoint.tensors;
    RawTensors first;
    first[qweight_] = second[qweight_];
    second.erase(qweight_);
    WriteTensors(directory_.path() / kFirst, first);
    WriteTensors(directory_.path() / kSecond, second);
    for (const auto& [name, tensor] : second) map_[name] = kSecond;
    map_[qweight_] = kFirst;
  }

  absl::StatusOr<CheckpointLayer> Read() {
    WriteFile(directory_.path() / "model.safetensors.index.json",
              nlohmann::json{{"weight_map", map_}}.dump());
    return ReadLayer(directory_.path(), kModule);
  }

  static constexpr char kFirst[] = "model-00001-of-00002.safetensors";
  static constexpr char kSecond[] = "model-00002-of-00002.safetensors";
  const std::string qweight_ = std::string(kModule) + ".qweight";
  const std::string scales_ = std::string(kModule) + ".scales";
  TemporaryDirectory directory_;
  nlohmann::json map_;
};

TEST_F(ShardedTest, CollectsAModuleFromItsShards) {
  const auto layer = Read();
  ASSERT_TRUE(layer.ok()) << layer.status();
  const auto whole = ReadLayer(CaseDirectory(kCase), kModule);
  EXPECT_EQ(Digest(layer->tensor), Digest(whole->tensor));
}

TEST_F(ShardedTest, NamesAMissingShard) {
  std::filesystem::remove(directory_.path() / kFirst);
  const auto layer = Read();
  EXPECT_EQ(Outcome(layer), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(layer.status().message()),
              HasSubstr((directory_.path() / kFirst).string() + ": expected by the index"));
}

TEST_F(ShardedTest, NamesShardsByTheirPaths) {
  const std::string second = (directory_.path() / kSecond).string();
  map_[scales_ + "_more"] = kSecond;
  EXPECT_EQ(std::string(Read().status().message()),
            second + ": module " + kModule + ": tensor " + scales_ +
                                           "_more: named by the index, but not in the file");
  map_.erase(scales_ + "_more");
  map_.erase(scales_);
  EXPECT_EQ(std::string(Read().status().message()),
            second + ": module " + kModule + ": tensor " + scales_ +
                                           ": expected in no file by the index");
  WriteFile(second, "");
  EXPECT_EQ(std::string(Read().status().message()),
            std::string("module ") + kModule + ": " + second +
                                           ": a file of 0 bytes is no safetensors file");
}

TEST_F(ShardedTest, RefusesAnIndexThatLeadsElsewhere) {
  for (const char* shard :
       {"../model.safetensors", "/etc/passwd", "..", "", "sub/model.safetensors"}) {
    map_[scales_] = shard;
    EXPECT_EQ(Outcome(Read()), "BAD_CHECKPOINT") << shard;
  }
  map_[scales_] = 7;
  EXPECT_EQ(Outcome(Read()), "BAD_CHECKPOINT");
}

TEST_F(ShardedTest, RefusesATensorThatIsNotWhereTheIndexSays) {
  map_[scales_] = kFirst;
  EXPECT_EQ(Outcome(Read()), "BAD_CHECKPOINT");
  map_.erase(scales_);
  const auto unindexed = Read();
  EXPECT_EQ(Outcome(unindexed), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(unindexed.status().message()), HasSubstr(scales_));
}

TEST_F(ShardedTest, RefusesATensorThatTwoShardsHold) {
  RawTensors first = LoadTensors(directory_.path() / kFirst);
  first[scales_] = LoadTensors(directory_.path() / kSecond)[scales_];
  WriteTensors(directory_.path() / kFirst, first);
  const auto layer = Read();
  EXPECT_EQ(Outcome(layer), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(layer.status().message()), HasSubstr(scales_));
}

}  // namespace
}  // namespace gemmd

// Checkpoints of several files without an index: whole ones, and such that one file of is damaged. The others' modules
// are listed and read, and the damaged file is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_files.h"
#include "core/checkpoint/model_plan.h"
#include "core/checkpoint/unindexed_files.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

const std::vector<std::string> kNames = {"gate_proj", "up_proj", "down_proj"};

std::string ShardName(int number) {
  return absl::StrCat("model-0000", number, "-of-00003.safetensors");
}

std::string ModuleName(int layer, const std::string& name) {
  return absl::StrCat("model.layers.", layer, ".mlp.", name);
}

// Three layers in three files.
class UnindexedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFile(path() / "config.json", R"({"num_hidden_layers": 3})");
    for (int layer = 0; layer < 3; ++layer) {
      shards_.push_back(PlainLinears({ModuleName(layer, kNames[0]), ModuleName(layer, kNames[1]),
                                      ModuleName(layer, kNames[2])},
                                     0x3f));
      WriteTensors(Shard(layer + 1), shards_.back());
    }
  }
  const std::filesystem::path& path() const { return directory_.path(); }
  std::filesystem::path Shard(int number) const { return path() / ShardName(number); }
  std::shared_ptr<const Checkpoint> Open() const {
    auto checkpoint = Checkpoint::Open(path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return *checkpoint;
  }
  static ModelPlan Plan(const Checkpoint& checkpoint, const ModelSelection& selection = {}) {
    auto plan = PlanModel(checkpoint, selection);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *plan : ModelPlan{};
  }

  // What must hold when file 2 is hidden, for the reason `why`.
  void ExpectHidden(const std::string& why) {
    SCOPED_TRACE(why);
    const auto checkpoint = Open();
    const std::vector<std::string> all = *ListCandidates(*checkpoint);
    EXPECT_EQ(all.size(), 6u);
    for (const std::string& module : all) {
      EXPECT_THAT(module, Not(HasSubstr("layers.1.")));
      EXPECT_TRUE(checkpoint->ReadLayer(module).ok()) << checkpoint->ReadLayer(module).status();
    }
    for (const bool fuse : {false, true}) {
      const ModelPlan plan = Plan(*checkpoint, {.fuse = fuse});
      EXPECT_EQ(plan.modules.size(), fuse ? 4u : 6u);
      ASSERT_EQ(plan.hidden_files.size(), 1u);
      EXPECT_EQ(plan.hidden_files[0].name, ShardName(2));
      const std::string message(plan.hidden_files[0].status.message());
      EXPECT_THAT(message, AllOf(StartsWith(Shard(2).string()), HasSubstr(why)));
      EXPECT_EQ(absl::StrContains(message, "there are none in model.layers.1"), fuse) << message;
    }
    const absl::Status status = checkpoint->ReadLayer(ModuleName(1, "up_proj")).status();
    EXPECT_EQ(ReasonOf(status), "MODULE_NOT_FOUND");
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(ShardName(2)), HasSubstr(why)));
    const auto none = PlanModel(*checkpoint, {.modules = {"*layers.1.*"}});
    EXPECT_EQ(ReasonOf(none.status()), "BAD_CHECKPOINT");
    EXPECT_THAT(std::string(none.status().message()),
                AllOf(HasSubstr(ShardName(2)), HasSubstr(why)));
  }

  TemporaryDirectory directory_;
  std::vector<RawTensors> shards_;
};

TEST_F(UnindexedTest, AllFilesAreTheModel) {
  const auto checkpoint = Open();
  const ModelPlan plan = Plan(*checkpoint, {.fuse = true});
  EXPECT_THAT(plan.hidden_files, IsEmpty());
  EXPECT_EQ(plan.modules.size(), 6u);
  for (const PlannedModule& planned : plan.modules) {
    EXPECT_TRUE(checkpoint->ReadLayer(planned.module).ok()) << planned.module;
  }
}

// As Hugging Face's loaders have it.
TEST_F(UnindexedTest, AModelFileOrAnIndexStandsAlone) {
  WriteTensors(path() / "model.safetensors", PlainLinears({"a"}, 0x3f));
  EXPECT_THAT(*ListModules(path()), ElementsAre("a"));
  WriteFile(path() / "model.safetensors.index.json",
            absl::StrCat(R"({"weight_map": {"model.layers.0.mlp.up_proj.weight": ")", ShardName(1),
                         R"("}})"));
  EXPECT_THAT(*ListModules(path()), ElementsAre(ModuleName(0, "up_proj")));
}

TEST_F(UnindexedTest, WithADamagedHeaderTheOthersAreRead) {
  WriteFile(Shard(2), "these are no safetensors");
  ExpectHidden("header of");
  WriteFile(Shard(2), "");
  ExpectHidden("a file of 0 bytes is no safetensors file");
  WriteFile(Shard(2), SafetensorsBytes("{\"model", ""));
  ExpectHidden("header");
}

TEST_F(UnindexedTest, WithAFileThatIsNotThereTheOthersAreRead) {
  std::filesystem::remove(Shard(2));
  ExpectHidden("expected by the names of the files beside it, there is no such file");
  std::filesystem::create_symlink("gone", Shard(2));
  ExpectHidden("a symbolic link to a file that does not exist");
  std::filesystem::remove(Shard(2));
  std::filesystem::create_directory(Shard(2));
  ExpectHidden("not a regular file");
}

TEST_F(UnindexedTest, WithAFileThatMayNotBeReadTheOthersAreRead) {
  const TemporaryDirectory elsewhere;
  std::filesystem::rename(Shard(2), elsewhere.path() / "shard");
  std::filesystem::create_symlink(elsewhere.path() / "shard", Shard(2));
  ExpectHidden("is a link to a file outside the directories that may be read");
}

TEST_F(UnindexedTest, WithoutThePermissionToReadAFileTheOthersAreRead) {
  constexpr auto kEverybody = std::filesystem::perms::all;
  std::filesystem::permissions(path(), kEverybody);
  std::filesystem::permissions(Shard(2), std::filesystem::perms::none);
  const bool is_root = geteuid() == 0;  // whom permissions do not bind
  if (is_root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  ExpectHidden("cannot be opened: Permission denied");
  if (is_root) {
    ASSERT_EQ(seteuid(0), 0);
  }
}

// The header of a download that was cut short tells what is missing.
TEST_F(UnindexedTest, ModulesOfAFileThatWasCutAreListedAndFail) {
  std::filesystem::resize_file(Shard(2), std::filesystem::file_size(Shard(2)) - 5);
  const auto checkpoint = Open();
  const ModelPlan plan = Plan(*checkpoint, {.fuse = true});
  EXPECT_THAT(plan.hidden_files, IsEmpty());
  ASSERT_EQ(plan.modules.size(), 6u);
  for (const PlannedModule& planned : plan.modules) {
    const absl::Status status = checkpoint->ReadLayer(planned.module).status();
    if (!absl::StrContains(planned.module, "layers.1.")) {
      EXPECT_TRUE(status.ok()) << status;
      continue;
    }
    EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT");
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(Shard(2)), HasSubstr("but the file holds")));
  }
}

TEST_F(UnindexedTest, WithoutAnyFileThatCanBeReadTheFirstIsNamed) {
  for (int number = 1; number <= 3; ++number) WriteFile(Shard(number), "nothing");
  const auto checkpoint = Checkpoint::Open(path());
  EXPECT_EQ(ReasonOf(checkpoint.status()), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(checkpoint.status().message()), StartsWith(Shard(1).string()));
  for (int number = 1; number <= 3; ++number) std::filesystem::remove(Shard(number));
  EXPECT_EQ(ReasonOf(Checkpoint::Open(path()).status()), "CHECKPOINT_NOT_FOUND");
}

// Its weights are there, and its bias may be in the damaged file: it is not read without it.
TEST_F(UnindexedTest, AModuleIsNotReadWithoutWhatTheHiddenFileMayHold) {
  shards_[0][ModuleName(0, "up_proj") + ".bias"] = {"BF16", {2}, std::string(4, 0x3f)};
  WriteTensors(Shard(1), shards_[0]);
  WriteFile(Shard(2), "damaged");
  const auto checkpoint = Open();
  EXPECT_TRUE(checkpoint->ReadLayer(ModuleName(0, "up_proj")).ok());
  EXPECT_TRUE(checkpoint->ReadLayer(ModuleName(2, "down_proj")).ok());
  const absl::Status status = checkpoint->ReadLayer(ModuleName(2, "up_proj")).status();
  EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith(Shard(2).string()), HasSubstr("module model.layers.2.mlp.up_proj"),
                    HasSubstr("as there is model.layers.0.mlp.up_proj.bias")));
}

TEST_F(UnindexedTest, ATensorInTwoFilesIsRefused) {
  shards_[2][ModuleName(0, "up_proj") + ".weight"] = {"BF16", {2, 4}, std::string(16, 0x40)};
  WriteTensors(Shard(3), shards_[2]);
  const auto checkpoint = Open();
  const absl::Status status = checkpoint->ReadLayer(ModuleName(0, "up_proj")).status();
  EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT");
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr(Shard(1)), HasSubstr(absl::StrCat("it is in ", ShardName(3), " too"))));
  for (const bool fuse : {false, true}) {
    const ModelPlan plan = Plan(*checkpoint, {.fuse = fuse});  // an error of its module, not of the model
    EXPECT_EQ(plan.modules.size(), fuse ? 6u : 9u);
    for (const PlannedModule& planned : plan.modules) {
      const bool is_hit = planned.module == ModuleName(0, fuse ? "gate_up_proj" : "up_proj");
      EXPECT_EQ(checkpoint->ReadLayer(planned.module).ok(), !is_hit) << planned.module;
    }
  }
}

// What Finder and others put beside a file on a file system that is not theirs.
TEST_F(UnindexedTest, HiddenFilesAreNone) {
  WriteFile(path() / "._model-00001-of-00003.safetensors", std::string("\0\5\26\7", 4));
  WriteTensors(path() / ".old.safetensors", PlainLinears({"old"}, 0x3f));
  WriteFile(path() / ".safetensors", "");
  const auto checkpoint = Open();
  EXPECT_EQ(Plan(*checkpoint).modules.size(), 9u);
  EXPECT_THAT(checkpoint->files().hidden_files(), IsEmpty());
  for (int number = 1; number <= 3; ++number) std::filesystem::remove(Shard(number));
  EXPECT_EQ(ReasonOf(Checkpoint::Open(path()).status()), "CHECKPOINT_NOT_FOUND");
}

// How many experts there are, and so which are a rank's, is not known without the file.
TEST_F(UnindexedTest, ExpertsAreNotCountedWithoutTheHiddenFile) {
  for (int layer = 0; layer < 3; ++layer) {
    const std::string experts = absl::StrCat("model.layers.0.mlp.experts.", layer, ".");
    WriteTensors(Shard(layer + 1),
                 PlainLinears({experts + "up_proj", experts + "down_proj"}, 0x3f));
  }
  WriteFile(Shard(3), "damaged");
  const std::string stack = "model.layers.0.mlp.experts.up_proj";
  const absl::Status uncounted = Open()->ReadLayer(stack).status();
  EXPECT_THAT(std::string(uncounted.message()),
              AllOf(StartsWith(Shard(3).string()), HasSubstr("more of its experts")));
  WriteFile(path() / "config.json", R"({"num_experts": 3})");
  EXPECT_THAT(std::string(Open()->ReadLayer(stack).status().message()),
              HasSubstr("3 (num_experts); got 2"));
  EXPECT_TRUE(Open()->ReadLayer("model.layers.0.mlp.experts.1.up_proj").ok());
  EXPECT_EQ(Plan(*Open(), {.fuse = true}).hidden_files.size(), 1u);
  const auto rank = PlanModel(*Open(), {.experts = {.rank = 0, .size = 2, .range = {}}});
  EXPECT_THAT(std::string(rank.status().message()), HasSubstr("3 (num_experts); got 2"));
}

TEST(UnindexedFilesTest, FilesOfNumberedSetsAreMissed) {
  const TemporaryDirectory directory;
  for (const char* name :
       {"a-00001-of-00002.safetensors", "b-2-of-3.safetensors", "b-3-of-3.safetensors",
        "of.safetensors", "c-00000-of-00002.safetensors", "d-00003-of-00002.safetensors",
        "e-1-of-99999999.safetensors", "f-1-of-2.bin", "g--1-of-2.safetensors"}) {
    WriteFile(directory.path() / name, "");
  }
  const auto files = FindUnindexedFiles(directory.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->present.size(), 8u);
  EXPECT_THAT(files->missing, ElementsAre("a-00002-of-00002.safetensors", "b-1-of-3.safetensors",
                                          "g--2-of-2.safetensors"));
}

}  // namespace
}  // namespace gemmd

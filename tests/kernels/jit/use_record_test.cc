#include "kernels/jit/use_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

namespace gemmd::jit {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

const std::string kA(64, 'a');
const std::string kB(64, 'b');
const std::string kC(64, 'c');

// How many bytes the disk still takes.
ssize_t room = 0;

FileCalls LittleRoom() {
  FileCalls calls = SystemFileCalls();
  calls.write = [](int fd, const void* bytes, size_t size) -> ssize_t {
    if (room == 0) {
      errno = ENOSPC;
      return -1;
    }
    const ssize_t written = SystemFileCalls().write(fd, bytes, std::min<size_t>(size, room));
    room -= written;
    return written;
  };
  return calls;
}

class UseRecordTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "gemmd_uses_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }
  uint64_t Lines() const {
    std::ifstream file(directory_ / "uses");
    return std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n');
  }
  fs::path directory_;
};

TEST_F(UseRecordTest, LaterUseIsLaterWhateverTheClockSays) {
  UseRecord record(directory_);
  for (const std::string& key : {kA, kB, kC, kA}) record.Used(key);
  const auto order = record.Order();
  EXPECT_LT(order.at(kB), order.at(kC));
  EXPECT_LT(order.at(kC), order.at(kA));
}

TEST_F(UseRecordTest, DamagedRecordLosesOnlyDamagedLines) {
  UseRecord(directory_).Used(kA);
  std::ofstream(directory_ / "uses", std::ios::app) << "half a li\n\n" << kC.substr(1) << "\n";
  UseRecord record(directory_);
  record.Used(kB);
  EXPECT_EQ(record.Order().size(), 2);
}

TEST_F(UseRecordTest, LineCutOffByACrashDoesNotSpoilLaterOnes) {
  std::ofstream(directory_ / "uses") << kA << "\n" << kB.substr(0, 10);
  UseRecord record(directory_);
  record.Used(kC);  // joins the cut line and is lost
  record.Used(kC);
  EXPECT_EQ(record.Order().count(kC), 1);
}

TEST_F(UseRecordTest, KeysLoadedByAnotherLivingOwnerCount) {
  UseRecord mine(directory_);
  UseRecord other(directory_);
  mine.Loaded(kA);
  other.Loaded(kB);
  EXPECT_THAT(mine.AllLoaded(), UnorderedElementsAre(kA, kB));
}

TEST_F(UseRecordTest, KeysOfADeadOwnerDoNotCountAndItsListGoes) {
  std::ofstream(directory_ / "1-0.loaded") << kA << "\n";
  UseRecord record(directory_);
  EXPECT_TRUE(record.AllLoaded().empty());
  EXPECT_FALSE(fs::exists(directory_ / "1-0.loaded"));
}

TEST_F(UseRecordTest, WhatWasLoadedUntilTheEndWasUsedLast) {
  {
    UseRecord record(directory_);
    record.Used(kA);
    record.Loaded(kA);
    record.Used(kB);
  }
  const auto order = UseRecord(directory_).Order();
  EXPECT_LT(order.at(kB), order.at(kA));
}

TEST_F(UseRecordTest, CompactingKeepsTheOrderOfWhatExists) {
  UseRecord record(directory_);
  record.Used(kC);
  for (int i = 0; i < 1100; ++i) record.Used(i % 2 == 0 ? kB : kA);
  record.Compact({kA, kB});
  EXPECT_EQ(Lines(), 2);
  const auto order = record.Order();
  EXPECT_LT(order.at(kB), order.at(kA));
  EXPECT_EQ(order.count(kC), 0);
}

TEST_F(UseRecordTest, DirectoryThatTakesNoFilesIsHarmless) {
  UseRecord record("/proc/no-such-directory");
  record.Used(kB);
  record.Used(kA);
  record.Loaded(kA);
  EXPECT_THAT(record.problem(), HasSubstr("No such file"));
  EXPECT_LT(record.Order().at(kB), record.Order().at(kA));
  EXPECT_THAT(record.AllLoaded(), ElementsAre(kA));
}

TEST_F(UseRecordTest, UsesThatAFullDiskDidNotTakeCountAndAreWrittenLater) {
  const FileCalls calls = LittleRoom();
  UseRecord record(directory_, calls);
  room = 65 + 10;  // a line, and the start of another one
  for (const std::string& key : {kB, kA, kC, kA}) record.Used(key);
  EXPECT_THAT(record.problem(), HasSubstr("No space left"));
  EXPECT_EQ(UseRecord(directory_).Order().size(), 1) << "another process sees what is written";
  auto order = record.Order();
  EXPECT_LT(order.at(kB), order.at(kC));
  EXPECT_LT(order.at(kC), order.at(kA));

  room = 1 << 20;
  record.Used(kB);
  EXPECT_EQ(record.problem(), "");
  order = UseRecord(directory_).Order();
  EXPECT_LT(order.at(kC), order.at(kA));
  EXPECT_LT(order.at(kA), order.at(kB));
}

TEST_F(UseRecordTest, LoadedKeysThatAFullDiskDidNotTakeAreListedLater) {
  const FileCalls calls = LittleRoom();
  UseRecord record(directory_, calls);
  const UseRecord other(directory_);
  room = 10;
  record.Loaded(kA);
  EXPECT_THAT(record.problem(), HasSubstr("No space left"));
  EXPECT_THAT(record.AllLoaded(), ElementsAre(kA)) << "this process knows";
  EXPECT_TRUE(other.AllLoaded().empty());

  room = 1 << 20;
  record.Loaded(kB);
  EXPECT_EQ(record.problem(), "");
  EXPECT_THAT(other.AllLoaded(), UnorderedElementsAre(kA, kB));
}

TEST_F(UseRecordTest, CompactingOnAFullDiskChangesNothing) {
  const FileCalls calls = LittleRoom();
  UseRecord record(directory_, calls);
  room = 1 << 20;
  for (int i = 0; i < 1100; ++i) record.Used(i % 2 == 0 ? kB : kA);
  room = 10;
  record.Compact({kA, kB});
  EXPECT_EQ(Lines(), 1100);
}

}  // namespace
}  // namespace gemmd::jit

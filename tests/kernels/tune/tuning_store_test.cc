#include "kernels/tune/tuning_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "kernels/base/status.h"
#include "kernels/tune/tuning_json.h"
#include "tests/kernels/tune/tuning_entries.h"

namespace gemmd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kNow[] = "digest of now";
constexpr char kThen[] = "digest of then";

class TuningStoreTest : public ::testing::Test {
 protected:
  TuningStoreTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gemmd_tune_XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    directory_ = root_ / "tuning";
  }
  ~TuningStoreTest() override { std::filesystem::remove_all(root_); }

  std::shared_ptr<TuningStore> Open(const std::vector<TuningEntry>& built_in = {}) const {
    return TuningStore::Open({.directory = directory_,
                              .gemmd_version = "0.1.0",
                              .kernels_digest = kNow,
                              .built_in = RenderTuning(built_in)});
  }
  static std::vector<double> TimesOf(const TuningStore& store, const TuningEntry& like) {
    std::vector<double> times;
    const auto entry = store.Find(like.key);
    if (!entry.has_value()) return times;
    for (const MeasuredPoint& point : entry->points) times.push_back(point.ns);
    return times;
  }
  std::filesystem::path FileOf(const TuningEntry& entry) const {
    return directory_ / TuningFileName(entry.key);
  }

  std::filesystem::path root_;
  std::filesystem::path directory_;
};

TEST_F(TuningStoreTest, WhatWasPutIsThereAfterwards) {
  const TuningEntry entry = MakeEntry(8192, kNow, {MakePoint(1, 10), MakePoint(64, 20)});
  ASSERT_TRUE(Open()->Put(entry).ok());
  const auto store = Open();
  EXPECT_EQ(store->notes().local, 1);
  EXPECT_TRUE(store->notes().warnings.empty());
  EXPECT_EQ(store->Find(entry.key), entry);
  EXPECT_FALSE(store->Find(MakeEntry(4096, kNow, {}).key).has_value());
}

TEST_F(TuningStoreTest, EveryPartOfTheKeyCounts) {
  const TuningEntry entry = MakeEntry(8192, kNow, {MakePoint(1, 10)});
  const auto store = Open();
  ASSERT_TRUE(store->Put(entry).ok());
  const auto expect_other = [&](auto change) {
    TuningKey key = entry.key;
    change(key);
    EXPECT_FALSE(store->Find(key).has_value());
    EXPECT_NE(TuningFileName(key), TuningFileName(entry.key));
  };
  expect_other([](TuningKey& key) { key.device.name = "Other GPU"; });
  expect_other([](TuningKey& key) { key.device.multiprocessors = 114; });
  expect_other([](TuningKey& key) { key.device.clock_mhz = 1755; });
  expect_other([](TuningKey& key) { key.spec += " "; });
  expect_other([](TuningKey& key) { ++key.n; });
  expect_other([](TuningKey& key) { ++key.k; });
  expect_other([](TuningKey& key) { key.x_type = "float16"; });
}

TEST_F(TuningStoreTest, NewPointsReplaceTheSameMAndKeepTheOthers) {
  const auto store = Open();
  ASSERT_TRUE(store->Put(MakeEntry(8192, kNow, {MakePoint(1, 10), MakePoint(64, 20)})).ok());
  TuningEntry newer = MakeEntry(8192, kNow, {MakePoint(16, 15), MakePoint(64, 19)});
  newer.conditions.date = "2026-12-01T00:00:00Z";
  ASSERT_TRUE(store->Put(newer).ok());
  EXPECT_THAT(TimesOf(*store, newer), ElementsAre(10, 15, 19));
  EXPECT_THAT(TimesOf(*Open(), newer), ElementsAre(10, 15, 19));
  EXPECT_EQ(store->Find(newer.key)->conditions, newer.conditions);
}

TEST_F(TuningStoreTest, PointsThatDoNotCompareAreDropped) {
  const TuningEntry base = MakeEntry(8192, kNow, {MakePoint(1, 10)});
  const auto expect_alone = [&](auto change) {
    const auto store = Open();
    ASSERT_TRUE(store->Put(base).ok());
    TuningEntry newer = MakeEntry(8192, kNow, {MakePoint(64, 20)});
    change(newer.conditions);
    ASSERT_TRUE(store->Put(newer).ok());
    EXPECT_EQ(store->List().front().entry.points.size(), 1u);
  };
  expect_alone([](TuningConditions& c) { c.driver = "13.1"; });
  expect_alone([](TuningConditions& c) { c.protocol = "warm"; });
  expect_alone([](TuningConditions& c) { c.flush_bytes = 1; });
  expect_alone([](TuningConditions& c) { c.kernels = kThen; });
}

TEST_F(TuningStoreTest, StaleEntriesDecideNothingAndAreTold) {
  const TuningEntry stale = MakeEntry(8192, kThen, {MakePoint(1, 10)});
  ASSERT_TRUE(Open()->Put(stale).ok());
  const auto store = Open({MakeEntry(6144, kThen, {MakePoint(1, 10)})});
  EXPECT_EQ(store->notes().stale, 2);
  EXPECT_FALSE(store->Find(stale.key).has_value());
  ASSERT_EQ(store->List().size(), 2u);
  EXPECT_TRUE(store->List()[0].is_stale);
  EXPECT_EQ(store->Export(), RenderTuning({}));
  EXPECT_TRUE(std::filesystem::exists(FileOf(stale)));
}

TEST_F(TuningStoreTest, WhatWasMeasuredHereGoesBeforeWhatShips) {
  const TuningEntry shipped = MakeEntry(8192, kNow, {MakePoint(1, 10)});
  const TuningEntry local = MakeEntry(8192, kNow, {MakePoint(1, 9)});
  const auto store = Open({shipped});
  EXPECT_EQ(store->notes().built_in, 1);
  EXPECT_THAT(TimesOf(*store, shipped), ElementsAre(10));
  ASSERT_TRUE(store->Put(local).ok());
  EXPECT_THAT(TimesOf(*store, shipped), ElementsAre(9));
  ASSERT_TRUE(store->Put(MakeEntry(8192, kThen, {MakePoint(1, 8)})).ok());
  EXPECT_THAT(TimesOf(*store, shipped), ElementsAre(10)) << "a stale entry hides nothing";
  ASSERT_EQ(store->List().size(), 2u);
  EXPECT_FALSE(store->List()[0].is_built_in);
  EXPECT_TRUE(store->List()[1].is_built_in);
}

TEST_F(TuningStoreTest, DamagedFilesAreDroppedForeignOnesAreLeftAlone) {
  const TuningEntry good = MakeEntry(8192, kNow, {MakePoint(1, 10)});
  const TuningEntry cut = MakeEntry(6144, kNow, {MakePoint(1, 10)});
  const TuningEntry moved = MakeEntry(4096, kNow, {MakePoint(1, 10)});
  const TuningEntry empty = MakeEntry(2048, kNow, {MakePoint(1, 10)});
  for (const TuningEntry* entry : {&good, &cut, &empty}) ASSERT_TRUE(Open()->Put(*entry).ok());
  std::filesystem::resize_file(FileOf(cut), std::filesystem::file_size(FileOf(cut)) / 2);
  std::filesystem::resize_file(FileOf(empty), 0);
  std::ofstream(FileOf(moved)) << RenderTuning({good});  // another entry's name
  std::ofstream(directory_ / "notes.txt") << "hello";
  std::ofstream(directory_ / "h200.json") << RenderTuning({good});
  std::ofstream(FileOf(good).string() + ".1-1.tmp") << "of a process that died";

  const auto store = Open();
  EXPECT_EQ(store->notes().local, 1);
  EXPECT_EQ(store->notes().damaged, 3);
  EXPECT_EQ(store->notes().foreign, 2);
  EXPECT_EQ(store->notes().warnings.size(), 4u);
  EXPECT_TRUE(store->Find(good.key).has_value());
  for (const TuningEntry* entry : {&cut, &moved, &empty}) {
    EXPECT_FALSE(store->Find(entry->key).has_value());
    EXPECT_FALSE(std::filesystem::exists(FileOf(*entry)));
  }
  EXPECT_TRUE(std::filesystem::exists(directory_ / "notes.txt"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "h200.json"));
  EXPECT_FALSE(std::filesystem::exists(FileOf(good).string() + ".1-1.tmp"));
  EXPECT_EQ(Open()->notes().damaged, 0);
}

TEST_F(TuningStoreTest, ADirectoryThatCannotBeUsedIsTold) {
  std::ofstream(directory_) << "a file is here";
  const auto store = Open();
  ASSERT_EQ(store->notes().warnings.size(), 1u);
  EXPECT_THAT(store->notes().warnings[0], HasSubstr("tuning is not kept"));
  const TuningEntry entry = MakeEntry(8192, kNow, {MakePoint(1, 10)});
  EXPECT_TRUE(store->Put(entry).ok());
  EXPECT_TRUE(store->Find(entry.key).has_value()) << "it works from memory";
}

TEST_F(TuningStoreTest, WhatCannotBeWrittenStillDecides) {
  const auto store = Open();
  std::filesystem::remove_all(directory_);
  const TuningEntry entry = MakeEntry(8192, kNow, {MakePoint(1, 10)});
  EXPECT_EQ(ReasonOf(store->Put(entry)), "CACHE_WRITE");
  EXPECT_TRUE(store->Find(entry.key).has_value());
}

TEST_F(TuningStoreTest, WithoutADirectoryItWorksFromMemory) {
  const auto store = TuningStore::Open({.kernels_digest = kNow});
  EXPECT_TRUE(store->notes().warnings.empty());
  const TuningEntry entry = MakeEntry(8192, kNow, {MakePoint(1, 10)});
  EXPECT_TRUE(store->Put(entry).ok());
  EXPECT_TRUE(store->Find(entry.key).has_value());
}

TEST_F(TuningStoreTest, AnExportIsImportedElsewhere) {
  const auto here = Open();
  const TuningEntry entry = MakeEntry(8192, kNow, {MakePoint(1, 10)});
  ASSERT_TRUE(here->Put(entry).ok());
  const auto there = TuningStore::Open({.kernels_digest = kNow});
  const auto imported = there->Import(here->Export());
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->entries, 1);
  EXPECT_EQ(there->Find(entry.key), entry);

  const auto other = TuningStore::Open({.kernels_digest = kThen, .built_in = RenderTuning({})});
  EXPECT_EQ(other->Import(here->Export())->stale, 1);
  EXPECT_TRUE(other->List().empty());
  EXPECT_EQ(ReasonOf(other->Import("{}").status()), "TUNING_DAMAGED");
}

TEST_F(TuningStoreTest, ThreadsMayPutAndFindAtOnce) {
  const auto store = Open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&store, t] {
      for (int i = 1; i <= 20; ++i) {
        const TuningEntry entry = MakeEntry(64 * (t + 1), kNow, {MakePoint(i, i)});
        EXPECT_TRUE(store->Put(entry).ok());
        EXPECT_TRUE(store->Find(entry.key).has_value());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto again = Open();
  EXPECT_EQ(again->notes().local, 4);
  for (const StoredTuning& stored : again->List()) EXPECT_EQ(stored.entry.points.size(), 20u);
}

}  // namespace
}  // namespace gemmd

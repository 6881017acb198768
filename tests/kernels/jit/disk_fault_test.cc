// What the disk can do to a cache: be full, die in the middle, lie on a network, hold foreign things.
#include <gmock/gmock.h>

#include <cerrno>

#include "kernels/base/status.h"
#include "kernels/jit/cache_entry.h"
#include "tests/kernels/jit/cache_fixture.h"

namespace gemmd::jit {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

ssize_t NoSpace(int, const void*, size_t) {
  errno = ENOSPC;
  return -1;
}
bool g_disk_is_full;
FileCalls CallsOfAFullDisk() {
  g_disk_is_full = true;
  FileCalls calls = SystemFileCalls();
  calls.write = [](int fd, const void* bytes, size_t size) {
    return g_disk_is_full ? NoSpace(fd, bytes, size) : SystemFileCalls().write(fd, bytes, size);
  };
  return calls;
}
int NoInode(const char*, int, mode_t) {
  errno = EDQUOT;
  return -1;
}
long Nfs(const char*) { return 0x6969; }

class DiskFaultTest : public CacheFixture {
 protected:
  std::unique_ptr<KernelCache> OpenWith(const FileCalls& files) {
    return *KernelCache::Open({.directory = directory_, .files = &files});
  }
  // Puts `kernel` in the place of the entry that ScaleKernel(2) asks for.
  void Plant(CompiledKernel kernel) {
    kernel.key = KernelKey(ScaleKernel(2), *real_nvrtc);
    WriteEntry(2, EncodeEntry(kernel));
  }
  CompiledKernel Real() { return **Get(*Open()); }
};

TEST_F(DiskFaultTest, FullDiskCostsTheFileNotTheKernel) {
  FileCalls full = SystemFileCalls();
  full.write = &NoSpace;
  const auto cache = OpenWith(full);
  ASSERT_TRUE(Get(*cache).ok());
  ASSERT_TRUE(Get(*cache).ok());
  const CacheStats stats = cache->stats();
  EXPECT_EQ(stats.compilations, 1);
  EXPECT_EQ(stats.memory_hits, 1);
  EXPECT_EQ(stats.write_failures, 1);
  EXPECT_THAT(stats.warning, HasSubstr("No space left"));
  EXPECT_EQ(FilesWith(".tmp") + FilesWith(".kernel"), 0);
}

TEST_F(DiskFaultTest, FullDiskThatTakesNoUsesIsWarnedAboutUntilItDoes) {
  ASSERT_TRUE(Get(*Open()).ok());
  ASSERT_TRUE(Get(*Open(), 3).ok());
  const FileCalls calls = CallsOfAFullDisk();  // outlives the cache
  const auto cache = OpenWith(calls);
  ASSERT_TRUE(Get(*cache).ok());
  EXPECT_EQ(cache->stats().disk_hits, 1);
  EXPECT_EQ(cache->stats().write_failures, 0);
  EXPECT_THAT(cache->stats().warning, HasSubstr("uses: No space left"));
  EXPECT_EQ(cache->disk()->List().front().key + ".kernel", EntryOf(2).filename())
      << "this process knows what it used last";
  g_disk_is_full = false;
  ASSERT_TRUE(Get(*cache, 3).ok());
  EXPECT_EQ(cache->stats().warning, "");
}

TEST_F(DiskFaultTest, AFullDiskIsWarnedAboutUntilAKernelReachesIt) {
  const FileCalls calls = CallsOfAFullDisk();  // outlives the cache
  const auto cache = OpenWith(calls);
  ASSERT_TRUE(Get(*cache).ok());
  EXPECT_THAT(cache->stats().warning, HasSubstr("No space left"));
  g_disk_is_full = false;
  ASSERT_TRUE(Get(*cache, 3).ok());
  EXPECT_EQ(cache->stats().warning, "");
}

TEST_F(DiskFaultTest, WhatAnotherUserOwnsIsNotDroppedAndNotCountedAsDropped) {
  ASSERT_TRUE(Get(*Open()).ok());
  ASSERT_EQ(chmod(directory_.c_str(), 0555), 0);
  ASSERT_EQ(chmod(parent_.c_str(), 0755), 0);
  {
    const OrdinaryUser user;
    const auto cache = Open();
    const std::string key = EntryOf(2).stem();
    const absl::Status dropped = cache->DropEntry(key, absl::DataLossError("damaged"));
    EXPECT_EQ(ReasonOf(dropped), "CACHE_WRITE");
    EXPECT_THAT(std::string(dropped.message()), HasSubstr("Permission denied"));
    EXPECT_EQ(cache->stats().damaged_entries, 0);
    if (getuid() == 0) {  // its entry is root's alone
      EXPECT_EQ(ReasonOf(cache->disk()->Read(key).status()), "CACHE_READ");
    }
  }
  ASSERT_EQ(chmod(directory_.c_str(), 0700), 0);
}

TEST_F(DiskFaultTest, BytesOfOtherProcessesAreCountedWithinASecond) {
  const auto cache = Open();
  ASSERT_TRUE(Get(*cache).ok());
  const uint64_t alone = cache->stats().disk_bytes;
  EXPECT_EQ(alone, fs::file_size(EntryOf(2)));
  ASSERT_TRUE(Get(*Open(), 3).ok());
  absl::SleepFor(absl::Milliseconds(1100));
  EXPECT_EQ(cache->stats().disk_bytes, alone + fs::file_size(EntryOf(3)));
}

TEST_F(DiskFaultTest, QuotaOfFilesCostsTheFileNotTheKernel) {
  FileCalls full = SystemFileCalls();
  full.open = [](const char* path, int flags, mode_t mode) {
    return (flags & O_CREAT) != 0 ? NoInode(path, flags, mode)
                                  : SystemFileCalls().open(path, flags, mode);
  };
  const auto cache = OpenWith(full);
  EXPECT_TRUE(Get(*cache).ok());
  EXPECT_EQ(cache->stats().write_failures, 1);
}

TEST_F(DiskFaultTest, NetworkFileSystemIsWarnedAbout) {
  FileCalls network = SystemFileCalls();
  network.file_system_type = &Nfs;
  EXPECT_THAT(OpenWith(network)->stats().warning, HasSubstr("NFS"));
  EXPECT_EQ(Open()->stats().warning, "");
}

TEST_F(DiskFaultTest, EntryOfAnotherArchitectureIsDroppedCountedAndRebuilt) {
  CompiledKernel foreign = Real();
  foreign.architecture = "sm_80";
  Plant(foreign);
  const auto cache = Open();
  EXPECT_EQ((*Get(*cache))->architecture, "sm_90a");
  EXPECT_EQ(cache->stats().foreign_entries, 1);
  EXPECT_EQ(cache->stats().compilations, 1);
}

TEST_F(DiskFaultTest, EntryOfAnotherCompilerIsDroppedCountedAndRebuilt) {
  CompiledKernel foreign = Real();
  foreign.compiler = "12.8 feed";
  Plant(foreign);
  const auto cache = Open();
  ASSERT_TRUE(Get(*cache).ok());
  EXPECT_EQ(cache->stats().foreign_entries, 1);
  EXPECT_EQ(cache->stats().compilations, 1);
}

TEST_F(DiskFaultTest, EntryOfAnotherSchemaIsDroppedCountedAndRebuilt) {
  ASSERT_TRUE(Get(*Open()).ok());
  std::string bytes = ReadEntry(2);
  bytes[8] = 1;
  WriteEntry(2, bytes);
  const auto cache = Open();
  ASSERT_TRUE(Get(*cache).ok());
  EXPECT_EQ(cache->stats().stale_entries, 1);
  EXPECT_EQ(cache->stats().damaged_entries, 0);
  EXPECT_EQ(cache->stats().compilations, 1);
}

// create, half a write, write, sync, rename, sync of the directory, and what notes the use: the probe dies by
// SIGKILL before (or in the middle of) its Nth call.
TEST_F(DiskFaultTest, KillAtEveryStepOfPublishingLeavesAWholeEntryOrNone) {
  constexpr int kStepsOfPublishing = 6;
  constexpr int kManySteps = 50;
  int step = 0;
  for (bool died = true; died && step < kManySteps;) {
    fs::remove_all(directory_);
    Probe writer("crash", directory_, std::to_string(++step));
    writer.Start();
    died = writer.Wait() != 0;
    const bool published = FilesWith(".kernel") == 1;
    EXPECT_EQ(published, step >= kStepsOfPublishing) << step;
    const auto cache = Open();
    EXPECT_EQ(FilesWith(".tmp") + FilesWith(".lock") + FilesWith(".loaded"), 0) << step;
    ASSERT_TRUE(Get(*cache).ok()) << step;
    EXPECT_EQ(cache->stats().disk_hits, published ? 1 : 0) << step;
    EXPECT_EQ(cache->stats().compilations, published ? 0 : 1) << step;
    EXPECT_EQ(cache->stats().damaged_entries, 0) << step;
  }
  EXPECT_GT(step, kStepsOfPublishing);
  EXPECT_LT(step, kManySteps);
}

}  // namespace
}  // namespace gemmd::jit

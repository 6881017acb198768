// What a cache exports, it can import elsewhere: neither makes or takes more than the bound.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/jit/bundle.h"
#include "kernels/kernel_store.h"
#include "tests/kernels/put_entry.h"

namespace gemmd {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class BundleBoundTest : public ::testing::Test {
 protected:
  BundleBoundTest() {
    std::string pattern = (fs::temp_directory_path() / "gemmd_bound_XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  ~BundleBoundTest() override { fs::remove_all(directory_); }
  std::shared_ptr<KernelStore> Open(uint64_t bound, const std::string& name = "a") const {
    return *KernelStore::Open({.directory = directory_ / name, .max_bundle_bytes = bound});
  }
  // Two kernels; returns the bytes of their bundle.
  uint64_t PutTwo() const {
    const std::string large = jit::PutEntry(directory_ / "a", 'b', 5000);
    const std::string small = jit::PutEntry(directory_ / "a", 'c', 1000, "sm_80");
    return jit::BundleBytes(2, large.size() + small.size());
  }

  fs::path directory_;
};

TEST_F(BundleBoundTest, AnExportUpToTheBoundIsMadeAndTaken) {
  const uint64_t bytes = PutTwo();
  const auto exported = Open(bytes)->Export({});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->bundle.size(), bytes);
  EXPECT_EQ(exported->entries, 2);
  const auto imported = Open(bytes, "b")->Import(exported->bundle);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->imported, 2);
}

TEST_F(BundleBoundTest, OneByteMoreIsRefusedWithSizeBoundAndAdviceItsPartsAreNot) {
  const uint64_t bytes = PutTwo();
  const auto store = Open(bytes - 1);
  const absl::Status refused = store->Export({}).status();
  EXPECT_EQ(ReasonOf(refused), "OUT_OF_RANGE") << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(absl::StrCat("has ", bytes, " bytes, must have at most ", bytes - 1,
                                     ": export the kernels in parts")));
  EXPECT_EQ(store->Export({.architectures = {"sm_80"}})->entries, 1);
  EXPECT_EQ(store->Export({.key_prefix = "b"})->entries, 1);
}

TEST_F(BundleBoundTest, WhatIsRefusedByItsSizeIsNotRead) {
  const uint64_t bytes = PutTwo();
  // Damage behind the facts: whoever read the entry whole would leave it out, and keep the bound.
  {
    std::fstream file(directory_ / "a" / (std::string(64, 'b') + ".kernel"),
                      std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  EXPECT_EQ(ReasonOf(Open(bytes - 1)->Export({}).status()), "OUT_OF_RANGE");
  const auto exported = Open(bytes)->Export({});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->entries, 1);
  EXPECT_EQ(exported->skipped.size(), 1u);
}

TEST_F(BundleBoundTest, AnEntryWithoutFactsDoesNotCount) {
  const uint64_t bytes = PutTwo();
  std::ofstream(directory_ / "a" / (std::string(64, 'd') + ".kernel")) << std::string(10000, 'x');
  const auto exported = Open(bytes)->Export({});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->entries, 2);
  EXPECT_EQ(exported->skipped.size(), 1u);
}

TEST_F(BundleBoundTest, AnImportAboveTheBoundTakesNothing) {
  const uint64_t bytes = PutTwo();
  const std::string bundle = Open(bytes)->Export({})->bundle;
  const auto store = Open(bytes - 1, "b");
  EXPECT_EQ(ReasonOf(store->Import(bundle).status()), "OUT_OF_RANGE");
  EXPECT_EQ(ReasonOf(store->CheckBundleStart(bundle)), "OUT_OF_RANGE");
  EXPECT_TRUE(store->CheckBundleStart(bundle.substr(0, bytes - 1)).ok());
  EXPECT_TRUE(store->List({})->empty());
}

}  // namespace
}  // namespace gemmd

// Kernels that failed their self-test: what is remembered, for whom, and until when.
#include "kernels/jit/quarantine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/jit/cache_fixture.h"

namespace gemmd::jit {
namespace {

const std::string kBadKey(64, 'c');

CompiledKernel BadKernel() {
  CompiledKernel kernel;
  kernel.key = kBadKey;
  kernel.architecture = "sm_90a";
  kernel.compiler = "13.0 abc";
  kernel.label = "gemm_bad";
  return kernel;
}

TEST(QuarantineRecordTest, RoundTripKeepsEveryLineOfTheReason) {
  const QuarantineRecord record{13010, "sm_90a", "13.0 abc", "gemm", "y[1, 2] is 3\nexpected 4"};
  EXPECT_EQ(DecodeQuarantine(EncodeQuarantine(record)), record);
}

TEST(QuarantineRecordTest, NeverReadsOnBeyondALineThatHasALineBreakInIt) {
  const QuarantineRecord record{1, "sm\n90a", "13.0", "gemm", "why"};
  const auto read = DecodeQuarantine(EncodeQuarantine(record));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->architecture, "sm 90a");
  EXPECT_EQ(read->why, "why");
}

TEST(QuarantineRecordTest, CutOffOrForeignTextIsNoRecord) {
  const std::string whole = EncodeQuarantine({13010, "sm_90a", "13.0 abc", "gemm", "why"});
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(DecodeQuarantine(whole.substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(DecodeQuarantine("gemmd quarantine 2\n1\na\nb\nc\nd\n").has_value());
  EXPECT_FALSE(DecodeQuarantine("gemmd quarantine 1\nnew\na\nb\nc\nd\n").has_value());
}

class QuarantineTest : public CacheFixture {};

TEST_F(QuarantineTest, HoldsUnderTheSameDriverInOtherProcessesToo) {
  Open()->Quarantine(BadKernel(), 13010, "y[0, 0] is 1, expected 2");
  const auto cache = Open();
  const auto record = cache->Quarantined(kBadKey, 13010);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->why, "y[0, 0] is 1, expected 2");
  EXPECT_EQ(record->label, "gemm_bad");
  EXPECT_FALSE(cache->Quarantined(kBadKey, 13020).has_value()) << "another driver may do better";
  EXPECT_FALSE(cache->Quarantined(std::string(64, 'd'), 13010).has_value());
}

TEST_F(QuarantineTest, IsRememberedWithoutADisk) {
  const auto cache = *KernelCache::Open("");
  cache->Quarantine(BadKernel(), 13010, "why");
  EXPECT_TRUE(cache->Quarantined(kBadKey, 13010).has_value());
  cache->ForgetFailures();
  EXPECT_FALSE(cache->Quarantined(kBadKey, 13010).has_value());
}

TEST_F(QuarantineTest, DamagedRecordIsNone) {
  Open()->Quarantine(BadKernel(), 13010, "why");
  fs::resize_file(directory_ / (kBadKey + ".quarantine"), 30);
  EXPECT_FALSE(Open()->Quarantined(kBadKey, 13010).has_value());
}

TEST_F(QuarantineTest, RecordsAreNoEntries) {
  const auto cache = Open();
  cache->Quarantine(BadKernel(), 13010, "why");
  EXPECT_TRUE(cache->disk()->List().empty());
  EXPECT_THAT(cache->disk()->Quarantined(), ::testing::ElementsAre(kBadKey));
  EXPECT_TRUE(cache->disk()->DropQuarantine(kBadKey).ok());
  EXPECT_TRUE(cache->disk()->Quarantined().empty());
}

}  // namespace
}  // namespace gemmd::jit

#include "kernels/jit/cache_entry.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/base/status.h"
#include "tests/kernels/jit/cubin_header.h"

namespace gemmd::jit {
namespace {

const std::string kKey(64, 'a');

std::vector<std::byte> Bytes(const std::string& text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

CompiledKernel SmallKernel() {
  return {Bytes(FakeCubin(90, std::string("\1\0\377", 3))),
          "_Z4Gemmv",
          kKey,
          "a log",
          "40 registers",
          "sm_90a",
          "13.0 abcd",
          "gemm"};
}

void ExpectDamaged(const std::string& bytes, const std::string& what) {
  const auto kernel = DecodeEntry(bytes, kKey);
  EXPECT_EQ(kernel.status().code(), absl::StatusCode::kDataLoss) << what;
  const std::string reason = ReasonOf(kernel.status());
  EXPECT_TRUE(reason == "CACHE_ENTRY_DAMAGED" || reason == "CACHE_ENTRY_STALE") << what;
}

TEST(CacheEntryTest, RoundTripKeepsTheKernel) {
  const auto kernel = DecodeEntry(EncodeEntry(SmallKernel()), kKey);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(kernel->cubin, SmallKernel().cubin);
  EXPECT_EQ(kernel->lowered_name, "_Z4Gemmv");
  EXPECT_EQ(kernel->key, kKey);
  EXPECT_EQ(kernel->log, "");
  EXPECT_EQ(kernel->usage, "40 registers");
  EXPECT_EQ(kernel->architecture, "sm_90a");
  EXPECT_EQ(kernel->compiler, "13.0 abcd");
  EXPECT_EQ(kernel->label, "gemm");
  EXPECT_EQ(KeyInEntry(EncodeEntry(SmallKernel())), kKey);
}

TEST(CacheEntryTest, FactsAreReadWithoutTheCubin) {
  CompiledKernel large = SmallKernel();
  large.cubin.resize(1 << 20);
  const std::string bytes = EncodeEntry(large);
  const std::string front = bytes.substr(0, 500);
  const auto kernel = DecodeFacts(front, bytes.size(), kKey);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_TRUE(kernel->cubin.empty());
  EXPECT_EQ(kernel->usage, "40 registers");
  EXPECT_EQ(kernel->label, "gemm");
  for (const uint64_t size : {uint64_t{0}, bytes.size() - 1, bytes.size() + 1}) {
    EXPECT_FALSE(DecodeFacts(front, size, kKey).ok()) << size;
  }
  for (size_t size = 0; size < 96 + 50; ++size) {
    EXPECT_FALSE(DecodeFacts(front.substr(0, size), bytes.size(), kKey).ok()) << size;
  }
}

TEST(CacheEntryTest, AnotherSchemaIsStaleNotDamaged) {
  std::string bytes = EncodeEntry(SmallKernel());
  bytes[8] = 1;
  EXPECT_EQ(ReasonOf(DecodeEntry(bytes, kKey).status()), "CACHE_ENTRY_STALE");
}

TEST(CacheEntryTest, WholeEntryOfAnotherOriginIsForeign) {
  EXPECT_TRUE(CheckOrigin(SmallKernel(), "sm_90a", "13.0 abcd").ok());
  EXPECT_EQ(ReasonOf(CheckOrigin(SmallKernel(), "sm_90", "13.0 abcd")), "CACHE_ENTRY_FOREIGN");
  EXPECT_EQ(ReasonOf(CheckOrigin(SmallKernel(), "sm_90a", "13.0 abce")), "CACHE_ENTRY_FOREIGN");
}

// All digests are right: somebody put the cubin of another architecture behind these facts.
TEST(CacheEntryTest, ACubinOfAnotherArchitectureThanItsFactsIsForeign) {
  CompiledKernel kernel = SmallKernel();  // says sm_90a
  const auto with = [&kernel](uint32_t flags) {
    kernel.cubin = Bytes(CubinHeader(8, flags));
    return EncodeEntry(kernel);
  };
  EXPECT_TRUE(DecodeEntry(with(0x6005a04), kKey).ok());
  const absl::Status forged = DecodeEntry(with(0x6005004), kKey).status();
  EXPECT_EQ(ReasonOf(forged), "CACHE_ENTRY_FOREIGN");
  EXPECT_EQ(forged.message(), "cubin for 'sm_80', not 'sm_90a'");
}

// All digests are right, too.
TEST(CacheEntryTest, WhatIsNoCubinIsDamage) {
  CompiledKernel kernel = SmallKernel();
  for (const std::string& payload : {std::string(64, 'g'), CubinHeader(8, 0x6005a04).substr(1), std::string("x")}) {
    kernel.cubin = Bytes(payload);
    const absl::Status status = DecodeEntry(EncodeEntry(kernel), kKey).status();
    EXPECT_EQ(ReasonOf(status), "CACHE_ENTRY_DAMAGED");
    EXPECT_EQ(status.message(), "what it holds is no cubin");
  }
  kernel.cubin = Bytes(CubinHeader(9, 0));
  EXPECT_TRUE(DecodeEntry(EncodeEntry(kernel), kKey).ok()) << "of an ABI version to come";
}

TEST(CacheEntryTest, EveryProblemHasItsName) {
  std::string stale = EncodeEntry(SmallKernel());
  stale[8] = 1;
  EXPECT_EQ(ProblemOf(DecodeEntry(stale, kKey).status()), "stale");
  EXPECT_EQ(ProblemOf(DecodeEntry("", kKey).status()), "damaged");
  EXPECT_EQ(ProblemOf(CheckOrigin(SmallKernel(), "sm_90", "13.0 abcd")), "foreign");
}

TEST(CacheEntryTest, EveryTruncationIsDamage) {
  const std::string bytes = EncodeEntry(SmallKernel());
  for (size_t size = 0; size < bytes.size(); ++size) {
    ExpectDamaged(bytes.substr(0, size), "size " + std::to_string(size));
  }
}

TEST(CacheEntryTest, EveryFlippedBitIsDamage) {
  const std::string bytes = EncodeEntry(SmallKernel());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] ^= static_cast<char>(1 << bit % 8);
    ExpectDamaged(changed, "bit " + std::to_string(bit));
  }
}

TEST(CacheEntryTest, TrailingBytesZerosAndOtherKeysAreDamage) {
  const std::string bytes = EncodeEntry(SmallKernel());
  ExpectDamaged(bytes + '\0', "one byte more");
  ExpectDamaged(std::string(bytes.size(), '\0'), "all zero");
  CompiledKernel other = SmallKernel();
  other.key = std::string(64, 'b');
  ExpectDamaged(EncodeEntry(other), "other key");
}

TEST(CacheEntryTest, HugeSizesDoNotOverflow) {
  std::string bytes = EncodeEntry(SmallKernel());
  for (size_t i = 12; i < 24; ++i) bytes[i] = '\xff';
  ExpectDamaged(bytes, "sizes of all ones");
}

}  // namespace
}  // namespace gemmd::jit

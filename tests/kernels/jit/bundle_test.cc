#include "kernels/jit/bundle.h"

#include <gtest/gtest.h>

#include "kernels/base/status.h"
#include "kernels/jit/cache_entry.h"
#include "tests/kernels/encode_bundle.h"
#include "tests/kernels/jit/cubin_header.h"

namespace gemmd::jit {
namespace {

std::string Entry(char key) {
  CompiledKernel kernel;
  kernel.key = std::string(64, key);
  for (const char byte : FakeCubin(90, "rest")) kernel.cubin.push_back(static_cast<std::byte>(byte));
  kernel.lowered_name = "name";
  kernel.architecture = "sm_90a";
  return EncodeEntry(kernel);
}

void ExpectDamagedBundle(const std::string& bundle, const std::string& what) {
  EXPECT_EQ(ReasonOf(DecodeBundle(bundle).status()), "BUNDLE_DAMAGED") << what;
}

TEST(BundleTest, RoundTripKeepsEveryEntryAndTheirOrder) {
  const std::string bundle = EncodeBundle({Entry('b'), Entry('a')});
  const auto entries = DecodeBundle(bundle);
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2);
  EXPECT_EQ((*entries)[0].first, std::string(64, 'b'));
  EXPECT_EQ((*entries)[1].second, Entry('a'));
  EXPECT_EQ((*entries)[1].second.data() + Entry('a').size() + 32, bundle.data() + bundle.size()) << "no copy";
}

TEST(BundleTest, ItsBytesAreKnownBeforeItIsWrittenAndWhileItIs) {
  const std::string entry = Entry('a');
  for (size_t entries : {0, 1, 3}) {
    const uint64_t bytes = BundleBytes(entries, entries * entry.size());
    BundleWriter writer(bytes);
    for (size_t i = 0; i < entries; ++i) writer.Add(entry);
    EXPECT_EQ(writer.entries(), entries);
    EXPECT_EQ(writer.bytes(), bytes);
    const std::string bundle = std::move(writer).Finish();
    EXPECT_EQ(bundle.size(), bytes);
    EXPECT_LE(bundle.capacity(), bytes + 64) << "it was made in place";
  }
}

TEST(BundleTest, EmptyBundleIsWhole) { EXPECT_TRUE(DecodeBundle(EncodeBundle({}))->empty()); }

TEST(BundleTest, EveryTruncationAndEveryFlippedBitIsDamage) {
  const std::string bundle = EncodeBundle({Entry('a')});
  for (size_t size = 0; size < bundle.size(); ++size) {
    ExpectDamagedBundle(bundle.substr(0, size), "size " + std::to_string(size));
  }
  for (size_t bit = 0; bit < 8 * bundle.size(); ++bit) {
    std::string changed = bundle;
    changed[bit / 8] ^= static_cast<char>(1 << bit % 8);
    ExpectDamagedBundle(changed, "bit " + std::to_string(bit));
  }
  ExpectDamagedBundle(bundle + '\0', "one byte more");
}

TEST(BundleTest, AnyFirstBytesOfABundleMayBecomeOneOthersAreRefusedAtOnce) {
  constexpr size_t kTold = 12;  // magic and schema
  const std::string bundle = EncodeBundle({Entry('a')});
  for (size_t size = 0; size <= bundle.size(); ++size) {
    EXPECT_TRUE(CheckBundleStart(bundle.substr(0, size)).ok()) << size;
  }
  for (size_t at = 0; at < kTold; ++at) {
    std::string changed = bundle.substr(0, kTold);
    changed[at] ^= 1;
    EXPECT_EQ(ReasonOf(CheckBundleStart(changed)), "BUNDLE_DAMAGED") << at;
    if (at >= 8) continue;  // the schema is one number
    EXPECT_EQ(ReasonOf(CheckBundleStart(changed.substr(0, at + 1))), "BUNDLE_DAMAGED") << at;
  }
}

TEST(BundleTest, WholeBundleWithADamagedEntryIsRefused) {
  std::string entry = Entry('a');
  entry.back() ^= 1;
  ExpectDamagedBundle(EncodeBundle({Entry('b'), entry}), "entry");
  ExpectDamagedBundle(EncodeBundle({"no entry at all"}), "text");
}

}  // namespace
}  // namespace gemmd::jit

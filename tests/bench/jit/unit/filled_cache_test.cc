#include "tests/bench/jit/parts/filled_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "kernels/jit/kernel_cache.h"
#include "tests/bench/jit/parts/setup.h"
#include "tests/bench/jit/parts/subjects.h"

namespace gemmd::jit_bench {
namespace {

TEST(SubjectsTest, EveryOneHasAKernelOnHopperAndTheyDiffer) {
  std::set<std::string> programs;
  for (const Subject& subject : Subjects()) {
    const auto source = SourceOf(subject, "sm_90a");
    ASSERT_TRUE(source.ok()) << NameOf(subject) << ": " << source.status();
    programs.insert(source->name_expression + source->program);
  }
  EXPECT_EQ(programs.size(), Subjects().size());
}

TEST(SubjectsTest, OtherArchitecturesHaveTheGenericOne) {
  EXPECT_TRUE(SourceOf({"w4a16_int4_g128", KernelKind::kGeneric}, "sm_80").ok());
  const auto packed = SourceOf({"w4a16_int4_g128", KernelKind::kSmallestM}, "sm_80");
  EXPECT_TRUE(absl::IsNotFound(packed.status())) << packed.status();
}

TEST(SubjectsTest, ALayerHasGenericAndSpecialisedKernels) {
  for (const std::string& format : LayerFormats()) {
    const auto work = WorkOf(format, "sm_90a");
    ASSERT_TRUE(work.ok()) << format << ": " << work.status();
    EXPECT_EQ(work->generic.size(), 3) << format;  // dense, indexed, and the one that packs
    EXPECT_GE(work->specialised.size(), 2) << format;
  }
}

TEST(FilledCacheTest, EveryEntryIsFoundByACacheThatOpensTheDirectory) {
  if (!jit::LoadNvrtc().ok()) GTEST_SKIP() << jit::LoadNvrtc().status();
  const ScratchDirectory scratch(std::filesystem::temp_directory_path());
  const auto sources = FillCache(scratch.path() / "cache", "sm_80", 5);
  ASSERT_TRUE(sources.ok()) << sources.status();
  ASSERT_EQ(sources->size(), 5);
  const auto cache = jit::KernelCache::Open(scratch.path() / "cache");
  ASSERT_TRUE(cache.ok()) << cache.status();
  for (const jit::KernelSource& source : *sources) EXPECT_NE((*cache)->Find(source), nullptr);
  EXPECT_EQ((*cache)->disk()->List().size(), 5);
  EXPECT_EQ((*cache)->stats().disk_hits, 5);
  EXPECT_EQ((*cache)->stats().compilations, 0);
}

}  // namespace
}  // namespace gemmd::jit_bench

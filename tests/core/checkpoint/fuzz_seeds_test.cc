// The fuzzer's own seeds are checkpoints that read: otherwise it would not get past their first line.
#include <gtest/gtest.h>

#include "core/checkpoint/checkpoint.h"

namespace gemmd {
namespace {

TEST(FuzzSeedsTest, Read) {
  int checkpoints = 0;
  for (const auto& entry : std::filesystem::directory_iterator(GEMMD_TEST_DATA "/fuzz")) {
    SCOPED_TRACE(entry.path().string());
    const auto modules = ListModules(entry.path());
    ASSERT_TRUE(modules.ok()) << modules.status();
    ASSERT_EQ(modules->size(), 1u);
    const auto layer = ReadLayer(entry.path(), modules->front());
    EXPECT_TRUE(layer.ok()) << layer.status();
    ++checkpoints;
  }
  EXPECT_EQ(checkpoints, 11);
}

}  // namespace
}  // namespace gemmd

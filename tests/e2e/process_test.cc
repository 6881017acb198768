// The processes of these tests themselves.
#include "tests/e2e/process.h"

#include "gtest/gtest.h"

namespace gemmd::e2e {
namespace {

TEST(ProcessTest, WaitTakesWhatAPipeCannotHold) {
  Process process({"/bin/sh", "-c", "head -c 300000 /dev/zero; exit 3"}, {}, "");
  EXPECT_EQ(process.Wait(absl::Seconds(30)), 3);
  EXPECT_EQ(process.Rest().size(), 300000u);
}

}  // namespace
}  // namespace gemmd::e2e

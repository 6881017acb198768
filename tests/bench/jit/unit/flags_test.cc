#include "tests/bench/jit/parts/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmd::jit_bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FlagsTest : public ::testing::Test {
 protected:
  absl::Status Parse(const std::vector<std::string>& arguments) {
    return ParseFlags(arguments, flags_);
  }
  std::string ErrorOf(const std::vector<std::string>& arguments) {
    const absl::Status status = Parse(arguments);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  int count_ = 7;
  std::string text_;
  std::vector<std::string> list_;
  absl::Duration limit_;
  bool on_ = false;
  const std::vector<Flag> flags_ = {{"count", "N", "how many", Integer(1, count_)},
                                    {"text", "TEXT", "words", Text(text_)},
                                    {"list", "LIST", "several", List(list_)},
                                    {"limit", "SECONDS", "when", Seconds(limit_)},
                                    {"on", "", "a switch", Switch(on_)}};
};

TEST_F(FlagsTest, TakesValuesAfterAnEqualSignOrABlank) {
  ASSERT_TRUE(Parse({"--count=3", "--text", "a=b", "--list=x,y", "--limit=1.5", "--on"}).ok());
  EXPECT_EQ(count_, 3);
  EXPECT_EQ(text_, "a=b");
  EXPECT_THAT(list_, ElementsAre("x", "y"));
  EXPECT_EQ(limit_, absl::Milliseconds(1500));
  EXPECT_TRUE(on_);
}

TEST_F(FlagsTest, KeepsDefaults) {
  ASSERT_TRUE(Parse({}).ok());
  EXPECT_EQ(count_, 7);
  EXPECT_FALSE(on_);
}

TEST_F(FlagsTest, NamesFlagAndValueThatDoNotFit) {
  EXPECT_EQ(ErrorOf({"--count=0"}), "--count: '0' is no integer of at least 1");
  EXPECT_EQ(ErrorOf({"--count=9999999999"}), "--count: '9999999999' is no integer of at least 1");
  EXPECT_EQ(ErrorOf({"--count"}), "--count needs a value");
  EXPECT_EQ(ErrorOf({"--on=1"}), "--on takes no value");
  EXPECT_EQ(ErrorOf({"--limit=-1"}), "--limit: '-1' is no positive number of seconds");
  EXPECT_EQ(ErrorOf({"--list=,"}), "--list: ',' is an empty list");
  EXPECT_EQ(ErrorOf({"--other"}), "unknown argument --other");
  EXPECT_EQ(ErrorOf({"word"}), "unknown argument word");
}

TEST_F(FlagsTest, WordsThatAreNoFlagsAreKeptWhereAsked) {
  std::vector<std::string> rest;
  ASSERT_TRUE(ParseFlags({"one", "--on", "two"}, flags_, &rest).ok());
  EXPECT_THAT(rest, ElementsAre("one", "two"));
}

TEST_F(FlagsTest, TheManualNamesEveryFlagOnce) {
  const std::string text = DescribeFlags(flags_);
  EXPECT_THAT(text, HasSubstr("  --count=N             how many\n"));
  EXPECT_THAT(text, HasSubstr("  --on                  a switch\n"));
}

}  // namespace
}  // namespace gemmd::jit_bench

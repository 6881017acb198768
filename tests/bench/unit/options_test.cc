#include "tests/bench/host/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmd::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OptionsTest, ReadsBothSpellingsOfAValue) {
  const auto options = ParseOptions({"--m=1,16", "--time_limit", "2.5", "--no_cublas"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_THAT(options->filter.m, ElementsAre(1, 16));
  EXPECT_EQ(options->time_limit, absl::Seconds(2.5));
  EXPECT_FALSE(options->cublas);
  EXPECT_TRUE(options->graph);
  EXPECT_FALSE(options->quantize_x);
  EXPECT_TRUE(ParseOptions({"--quantize_x"})->quantize_x);
}

TEST(OptionsTest, DefaultsFollowTheProtocol) {
  const auto options = ParseOptions({});
  ASSERT_TRUE(options.ok());
  EXPECT_GE(options->samples, 21);
  EXPECT_EQ(options->warmups, 2);
  EXPECT_EQ(options->flush_bytes, int64_t{512} << 20);
}

TEST(OptionsTest, RefusesWhatItDoesNotKnowAndSaysWhy) {
  for (const std::string argument : {"--nonsense=1", "stray", "--m=0", "--m=1,x", "--samples=-1",
                                     "--format=w9", "--time_limit=0", "--time_limit=nan",
                                     "--no_cublas=1", "--output", "--samples=99999999999"}) {
    const auto options = ParseOptions({argument});
    EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument) << argument;
    EXPECT_THAT(std::string(options.status().message()),
                HasSubstr(argument.substr(0, argument.find('='))))
        << argument;
  }
}

TEST(OptionsTest, HelpNamesEveryFlagAndExitStatus) {
  const std::string help = HelpText();
  for (const char* word :
       {"--suite", "--format", "--m", "--output", "--time_limit", "--quantize_x", "69", "NAME"}) {
    EXPECT_THAT(help, HasSubstr(word));
  }
}

}  // namespace
}  // namespace gemmd::bench

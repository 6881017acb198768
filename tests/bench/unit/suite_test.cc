#include "tests/bench/host/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/bench/host/bench_format.h"

namespace gemmd::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTwoProblems[] = R"({"dense": [
  {"format": "w4a16_int4_g128", "N": 64, "K": 128, "M": [1, 16]},
  {"format": "w8a8_fp8_block128", "N": 96, "K": 128, "M": [1]}]})";

TEST(SuiteTest, ReadsTheDenseProblems) {
  const auto problems = ParseSuite(kTwoProblems);
  ASSERT_TRUE(problems.ok()) << problems.status();
  ASSERT_EQ(problems->size(), 2u);
  EXPECT_EQ((*problems)[0].format, "w4a16_int4_g128");
  EXPECT_EQ((*problems)[1].n, 96);
  EXPECT_THAT((*problems)[0].m, ElementsAre(1, 16));
}

TEST(SuiteTest, EveryFormatOfTheShippedSuiteIsKnown) {
  std::ifstream file(std::string(GEMMD_TEST_DATA) + "/../bench/suite.json");
  std::stringstream text;
  text << file.rdbuf();
  const auto problems = ParseSuite(text.str());
  ASSERT_TRUE(problems.ok()) << problems.status();
  EXPECT_GE(problems->size(), 30u);
  for (const Problem& problem : *problems) {
    EXPECT_TRUE(FindFormat(problem.format).ok()) << problem.format;
  }
}

TEST(SuiteTest, FiltersNarrowAndReplaceTokenCounts) {
  const auto problems = ParseSuite(kTwoProblems);
  ASSERT_TRUE(problems.ok());
  const auto kept = Narrow(*problems, {.n = {64}, .m = {7, 9}});
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].n, 64);
  EXPECT_THAT(kept[0].m, ElementsAre(7, 9));
  EXPECT_TRUE(Narrow(*problems, {.formats = {"w4a8_mxfp4"}}).empty());
}

TEST(SuiteTest, RefusesWhatIsNoSuite) {
  for (const char* text :
       {"", "[]", "{\"dense\": 3}", "{\"dense\": [{\"format\": \"x\"}]}",
        "{\"dense\": [{\"format\": \"x\", \"N\": 0, \"K\": 1, \"M\": [1]}]}",
        "{\"dense\": [{\"format\": \"x\", \"N\": 1, \"K\": 1, \"M\": [\"1\"]}]}"}) {
    EXPECT_EQ(ParseSuite(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(BenchFormatTest, AnUnknownNameListsTheKnownOnes) {
  const auto format = FindFormat("w5a3");
  EXPECT_EQ(format.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(format.status().message()), HasSubstr("w4a8_mxfp4"));
}

TEST(BenchFormatTest, CountsActivationScales) {
  EXPECT_EQ(FindFormat("w8a8_fp8_block128")->XScaleColumns(300), 3);
  EXPECT_EQ(FindFormat("w4a8_mxfp4")->XScaleColumns(300), 1);
  EXPECT_EQ(FindFormat("w4a16_mxfp4")->XScaleColumns(300), 0);
}

}  // namespace
}  // namespace gemmd::bench

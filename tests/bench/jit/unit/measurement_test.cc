#include "tests/bench/jit/parts/measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/bench/jit/parts/setup.h"

namespace gemmd::jit_bench {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Measurement Row(double median, double bar, int bar_cores = 0) {
  return {.part = "b",
          .what = "layer",
          .subject = "w4a16_int4_g128",
          .unit = "ms",
          .value = bench::Summarize({median}),
          .bar = bar,
          .bar_cores = bar_cores};
}

TEST(JudgeTest, TheMedianIsBelowTheBar) {
  EXPECT_EQ(Judge(Row(999, 1000), 2), Verdict::kMet);
  EXPECT_EQ(Judge(Row(1000, 1000), 2), Verdict::kMissed);
}

TEST(JudgeTest, WithoutBarOrValueThereIsNoVerdict) {
  EXPECT_EQ(Judge(Row(1, 0), 2), Verdict::kNone);
  Measurement row = Row(1, 10);
  row.value = {};
  EXPECT_EQ(Judge(row, 2), Verdict::kNone);
}

TEST(JudgeTest, AMachineWithFewerCoresCanMeetTheBarAndNotMissIt) {
  EXPECT_EQ(Judge(Row(1999, 2000, 16), 2), Verdict::kMet);
  EXPECT_EQ(Judge(Row(2001, 2000, 16), 2), Verdict::kNone);
  EXPECT_EQ(Judge(Row(2001, 2000, 16), 16), Verdict::kMissed);
}

TEST(ReportTest, ARowWithoutValueSaysWhy) {
  Log log(4, [](const std::vector<Measurement>&) {});
  log.Add(Row(1, 10));
  Measurement without = Row(1, 10);
  without.value = {};
  log.Add(without, absl::UnavailableError("no GPU: no libcuda"));
  Conditions conditions;
  conditions.cores = 4;
  const Json report = Json::parse(RenderReport(conditions, log.rows()));
  ASSERT_EQ(report["rows"].size(), 2);
  EXPECT_EQ(report["conditions"]["cores"], 4);
  EXPECT_TRUE(report["conditions"]["device"].is_null());
  EXPECT_EQ(report["rows"][0]["value"]["median"], 1.0);
  EXPECT_EQ(report["rows"][0]["within_bar"], true);
  EXPECT_TRUE(report["rows"][0]["reason"].is_null());
  EXPECT_TRUE(report["rows"][1]["value"].is_null());
  EXPECT_TRUE(report["rows"][1]["within_bar"].is_null());
  EXPECT_EQ(report["rows"][1]["reason"], "no GPU: no libcuda");
}

TEST(DescribeTest, TellsTheVerdict) {
  EXPECT_THAT(Describe(Row(1, 10), 4), HasSubstr("  below 10"));
  EXPECT_THAT(Describe(Row(11, 10), 4), HasSubstr("  NOT below 10"));
}

TEST(SampleTest, TheFirstFailureEndsIt) {
  int calls = 0;
  const auto value = Sample(5, [&]() -> absl::StatusOr<double> {
    if (++calls == 2) return absl::InternalError("broken");
    return 1.0;
  });
  EXPECT_EQ(std::string(value.status().message()), "broken");
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace gemmd::jit_bench

#include "server/logging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "kernels/cuda/handles.h"
#include "server/log_level_control.h"
#include "tests/support/fake_driver.h"

namespace gemmd {
namespace {

const absl::Time kTime = absl::FromUnixNanos(1'700'000'000'000'000'001);

TEST(LoggingTest, JsonLinesParseWhateverTheTextHolds) {
  const std::string nasty =
      "quote \" backslash \\ newline \n tab \t bell \a utf8 \xc3\xa9 broken \xff end";
  const std::string line = FormatLine(LogFormat::kJson, kTime, LogLevel::kWarn, nasty,
                                      {{"key", nasty}, {"n", -5}, {"u", ~0ull}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["ts"], "2023-11-14T22:13:20.000000001Z");
  EXPECT_EQ(json["level"], "warn");
  EXPECT_EQ(json["n"], -5);
  EXPECT_EQ(json["u"], ~0ull);
  EXPECT_THAT(json["key"].get<std::string>(),
              ::testing::HasSubstr("quote \" backslash \\ newline \n tab"));
}

TEST(LoggingTest, TextLinesStayOneLine) {
  const std::string line =
      FormatLine(LogFormat::kText, kTime, LogLevel::kInfo, "two\nlines",
                 {{"plain", "a"}, {"spaced", "b c"}, {"empty", ""}, {"x", 1.5}});
  EXPECT_EQ(
      line,
      "2023-11-14T22:13:20.000000001Z info two lines plain=a spaced=\"b c\" empty=\"\" x=1.5");
}

TEST(LoggingTest, NoNameDrawsOnTheTerminal) {
  const std::string name = "\x1b[31m\x7f\u202e\u0085caf\u00e9";
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    const std::string line = FormatLine(format, kTime, LogLevel::kInfo, "layer registered", {{"name", name}});
    EXPECT_TRUE(std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; })) << line;
    EXPECT_THAT(line, ::testing::HasSubstr("\\u001b[31m\\u007f\\u202e\\u0085caf\\u00e9"));
  }
}

TEST(LoggingTest, ACallSiteIsHeldBackAndTheNextLineCounts) {
  LogLimit limit(2);
  uint64_t held_back = 0;
  int passed = 0;
  for (int i = 0; i < 1000; ++i) passed += limit.Pass(held_back);
  EXPECT_GE(passed, 2);
  EXPECT_LE(passed, 4);  // the loop may see a second begin
  absl::SleepFor(absl::Milliseconds(1100));
  EXPECT_TRUE(limit.Pass(held_back));
  EXPECT_GE(held_back, 996u - passed);
}

TEST(LoggingTest, TakesWhatADriverSaysWhenItRefusesARelease) {
  const cuda::FakeDriver driver;
  const auto refuse = [&driver] {
    cuda::ReportTeardown(driver.table(), CUDA_ERROR_INVALID_HANDLE, "cuMemUnmap");
  };
  ::testing::internal::CaptureStderr();
  StartLogging(LogFormat::kJson, LogLevel::kInfo);
  refuse();
  StopLogging();
  const auto json = nlohmann::json::parse(::testing::internal::GetCapturedStderr());
  EXPECT_EQ(json["level"], "error");
  EXPECT_EQ(json["msg"], "a driver object was not released");
  EXPECT_THAT(json["error"].get<std::string>(), ::testing::HasSubstr("cuMemUnmap: "));
  ::testing::internal::CaptureStderr();
  refuse();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::StartsWith("gemmd: cuMemUnmap: "))
      << "without a log it still reaches someone";
}

TEST(LogLevelControlTest, RevertsWhenItsTimeComes) {
  LogLevelControl control(LogLevel::kInfo);
  const absl::Time now = absl::Now();
  control.Set(LogLevel::kDebug, now + absl::Seconds(10));
  control.Tick(now + absl::Seconds(9));
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kDebug);
  control.Tick(now + absl::Seconds(10));
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kInfo);
  control.Set(LogLevel::kWarn, absl::InfiniteFuture());
  control.Set(LogLevel::kTrace, now);
  control.Tick(now);
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kWarn);
}

}  // namespace
}  // namespace gemmd

// gemmctl refuses what it would have to ignore or to misread, before it looks for a daemon.
#include <string>
#include <vector>

#include "client/gemmctl/execution_report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/gemmctl/tool.h"

namespace gemmd::gemmctl {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

ToolRun Without(Words words) {
  words.insert(words.begin(), {"--socket", "/tmp/no-gemmd-here.sock"});
  return Tool(words);
}

ToolRun Register(const Words& more) {
  Words words = {"register", "p"};
  words.insert(words.end(), more.begin(), more.end());
  return Without(words);
}

TEST(RegisterUsageTest, OptionsOfAllAreRefusedWithoutIt) {
  for (const Words& bad : std::vector<Words>{{"m", "--tp", "0/4"},
                                             {"m", "--fuse"},
                                             {"m", "--modules", "*"},
                                             {"m", "--exclude", "*"},
                                             {"m", "--keep-going"}}) {
    const ToolRun run = Register(bad);
    EXPECT_EQ(run.code, kUsage) << bad[1] << run.err;
    EXPECT_THAT(run.err, HasSubstr(bad[1] + " needs --all"));
  }
  EXPECT_THAT(Register({"m", "--tp", "0/4"}).err, HasSubstr("is cut with --rows, --columns, --experts"));
  EXPECT_EQ(Register({"--all", "--tp", "0/4", "--fuse", "--keep-going"}).code, kNotRunning);
}

TEST(RegisterUsageTest, AnEmptyPatternChoosesNothing) {
  for (const char* option : {"--modules", "--exclude"}) {
    for (const char* patterns : {"", ",", ",,", "a,", ",a", "a,,b"}) {
      const ToolRun run = Register({"--all", option, patterns});
      EXPECT_EQ(run.code, kUsage) << option << " '" << patterns << "': " << run.err;
      EXPECT_THAT(run.err, HasSubstr("empty pattern"));
    }
    EXPECT_EQ(Register({"--all", option, "a.*,b"}).code, kNotRunning);
  }
}

TEST(RegisterUsageTest, AnEmptyRangeIsNotTheWholeAxis) {
  for (const std::string option : {"--rows", "--columns", "--experts"}) {
    for (const char* range : {"0:0", ":0", "5:5", "7:5", "7:0"}) {
      const ToolRun run = Register({"m", option, range});
      EXPECT_EQ(run.code, kUsage) << option << " " << range << ": " << run.err;
      EXPECT_THAT(run.err, HasSubstr(option + " '" + range + "' is an empty range"));
    }
    for (const char* range : {"0:1", ":5", "5:", ":", "0/4"}) {
      EXPECT_EQ(Register({"m", option, range}).code, kNotRunning) << option << " " << range;
    }
  }
  EXPECT_EQ(Register({"--all", "--experts", "0:0"}).code, kUsage);
  EXPECT_EQ(Register({"m", "--rows", "0/2", "--row-parts", ""}).code, kUsage);
}

TEST(CacheUsageTest, EveryActionTakesItsOwnOptionsOnly) {
  for (const Words& bad : std::vector<Words>{{"purge", "--all", "--arch", "sm_90a"},
                                             {"purge", "--all", "--key", "ab"},
                                             {"purge", "--all", "--other-compilers"},
                                             {"purge"},
                                             {"purge", "--arch", ""},
                                             {"purge", "--other-compilers", "--arch", ""},
                                             {"purge", "--other-compilers", "--key", ""},
                                             {"list", "--all"},
                                             {"--all"},
                                             {"show", "ab", "--arch", "sm_90a"},
                                             {"verify", "--key", "ab"},
                                             {"export", "/no/such", "--all"},
                                             {"import", "/no/such", "--force"}}) {
    Words words = bad;
    words.insert(words.begin(), "cache");
    EXPECT_EQ(Without(words).code, kUsage) << testing::PrintToString(words);
  }
  EXPECT_EQ(Without({"cache", "purge", "--all"}).code, kNotRunning);
  EXPECT_EQ(Without({"cache", "purge", "--arch", "sm_90a", "--other-compilers"}).code, kNotRunning);
  EXPECT_EQ(Without({"cache", "list", "--arch", "sm_90a", "--limit", "5"}).code, kNotRunning);
}

TEST(NumericsTest, AnIdThatThereIsNotIsNotShown) {
  v1::ExecutionReport report;
  report.set_kernel("cpu");
  EXPECT_FALSE(ReportJson(report).contains("numerics"));
  EXPECT_FALSE(ReportJson(report).contains("armed_numerics"));
  EXPECT_EQ(ReportJson(report)["kernel"], "cpu");
  EXPECT_EQ(NumericsText(report), "");
  report.set_numerics(0xabc);
  EXPECT_EQ(ReportJson(report)["numerics"], "0000000000000abc");
  EXPECT_EQ(NumericsText(report), "0000000000000abc");
  report.set_armed_numerics(0xdef);
  EXPECT_EQ(ReportJson(report)["armed_numerics"], "0000000000000def");
  EXPECT_EQ(NumericsText(report), "0000000000000abc; ready beside them: 0000000000000def");
  EXPECT_EQ(*ParseNumerics("0000000000000abc"), 0xabcu);
}

TEST(NumericsTest, TheIdOfNoKernelIsExplained) {
  const ToolRun run = Without({"run", "p", "m", "--random", "1", "--numerics", "0000000000000000"});
  EXPECT_EQ(run.code, kUsage);
  EXPECT_THAT(run.err, HasSubstr("the device or the layer has no kernels"));
  EXPECT_THAT(Without({"run", "p", "m", "--random", "1", "--numerics", "xyz"}).err,
              HasSubstr("no id of 16 hexadecimal digits"));
}

TEST(ManualTest, SaysWhatTimeoutDoesNotLimitAndWhatCtrlCGives) {
  const std::string manual = Tool({"prewarm", "--help"}).out;
  EXPECT_THAT(manual, HasSubstr("(prewarm)"));
  EXPECT_THAT(manual, HasSubstr("  130 ended by Ctrl-C"));
  EXPECT_THAT(Tool({"inspect", "--help"}).out, HasSubstr("  130 ended by Ctrl-C"));
}

}  // namespace
}  // namespace gemmd::gemmctl

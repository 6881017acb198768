// gemmctl refuses what it would have to ignore or to misread, before it looks for a daemon.
#include <string>
#include <vector>

#include "client/gemmctl/execution_report.h"
#include "client/gemmctl/request_fields.h"
#include "client/gemmctl/token_counts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"
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

TEST(RegisterUsageTest, ARankLiesBelowTheirNumber) {
  for (const char* part : {"4/4", "5/4", "0/0", "1/0"}) {
    for (const std::string option : {"--rows", "--columns", "--experts"}) {
      const ToolRun run = Register({"m", option, part});
      EXPECT_EQ(run.code, kUsage) << option << " " << part << ": " << run.err;
      EXPECT_THAT(run.err, HasSubstr(option + " '" + part + "': there is no rank"));
    }
    EXPECT_EQ(Register({"--all", "--tp", part}).code, kUsage) << part;
    EXPECT_EQ(Register({"--all", "--experts", part}).code, kUsage) << part;
  }
  EXPECT_EQ(Register({"m", "--rows", "3/4"}).code, kNotRunning);
}

TEST(RegisterUsageTest, APartIsNotNegativeAndNotEmpty) {
  for (const char* range : {"-4:8", "-8:-4", "-1:"})
    EXPECT_EQ(Register({"m", "--rows", range}).code, kUsage) << range;
  for (const char* parts : {"0", "-4", "4x0", "4,0"}) {
    EXPECT_EQ(Register({"m", "--rows", "0/2", "--row-parts", parts}).code, kUsage) << parts;
  }
  const ToolRun alone = Register({"m", "--row-parts", "4,4"});
  EXPECT_EQ(alone.code, kUsage);
  EXPECT_THAT(alone.err, HasSubstr("--row-parts needs --rows RANK/SIZE"));
  EXPECT_EQ(Register({"m", "--rows", "0/2", "--row-parts", "4,4x2"}).code, kNotRunning);
}

TEST(LayerUsageTest, TheModuleIsAskedForBeforeTheDaemon) {
  for (const Words& words : std::vector<Words>{{"register"},
                                               {"register", "p"},
                                               {"explain", "p"},
                                               {"bench", "p"},
                                               {"run", "p", "--random", "1"}}) {
    const ToolRun run = Without(words);
    EXPECT_EQ(run.code, kUsage) << words[0];
    EXPECT_THAT(run.err, HasSubstr("the module are needed"));
  }
}

TEST(RunUsageTest, FilesAreReadBeforeADaemonIsLookedFor) {
  for (const char* option : {"--x", "--expected"}) {
    Words words = {"run", "p", "m", option, "/no/such.npy"};
    if (option == std::string("--expected")) words.insert(words.end(), {"--random", "1"});
    const ToolRun run = Without(words);
    EXPECT_EQ(run.code, kFailed) << run.err;
    EXPECT_THAT(run.err, HasSubstr("/no/such.npy"));
  }
}

TEST(TokenCountsTest, OneParserForEveryCommand) {
  const std::vector<Words> commands = {{"prewarm", "p"}, {"tune", "p"}, {"explain", "p", "m"}, {"bench", "p", "m"}};
  for (const Words& command : commands) {
    const auto with = [&command](const std::string& m) {
      Words words = command;
      words.insert(words.end(), {"--m", m});
      return Without(words);
    };
    for (const char* good : {"1", "1-4", "4,1-2", "8,8,8"}) {
      EXPECT_EQ(with(good).code, kNotRunning) << command[0] << " " << good << with(good).err;
    }
    for (const char* bad : {"", "x", "4-1", "1-", "-1", "1,,2", "1-2-3", "1.5", "99999999999999"}) {
      const ToolRun run = with(bad);
      EXPECT_EQ(run.code, kUsage) << command[0] << " " << bad;
      EXPECT_THAT(run.err, HasSubstr("--m has '")) << command[0] << " " << bad;
    }
  }
  EXPECT_THAT(Without({"tune", "p", "--m", "1-65"}).err, HasSubstr("--m '1-65' has more than 64 numbers"));
  EXPECT_EQ(Without({"prewarm", "p", "--m", "1-100000000"}).code, kNotRunning) << "ranges stay ranges";
  EXPECT_EQ(Without({"explain", "p", "m", "--m", "0"}).code, kNotRunning);
  EXPECT_EQ(Without({"tune", "p", "--m", "0"}).code, kUsage);
}

TEST(BenchUsageTest, IsCheckedBeforeAnythingIsLoaded) {
  for (const Words& bad : std::vector<Words>{{"--depth", "0"},
                                             {"--depth", "1,x"},
                                             {"--dtype", "f8"},
                                             {"--seconds", "nan"},
                                             {"--memory", "x"}}) {
    Words words = {"bench", "p", "m"};
    words.insert(words.end(), bad.begin(), bad.end());
    EXPECT_EQ(Without(words).code, kUsage) << bad[0] << " " << bad[1];
  }
}

TEST(TokenCountsTest, EachNumberOnceAscending) {
  const auto parsed = Arguments::Parse({{"m", 0, "LIST", "", ""}}, {"--m", "16,1-3,2,3-4,16"});
  ASSERT_TRUE(parsed.ok());
  EXPECT_THAT(*TokenCounts(*parsed, "m", {}), testing::ElementsAre(1, 2, 3, 4, 16));
  EXPECT_THAT(*TokenRanges(*parsed, "m", {}), testing::ElementsAre(TokenRange{1, 4}, TokenRange{16, 16}));
  EXPECT_THAT(*TokenCounts(*parsed, "m", {.most_counts = 5}), testing::SizeIs(5));
  EXPECT_EQ(TokenCounts(*parsed, "m", {.most_counts = 4}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CacheUsageTest, AKeyIsNamedByItsOption) {
  const ToolRun run = Without({"cache", "purge", "--key", "XYZ"});
  EXPECT_EQ(run.code, kUsage);
  EXPECT_THAT(run.err, HasSubstr("--key 'XYZ' is no beginning of a key"));
  EXPECT_EQ(Without({"cache", "list", "--key", std::string(65, 'a')}).code, kUsage);
  EXPECT_EQ(Without({"cache", "list", "--key", std::string(64, 'a')}).code, kNotRunning);
}

TEST(CacheUsageTest, EveryActionTakesItsOwnOptionsOnly) {
  for (const Words& bad : std::vector<Words>{{"purge", "--all", "--arch", "sm_90a"},
                                             {"purge", "--all", "--key", "ab"},
                                             {"purge", "--all", "--other-compilers"},
                                             {"purge"},
                                             {"purge", "--arch", ""},
                                             {"purge", "--arch", "sm_80,"},
                                             {"export", "/no/such", "--arch", "sm_80,,sm_86"},
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
  EXPECT_EQ(Without({"cache", "purge", "--arch", "sm_80,sm_86"}).code, kNotRunning);
  EXPECT_EQ(Without({"cache", "list", "--arch", "sm_90a", "--limit", "5"}).code, kNotRunning);
}

TEST(PrewarmUsageTest, WhatWouldBeIgnoredIsWrongUsage) {
  const ToolRun force = Without({"prewarm", "--running", "--force"});
  EXPECT_EQ(force.code, kUsage);
  EXPECT_THAT(force.err, HasSubstr("--force needs --save"));
  EXPECT_EQ(Without({"prewarm", "--running", "--force", "--save", "/tmp/no-such-manifest"}).code, kNotRunning);
  for (const char* list : {"", ",", "sm_80,", ",sm_80", "sm_80,,sm_90a"}) {
    const ToolRun run = Without({"prewarm", "--running", "--arch", list});
    EXPECT_EQ(run.code, kUsage) << list;
    EXPECT_THAT(run.err, HasSubstr(std::string("--arch '") + list + "' has an empty name"));
  }
  EXPECT_EQ(Without({"prewarm", "--running", "--arch", "sm_80,sm_90a"}).code, kNotRunning);
  for (const char* command : {"prewarm", "tune"}) {
    const ToolRun run = Without({command, "--running", "--manifest", ""});
    EXPECT_EQ(run.code, kUsage) << command;
    EXPECT_THAT(run.err, HasSubstr("--manifest")) << command;
  }
}

TEST(RunUsageTest, ForceNeedsTheFileThatItReplaces) {
  const ToolRun run = Without({"run", "p", "m", "--random", "1", "--force"});
  EXPECT_EQ(run.code, kUsage);
  EXPECT_THAT(run.err, HasSubstr("--force needs --y"));
}

TEST(TuneUsageTest, EveryActionTakesItsOwnOptionsOnly) {
  for (const Words& bad : std::vector<Words>{{"--list", "--quantize", "int4"},
                                             {"--list", "--modules", "*"},
                                             {"--list", "--exclude", "*"},
                                             {"--list", "--fuse"},
                                             {"--list", "--tp", "0/4"},
                                             {"--list", "--samples", "15"},
                                             {"--export", "/no/such", "--running"},
                                             {"--import", "/no/such", "--m", "1"}}) {
    Words words = bad;
    words.insert(words.begin(), "tune");
    const ToolRun run = Without(words);
    EXPECT_EQ(run.code, kUsage) << testing::PrintToString(words);
    EXPECT_THAT(run.err, HasSubstr("tune " + bad[0] + " takes no --")) << testing::PrintToString(words);
  }
  EXPECT_THAT(Without({"tune", "--list", "--force"}).err, HasSubstr("--force needs --export"));
  EXPECT_THAT(Without({"tune", "p", "--force"}).err, HasSubstr("--force needs --export"));
  EXPECT_THAT(Without({"tune", "--list", "--export", "f"}).err, HasSubstr("commands of their own"));
  EXPECT_EQ(Without({"tune", "--list"}).code, kNotRunning);
}

TEST(ReadingUsageTest, ARuleForZeroPointsIsOneOfTwo) {
  for (const Words& command : std::vector<Words>{{"register", "p", "m"},
                                                 {"register", "p", "--all"},
                                                 {"run", "p", "m", "--random", "1"},
                                                 {"bench", "p", "m"},
                                                 {"explain", "p", "m"},
                                                 {"export", "p", "m", "/tmp/no-such-file"},
                                                 {"inspect", "p"}}) {
    for (const char* bad : {"", "masked", "Word"}) {
      Words words = command;
      words.insert(words.end(), {"--gptq-zero-points", bad});
      const ToolRun run = Without(words);
      EXPECT_EQ(run.code, kUsage) << testing::PrintToString(words);
      EXPECT_THAT(run.err, HasSubstr(std::string("--gptq-zero-points '") + bad + "' is none of word, field-masked"))
          << testing::PrintToString(words);
    }
  }
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

TEST(RequestFieldsTest, AreNamedByTheirOptions) {
  const auto said = [](const char* message, const char* reason = "OUT_OF_RANGE") {
    return MessageForOptions(Error(absl::StatusCode::kInvalidArgument, reason, message));
  };
  EXPECT_EQ(said("slice.rows.rank.rank is 5, must be below size 4"), "the rank of --rows is 5, must be below size 4");
  EXPECT_EQ(said("slice.tensor.rank.size is 0, must be 1 or more"), "the size of --tp is 0, must be 1 or more");
  EXPECT_EQ(said("the length of name is 257, must be at most 256 bytes"),
            "the length of --name is 257, must be at most 256 bytes");
  EXPECT_EQ(said("the number of modules is 65, must be at most 64"), "the number of --modules is 65, must be at most 64");
  EXPECT_EQ(said("the length of checkpoint.path is 5000, must be at most 4096 bytes"),
            "the length of the checkpoint's folder is 5000, must be at most 4096 bytes");
  EXPECT_EQ(said("shapes[3].n is 0, must be at least 1"), "--manifest: shapes[3].n is 0, must be at least 1");
  EXPECT_EQ(said("name_prefix is 7, must be 8"), "name_prefix is 7, must be 8") << "another field";
  EXPECT_EQ(said("name is taken", "LAYER_CONFLICT"), "name is taken") << "no field of a request";
}

TEST(RequestFieldsTest, WhatTheDaemonSaysOfATargetIsSaidOfQuantize) {
  const auto said = [](const char* message, const char* reason = "BAD_SPEC") {
    return MessageForOptions(Error(absl::StatusCode::kInvalidArgument, reason, message));
  };
  EXPECT_EQ(said("checkpoint.quantize: scale: no"), "--quantize: scale: no");
  EXPECT_EQ(said("quantize: no"), "--quantize: no");
  EXPECT_EQ(said("checkpoint.quantize: spec.weight is missing", "MISSING_FIELD"), "--quantize: spec.weight is missing");
  EXPECT_EQ(said("checkpoint.quantize.rule is 9, must be below 5", "OUT_OF_RANGE"),
            "the rule of --quantize is 9, must be below 5");
  EXPECT_EQ(said("quantized weights: no"), "quantized weights: no") << "no field";
}

TEST(ManualTest, SaysWhereRuleLargestMaySaturate) {
  const std::string manual = Tool({"register", "--help"}).out;
  EXPECT_THAT(manual, testing::Not(HasSubstr("largest: none")));
  EXPECT_THAT(manual, HasSubstr("rounding the scale (f16, bf16, e4m3, e5m2)"));
}

TEST(ManualTest, SaysWhatAPrewarmWaitsForAndWhyItCompilesKernelsOfExperts) {
  const std::string manual = Tool({"prewarm", "--help"}).out;
  EXPECT_THAT(manual, HasSubstr("One prewarm runs at a time"));
  EXPECT_THAT(manual, HasSubstr("Kernels named Moe* come with dense layers too"));
  EXPECT_THAT(Tool({"cache", "--help"}).out, HasSubstr("at most 1 GiB"));
}

TEST(ManualTest, SaysWhatTimeoutDoesNotLimitAndWhatCtrlCGives) {
  const std::string manual = Tool({"prewarm", "--help"}).out;
  EXPECT_THAT(manual, HasSubstr("(prewarm)"));
  EXPECT_THAT(manual, HasSubstr("  130 ended by Ctrl-C"));
  EXPECT_THAT(Tool({"inspect", "--help"}).out, HasSubstr("  130 ended by Ctrl-C"));
}

}  // namespace
}  // namespace gemmd::gemmctl

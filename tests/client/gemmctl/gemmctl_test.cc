// gemmctl without a daemon: parsing, help, exit codes, files, numbers, comparison.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "client/gemmctl/command.h"
#include "client/gemmctl/matrix_file.h"
#include "client/gemmctl/numbers.h"
#include "client/gemmctl/proto_json.h"
#include "client/gemmctl/reference.h"
#include "client/gemmctl/table.h"
#include "gemmd/v1/admin.pb.h"
#include "gemmd/v1/layer.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

using testing::HasSubstr;

struct ToolRun {
  int code = -1;
  std::string out;
  std::string err;
};

std::string Drain(std::FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

ToolRun Tool(const std::vector<std::string>& words) {
  std::FILE* out = std::tmpfile();
  std::FILE* err = std::tmpfile();
  ToolRun run;
  run.code = RunGemmctl(words, out, err);
  run.out = Drain(out);
  run.err = Drain(err);
  return run;
}

TEST(GemmctlTest, EveryCommandHasAManual) {
  const ToolRun overview = Tool({"--help"});
  EXPECT_EQ(overview.code, kDone);
  for (const Command& command : Commands()) {
    EXPECT_THAT(overview.out, HasSubstr("  " + command.name + " ")) << "in the list of commands";
    const ToolRun manual = Tool({command.name, "--help"});
    EXPECT_EQ(manual.code, kDone) << command.name;
    for (const char* section :
         {"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT CODES"}) {
      EXPECT_THAT(manual.out, HasSubstr(section)) << command.name;
    }
    EXPECT_EQ(Tool({"help", command.name}).out, manual.out);
  }
}

TEST(GemmctlTest, SaysWhatIsWrongWithItsUsage) {
  EXPECT_EQ(Tool({}).code, kUsage);
  EXPECT_THAT(Tool({"frobnicate"}).err, HasSubstr("unknown command 'frobnicate'"));
  EXPECT_EQ(Tool({"status", "--no-such"}).code, kUsage);
  EXPECT_THAT(Tool({"status", "--no-such"}).err, HasSubstr("--no-such"));
  EXPECT_EQ(Tool({"status", "extra"}).code, kUsage);
  EXPECT_THAT(Tool({"status", "-o", "xml"}).err, HasSubstr("xml"));
  EXPECT_THAT(Tool({"run", "p", "m", "--random", "1", "--dtype", "f8"}).err, HasSubstr("f8"));
  EXPECT_THAT(Tool({"bench", "--m", "1,x", "p", "m"}).err, HasSubstr("'x'"));
}

TEST(GemmctlTest, NamesTheAddressAndExitsWith69WhenNothingListens) {
  for (const Command& command : Commands()) {
    std::vector<std::string> words = {"--socket", "/tmp/no-gemmd-here.sock", command.name};
    if (command.most_positional == 2) words.insert(words.end(), {"path", "module"});
    if (command.name == "run") words.insert(words.end(), {"--random", "1"});
    const ToolRun run = Tool(words);
    EXPECT_EQ(run.code, command.name == "doctor" ? kFailed : kNotRunning)
        << command.name << run.err;
    EXPECT_THAT(run.out + run.err, HasSubstr("/tmp/no-gemmd-here.sock")) << command.name;
  }
}

TEST(ArgumentsTest, TakesDefaultsShortFormsAndLists) {
  const std::vector<Option> options = {
      {"seconds", 's', "S", "2", ""}, {"m", 0, "LIST", "", ""}, {"quiet", 'q', "", "", ""}};
  const auto arguments = Arguments::Parse(options, {"one", "-q", "--m=1,16", "-s", "0.5", "two"});
  ASSERT_TRUE(arguments.ok());
  EXPECT_EQ(*arguments->Number("seconds", 0, 10), 0.5);
  EXPECT_EQ(*arguments->Integers("m", 0, 100), (std::vector<int64_t>{1, 16}));
  EXPECT_TRUE(arguments->Has("quiet"));
  EXPECT_EQ(arguments->positional(), (std::vector<std::string>{"one", "two"}));
  EXPECT_FALSE(arguments->Integers("m", 0, 15).ok());
  EXPECT_FALSE(Arguments::Parse(options, {"--seconds"}).ok());
}

TEST(NumbersTest, EverySixteenBitCodeSurvivesARoundTrip) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const auto bits = static_cast<uint16_t>(code);
    if (!std::isnan(FromBFloat16(bits))) {
      ASSERT_EQ(ToBFloat16(FromBFloat16(bits)), bits) << code;
    }
    if (!std::isnan(FromFloat16(bits))) {
      ASSERT_EQ(ToFloat16(FromFloat16(bits)), bits) << code;
    }
  }
  EXPECT_TRUE(std::isnan(FromFloat16(ToFloat16(NAN))));
  EXPECT_TRUE(std::isnan(FromBFloat16(ToBFloat16(NAN))));
}

TEST(NumbersTest, RoundsTiesToEvenAndOverflowsToInfinity) {
  EXPECT_EQ(FromBFloat16(ToBFloat16(1 + 0x1p-8f)), 1);
  EXPECT_EQ(FromBFloat16(ToBFloat16(1 + 3 * 0x1p-8f)), 1 + 0x1p-6f);
  EXPECT_EQ(FromFloat16(ToFloat16(1 + 0x1p-11f)), 1);
  EXPECT_EQ(FromFloat16(ToFloat16(1 + 3 * 0x1p-11f)), 1 + 0x1p-9f);
  EXPECT_EQ(FromFloat16(ToFloat16(65519)), 65504);
  EXPECT_EQ(FromFloat16(ToFloat16(65520)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(FromFloat16(ToFloat16(0x1p-25f)), 0);
  EXPECT_EQ(FromFloat16(ToFloat16(3 * 0x1p-25f)), 0x1p-23f);
}

TEST(NumbersTest, RandomNumbersDependOnTheSeedOnly) {
  EXPECT_EQ(RandomNormal(1, 100), RandomNormal(1, 100));
  EXPECT_NE(RandomNormal(1, 100), RandomNormal(2, 100));
  double sum = 0, squares = 0;
  for (double value : RandomNormal(3, 100000)) {
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.02);
  EXPECT_NEAR(squares / 1e5, 1, 0.02);
}

TEST(MatrixFileTest, WritesWhatItReads) {
  const std::string path = testing::TempDir() + "gemmctl_test_" + std::to_string(getpid()) + ".npy";
  const Array array{{2, 3}, {1, -2.5, 3, 0, 1e30, 0.125}};
  ASSERT_TRUE(WriteNpy(path, array).ok());
  EXPECT_EQ(std::filesystem::file_size(path) % 64, 24u);  // 64-byte aligned data of 24 bytes
  const auto back = ReadArray(path);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->shape, array.shape);
  for (size_t i = 0; i < array.values.size(); ++i) {
    EXPECT_EQ(back->values[i], static_cast<float>(array.values[i]));
  }
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_EQ(ReasonOf(ReadArray(path).status()), "BAD_FILE");
  std::filesystem::remove(path);
  EXPECT_EQ(ReadArray(path).status().code(), absl::StatusCode::kNotFound);
}

TEST(MatrixFileTest, ReadsExpectedWeightsOfACheckpoint) {
  const std::string path = std::string(GEMMD_TEST_DATA) +
                           "/checkpoints/gptq_v1_autogptq_b4_g128_sym/expected.safetensors";
  const auto array = ReadArray(path + ":model.layers.0.mlp.down_proj.weight_f32");
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(array->shape, (std::vector<int64_t>{96, 256}));
  EXPECT_THAT(std::string(ReadArray(path + ":nothing").status().message()), HasSubstr("nothing"));
}

TEST(ReferenceTest, ComputesADenseLayerWithBias) {
  const DenseWeights layer{.n = 2, .k = 3, .weights = {1, 2, 3, -1, 0, 1}, .bias = {10, 20}};
  EXPECT_EQ(ReferenceGemm(layer, 2, std::vector<double>{1, 1, 1, 2, 0, -1}),
            (std::vector<double>{16, 20, 9, 17}));
}

TEST(ReferenceTest, ComputesAClampedExpertAndSkipsForeignOnes) {
  const DenseWeights gate_up{.experts = 2, .n = 2, .k = 1, .weights = {0, 0, 20, -20}};
  const DenseWeights down{.experts = 2, .n = 1, .k = 1, .weights = {1, 2}};
  const MoeReference moe{.gate_up = &gate_up, .down = &down, .top_k = 2};
  const std::vector<double> y =
      ReferenceMoe(moe, 2, std::vector<double>{1, 1}, std::vector<double>{1, -1, 1, 0},
                   std::vector<double>{0.5, 9, 1, 1});
  // gate 7 after the clamp, up -7: 7 * sigmoid(1.702 * 7) * -6, times 2 for the down weight.
  const double expert = 2 * 7 / (1 + std::exp(-1.702 * 7)) * -6;
  EXPECT_DOUBLE_EQ(y[0], 0.5 * expert);
  EXPECT_DOUBLE_EQ(y[1], expert);
}

TEST(CompareTest, FindsTheWorstElementAndSpecialValues) {
  const std::vector<double> want = {3, 4, 0, NAN};
  ErrorReport report = Compare(std::vector<double>{3, 4.5, 0, NAN}, want, 2);
  EXPECT_DOUBLE_EQ(report.relative_frobenius, 0.1);
  EXPECT_EQ(report.worst_row, 0);
  EXPECT_EQ(report.worst_column, 1);
  EXPECT_TRUE(report.Within(0.11));
  report = Compare(std::vector<double>{3, 4, NAN, NAN}, want, 2);
  EXPECT_EQ(report.bad_special, 1);
  EXPECT_FALSE(report.Within(1));
  EXPECT_TRUE(Compare({}, {}, 0).Within(0));
}

TEST(ProtoJsonTest, WritesCountersAsNumbersAndIdsAsText) {
  v1::GetStatusResponse status;
  status.set_boot_id(0xabc);
  status.set_requests_total(uint64_t{1} << 60);
  status.add_devices()->set_id("cpu");
  const auto json = ToJson(status);
  EXPECT_EQ(json["boot_id"], "0000000000000abc");
  EXPECT_EQ(json["requests_total"], uint64_t{1} << 60);
  EXPECT_EQ(json["sessions"], 0);
  EXPECT_EQ(json["devices"][0]["id"], "cpu");
  v1::KernelChoice choice;
  (*choice.mutable_config())["kBlockM"] = "16";
  EXPECT_EQ(ToJson(choice)["config"]["kBlockM"], "16");
}

TEST(TableTest, AlignsNumbersToTheRight) {
  Table table({"NAME", "N"});
  table.Add({"a", "1"});
  table.Add({"long", "1000"});
  EXPECT_EQ(table.Text(), "NAME     N\na        1\nlong  1000\n");
}

}  // namespace
}  // namespace gemmd::gemmctl

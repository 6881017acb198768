// gemmctl without a daemon: parsing, help, exit codes, files, numbers, comparison.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include "absl/time/clock.h"
#include "client/gemmctl/bounded_file.h"
#include "client/gemmctl/command.h"
#include "client/gemmctl/daemon_process.h"
#include "client/gemmctl/format_text.h"
#include "client/gemmctl/matrix_file.h"
#include "client/gemmctl/numbers.h"
#include "client/gemmctl/printable.h"
#include "client/gemmctl/proto_json.h"
#include "client/gemmctl/reference.h"
#include "client/gemmctl/table.h"
#include "gemmd/v1/admin.pb.h"
#include "gemmd/v1/layer.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"
#include "tests/client/gemmctl/tool.h"

namespace gemmd::gemmctl {
namespace {

using testing::HasSubstr;

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
    if (command.offline) continue;
    std::vector<std::string> words = {"--socket", "/tmp/no-gemmd-here.sock", command.name};
    if (command.most_positional == 2 && command.name != "cache") {
      words.insert(words.end(), {"path", "module"});
    }
    if (command.name == "run") words.insert(words.end(), {"--random", "1"});
    const ToolRun run = Tool(words);
    EXPECT_EQ(run.code, kNotRunning) << command.name << run.err;
    EXPECT_THAT(run.out + run.err, HasSubstr("/tmp/no-gemmd-here.sock")) << command.name;
  }
}

TEST(GemmctlTest, CommandsOnFilesNeedNoDaemonAndOfferNoSocket) {
  int offline = 0;
  for (const Command& command : Commands()) {
    if (!command.offline) continue;
    ++offline;
    const std::string manual = Tool({command.name, "--help"}).out;
    EXPECT_THAT(manual, testing::Not(HasSubstr("--socket")));
    EXPECT_THAT(manual, testing::Not(HasSubstr("daemon listens"))) << "no code of a daemon";
    std::vector<std::string> words = {"--socket", "/tmp/no-gemmd-here.sock", command.name,
                                      "/no/such"};
    words.resize(3 + command.most_positional, testing::TempDir() + "gemmctl_offline");
    const ToolRun run = Tool(words);
    EXPECT_EQ(run.code, kFailed) << command.name << run.err;
    EXPECT_THAT(run.err, HasSubstr("CHECKPOINT_NOT_FOUND")) << command.name;
    EXPECT_THAT(run.err, testing::Not(HasSubstr("no-gemmd-here"))) << command.name;
  }
  EXPECT_EQ(offline, 2);
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
  auto file = ExportFile::Create(path, false);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE(std::filesystem::exists(path)) << "it appears when it is whole";
  ASSERT_TRUE(WriteNpy(array, *file).ok());
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

// What fits into no file: the matrix is refused, and nothing of it stays.
TEST(MatrixFileTest, SaysThatTheDiskIsFull) {
  const std::string path = testing::TempDir() + "gemmctl_full_" + std::to_string(getpid()) + ".npy";
  auto file = ExportFile::Create(path, false);
  ASSERT_TRUE(file.ok()) << file.status();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = WriteNpy(Array{{64, 64}, std::vector<double>(64 * 64, 1.0)}, *file);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot be written"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

// Devices without end and pipes without a writer.
TEST(BoundedFileTest, ReadsRegularFilesOnly) {
  const std::string pipe = testing::TempDir() + "gemmctl_pipe_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo((pipe + ".npy").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", pipe + ".zero.npy");
  for (const std::string& path : {pipe + ".npy", pipe + ".zero.npy"}) {
    EXPECT_EQ(ReasonOf(ReadArray(path).status()), "BAD_FILE") << path;
    const ToolRun run = Tool({"--socket", "/tmp/no-gemmd-here.sock", "run", "p", "m", "--x", path});
    EXPECT_EQ(run.code, kFailed);
    EXPECT_THAT(run.err, HasSubstr("no regular file"));
    const ToolRun prewarm =
        Tool({"--socket", "/tmp/no-gemmd-here.sock", "prewarm", "--manifest", path});
    EXPECT_EQ(prewarm.code, kUsage);
    EXPECT_THAT(prewarm.err, HasSubstr("no regular file"));
  }
  std::filesystem::remove(pipe + ".npy");
  std::filesystem::remove(pipe + ".zero.npy");
}

TEST(BoundedFileTest, ReadsNoMoreThanItsLimit) {
  const std::string path = testing::TempDir() + "gemmctl_text_" + std::to_string(getpid());
  std::ofstream(path) << "0123456789";
  EXPECT_EQ(*ReadText(path, 10), "0123456789");
  EXPECT_THAT(std::string(ReadText(path, 9).status().message()), HasSubstr("has 10 bytes"));
  const auto file = BoundedFile::Open(path);
  EXPECT_EQ(*file->Read(3, 4), "3456");
  EXPECT_EQ(ReasonOf(file->Read(8, 3).status()), "BAD_FILE");
  EXPECT_EQ(ReasonOf(file->Read(1, ~uint64_t{0}).status()), "BAD_FILE");
  std::filesystem::resize_file(path, 5);
  EXPECT_THAT(std::string(file->Read(3, 4).status().message()), HasSubstr("became shorter"));
  std::filesystem::remove(path);
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

TEST(TableTest, NoCellDrawsOnTheTerminalOrBreaksItsLine) {
  Table table({"NAME", "N"});
  table.Add({"\x1b[31mRED\nline", "1"});
  table.Add({std::string(500, 'x'), "2"});
  table.Add({"\u540d", std::string(2000, 'y')});
  const std::string text = table.Text();
  EXPECT_THAT(text, HasSubstr("\\x1b[31mRED\\nline"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_THAT(text, HasSubstr(std::string(Table::kMostColumns - 3, 'x') + "...  2"));
  EXPECT_THAT(text, HasSubstr(std::string(Table::kMostInLastColumn - 3, 'y') + "..."));
  // Two columns narrower than its bytes.
  EXPECT_THAT(text, HasSubstr("\u540d" + std::string(Table::kMostColumns - 1 + 2, ' ') + "yy"));
}

TEST(PrintableTest, EscapesEveryControlCharacter) {
  for (int code = 0; code < 0xa0; ++code) {
    const bool control = code < 0x20 || code >= 0x7f;
    std::string text(1, static_cast<char>(code));
    if (code >= 0x80) text = {'\xc2', static_cast<char>(code)};
    EXPECT_EQ(Printable("a" + text + "b") != "a" + text + "b", control) << code;
    const bool layout = code == '\n' || code == '\t';
    EXPECT_EQ(PrintableLines(text) != text, control && !layout) << code;
  }
  EXPECT_EQ(Printable(std::string("a\0\n\t\r", 5)), "a\\x00\\n\\t\\x0d");
}

TEST(PrintableTest, EscapesDirectionMarksAndInvisibleCharacters) {
  for (const char* text : {"\u202a", "\u202e", "\u2066", "\u2069", "\u200e", "\u200f", "\u061c",
                           "\u200b", "\u2028", "\u2029", "\ufeff", "\U000e0041", "\u0085"}) {
    const std::string escaped = Printable(text);
    EXPECT_EQ(escaped[0], '\\') << escaped;
    EXPECT_TRUE(std::all_of(escaped.begin(), escaped.end(), [](char c) { return c > 0x1f; }));
  }
  EXPECT_EQ(Printable("a\u202eb"), "a\\u202eb");
}

TEST(PrintableTest, KeepsTextOfEveryLanguage) {
  for (const char* text :
       {"", "model.layers.0", "\u00e4\u00f6", "\u540d\u524d", "\U0001f600", "\u05d0"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, EscapesEveryByteThatIsNoUtf8) {
  for (const char* text : {"\xff", "\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                           "\xe2\x82", "\xf8\x88\x80\x80\x80", "\xe0\x80\x9b"}) {
    std::string expected;
    for (const char* byte = text; *byte != 0; ++byte) {
      char hex[8];
      std::snprintf(hex, sizeof(hex), "\\x%02x", static_cast<unsigned char>(*byte));
      expected += hex;
    }
    EXPECT_EQ(Printable(text), expected);
  }
}

TEST(PrintableTest, ShortensBetweenCharacters) {
  EXPECT_EQ(Shortened("\u540d\u540d\u540d\u540d", 4), "\u540d\u540d\u540d\u540d");
  EXPECT_EQ(Shortened("\u540d\u540d\u540d\u540d\u540d", 4), "\u540d...");
  EXPECT_EQ(Columns("\u540dab"), 3u);
}

TEST(ContextTest, PrintsNothingRawInEitherForm) {
  std::FILE* out = std::tmpfile();
  Context context;
  context.out = out;
  context.Print("a\x1b[2J\n");
  context.PrintJson({{"name", "\x1b\u202e\xff\u009b"}});
  const std::string text = Drain(out);
  EXPECT_THAT(text, HasSubstr("a\\x1b[2J\n"));
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << int{c};
}

TEST(GemmctlTest, ErrorsAreMadePrintable) {
  EXPECT_EQ(Tool({"\x1b[31m"}).err.find('\x1b'), std::string::npos);
  EXPECT_EQ(Tool({"status", "-o", "\x1b[31m"}).err.find('\x1b'), std::string::npos);
}

TEST(GemmctlTest, RunChecksItsArgumentsBeforeItLooksForADaemon) {
  const std::vector<std::string> words = {"--socket", "/tmp/no-gemmd-here.sock", "run", "p", "m"};
  const auto with = [&words](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return Tool(more);
  };
  for (const std::vector<std::string>& bad :
       std::vector<std::vector<std::string>>{{"--random", "-1"},
                                             {"--random", "x"},
                                             {"--random", "99999999999"},
                                             {"--random", "1", "--seed", "-1"},
                                             {"--random", "1", "--memory", "vram"},
                                             {"--random", "1", "--max-error", "-1"},
                                             {"--random", "1", "--numerics", "xyz"},
                                             {"--random", "1", "--numerics", "0"},
                                             {"--random", "1", "--dtype", "f8"}}) {
    const ToolRun run = with(bad);
    EXPECT_EQ(run.code, kUsage) << bad.back() << ": " << run.err;
    EXPECT_THAT(run.err, HasSubstr(bad.back()));
  }
  const ToolRun missing = with({"--x", "/no/such/file.npy"});
  EXPECT_EQ(missing.code, kFailed) << missing.err;
  EXPECT_EQ(with({"--random", "1"}).code, kNotRunning);
}

// Every command that writes a file, before it looks for a daemon.
TEST(GemmctlTest, NoFileIsReplacedWithoutForce) {
  const std::string path = testing::TempDir() + "gemmctl_kept_" + std::to_string(getpid());
  std::ofstream(path) << "precious";
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"run", "p", "m", "--random", "1", "--y", path},
           {"prewarm", "--running", "--save", path},
           {"cache", "export", path}}) {
    std::vector<std::string> words = {"--socket", "/tmp/no-gemmd-here.sock"};
    words.insert(words.end(), command.begin(), command.end());
    const ToolRun refused = Tool(words);
    EXPECT_EQ(refused.code, kUsage) << command[0] << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("--force"));
    words.push_back("--force");
    EXPECT_EQ(Tool(words).code, kNotRunning) << command[0];
    EXPECT_EQ(std::filesystem::file_size(path), 8u) << "kept where the command fails";
  }
  std::filesystem::remove(path);
}

// A user who may not connect, which only another user than root can see.
TEST(GemmctlTest, ASocketThatIsNotAllowedIsNoMissingDaemon) {
  char pattern[] = "/tmp/gmpXXXXXX";
  const std::string folder = mkdtemp(pattern);
  const std::string path = folder + "/gemmd.sock";
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  const bool is_root = geteuid() == 0;
  if (is_root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  for (const char* command : {"status", "devices", "doctor"}) {
    const ToolRun run = Tool({"--socket", path, command});
    EXPECT_EQ(run.code, kNotAllowed) << command << ": " << run.err;
    EXPECT_THAT(run.out + run.err, HasSubstr("may not connect")) << command;
  }
  EXPECT_EQ(Tool({"--socket", path, "register", "p", "m"}).code, kNotAllowed);
  if (is_root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  close(listener);
  std::filesystem::remove_all(folder);
}

// Each state of the address has a hint of its own, which says what to do about it.
TEST(GemmctlTest, DoctorSaysWhatToDoWhereNoDaemonAnswers) {
  char pattern[] = "/tmp/gmdXXXXXX";
  const std::string folder = mkdtemp(pattern);
  const auto doctor = [](const std::string& address) { return Tool({"--socket", address, "doctor"}); };
  EXPECT_THAT(doctor(folder + "/none").out, HasSubstr("hint: start the daemon, or name its socket"));
  const std::string plain = folder + "/plain";
  std::fclose(std::fopen(plain.c_str(), "w"));
  EXPECT_THAT(doctor(plain).out, HasSubstr("hint: name the daemon's socket with --socket"));
  const std::string left_over = folder + "/left";
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  left_over.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  close(listener);
  EXPECT_THAT(doctor(left_over).out, HasSubstr("hint: no process listens at this socket, it is left over"));
  const ToolRun port = doctor("127.0.0.1:1");
  EXPECT_EQ(port.code, kNotRunning);
  EXPECT_THAT(port.out, HasSubstr("hint: daemons listen at Unix sockets"));
  ASSERT_EQ(chmod(folder.c_str(), 0), 0);
  const bool is_root = geteuid() == 0;
  if (is_root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const ToolRun hidden = doctor(left_over);
  if (is_root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_EQ(hidden.code, kNotAllowed);
  EXPECT_THAT(hidden.out, HasSubstr("hint: this user may not look into the socket's folder"));
  ASSERT_EQ(chmod(folder.c_str(), 0700), 0);
  std::filesystem::remove_all(folder);
}

TEST(GemmctlTest, NamesTheEnvironmentWhereTheAddressComesFromIt) {
  setenv("GEMMD_SOCKET", "/tmp/no-gemmd-here.sock", 1);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"status"}, {"drain"}, {"prewarm", "--running"},
                                             {"cache", "verify"}, {"register", "p", "m"}}) {
    EXPECT_THAT(Tool(words).err, HasSubstr("/tmp/no-gemmd-here.sock ($GEMMD_SOCKET)")) << words[0];
  }
  unsetenv("GEMMD_SOCKET");
}

TEST(ArgumentsTest, KnowsWhatWasGivenFromADefault) {
  const std::vector<Option> options = {{"seconds", 's', "S", "2", ""}};
  EXPECT_FALSE(Arguments::Parse(options, {})->Given("seconds"));
  EXPECT_TRUE(Arguments::Parse(options, {"-s", "2"})->Given("seconds"));
}

// A daemon that stopped serving and still ends: its place is not free yet.
TEST(DaemonProcessTest, EndsWithTheProcessNotWithItsSocket) {
  char pattern[] = "/tmp/gmdXXXXXX";
  const std::string folder = mkdtemp(pattern);
  const std::string path = folder + "/gemmd.sock";
  EXPECT_FALSE(DaemonProcess::ListeningAt(path).has_value()) << "nobody listens";
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    listen(listener, 8);
    char byte;
    (void)!read(go[0], &byte, 1);
    close(listener);
    unlink(path.c_str());
    (void)!read(go[0], &byte, 1);
    _exit(0);
  }
  std::optional<DaemonProcess> process;
  for (int i = 0; i < 1000 && !process.has_value(); ++i) {
    absl::SleepFor(absl::Milliseconds(5));
    if (auto found = DaemonProcess::ListeningAt(path)) process.emplace(*std::move(found));
  }
  ASSERT_TRUE(process.has_value());
  EXPECT_FALSE(process->Ended(absl::Now()));
  ASSERT_EQ(write(go[1], "x", 1), 1);
  while (std::filesystem::exists(path)) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_FALSE(process->Ended(absl::Now() + absl::Milliseconds(50))) << "only its socket is gone";
  ASSERT_EQ(write(go[1], "x", 1), 1);
  EXPECT_TRUE(process->Ended(absl::Now() + absl::Seconds(20)));
  waitpid(child, nullptr, 0);
  close(go[0]);
  close(go[1]);
  std::filesystem::remove_all(folder);
}

v1::NumberFormat Format(v1::NumberKind kind, uint32_t bits, uint32_t exponent, uint32_t mantissa) {
  v1::NumberFormat format;
  format.set_kind(kind);
  format.set_bits(bits);
  format.set_exponent_bits(exponent);
  format.set_mantissa_bits(mantissa);
  return format;
}

TEST(FormatTextTest, UsesTheUsualNames) {
  const auto name_of = [](uint32_t bits, uint32_t exponent, uint32_t mantissa) {
    return FormatText(Format(v1::NUMBER_KIND_FLOAT, bits, exponent, mantissa), "-");
  };
  EXPECT_EQ(name_of(32, 8, 23), "float32");
  EXPECT_EQ(name_of(16, 5, 10), "float16");
  EXPECT_EQ(name_of(16, 8, 7), "bfloat16");
  EXPECT_EQ(name_of(8, 4, 3), "e4m3");
  EXPECT_EQ(name_of(8, 5, 2), "e5m2");
  EXPECT_EQ(name_of(4, 2, 1), "e2m1");
  EXPECT_EQ(FormatText(Format(v1::NUMBER_KIND_EXPONENT, 8, 8, 0), "-"), "e8m0");
  EXPECT_EQ(FormatText(Format(v1::NUMBER_KIND_INTEGER, 4, 0, 0), "-"), "int4");
  EXPECT_EQ(FormatText({}, "none"), "none");
}

}  // namespace
}  // namespace gemmd::gemmctl

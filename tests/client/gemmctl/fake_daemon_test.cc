// gemmctl with a daemon that answers as the test wants: what is sent, and what an answer means.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"
#include "tests/client/fake_daemon.h"
#include "tests/client/gemmctl/tool.h"
#include "tests/kernels/encode_bundle.h"

namespace gemmd::gemmctl {
namespace {

using testing::HasSubstr;

class GemmctlDaemonTest : public testing::Test {
 protected:
  GemmctlDaemonTest() {
    char pattern[] = "/tmp/gmfXXXXXX";
    directory_ = mkdtemp(pattern);
    daemon_ = std::make_unique<client::FakeDaemon>(directory_);
    daemon_->Start();
  }
  ~GemmctlDaemonTest() override {
    daemon_ = nullptr;
    std::filesystem::remove_all(directory_);
  }
  ToolRun Gemmctl(std::vector<std::string> words) const {
    words.insert(words.begin(), {"--socket", daemon_->socket_path()});
    return Tool(words);
  }
  std::string Write(const std::string& text) const {
    const std::string path = directory_ + "/in";
    std::ofstream(path) << text;
    return path;
  }

  std::string directory_;
  std::unique_ptr<client::FakeDaemon> daemon_;
};

TEST_F(GemmctlDaemonTest, ImportsWhatBeginsAsABundleDoesInPieces) {
  const std::string bundle = jit::EncodeBundle({std::string(3 << 20, 'x')});
  const ToolRun run = Gemmctl({"cache", "import", Write(bundle)});
  EXPECT_EQ(run.code, kDone) << run.err;
  EXPECT_THAT(run.out, HasSubstr("1 imported"));
  EXPECT_TRUE(daemon_->imported_bundle() == bundle) << daemon_->imported_bundle().size() << " bytes";
}

TEST_F(GemmctlDaemonTest, SendsNothingOfAFileThatIsNoBundle) {
  const std::string pipe = directory_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::vector<std::string> paths = {pipe, "/dev/zero", directory_, directory_ + "/missing"};
  for (const std::string& path : paths) {
    const ToolRun run = Gemmctl({"cache", "import", path});
    EXPECT_EQ(run.code, kFailed) << path << run.err;
    EXPECT_THAT(run.err, HasSubstr("BAD_FILE")) << path;
  }
  for (const char* text : {"", "GEMMDBN", "GEMMDBNX and more", "a text of some length"}) {
    const ToolRun run = Gemmctl({"cache", "import", Write(text)});
    EXPECT_EQ(run.code, kFailed) << text << run.err;
    EXPECT_THAT(run.err, HasSubstr("is no bundle of kernels")) << text;
  }
  EXPECT_EQ(daemon_->calls("ImportCache"), 0);
}

TEST_F(GemmctlDaemonTest, SendsNothingOfABundleThatIsTooLarge) {
  const std::string bundle = jit::EncodeBundle({"entry"});
  const Command command = CacheCommand();
  const auto arguments = Arguments::Parse(command.options, {"import", Write(bundle)});
  ASSERT_TRUE(arguments.ok()) << arguments.status();
  Context context;
  context.socket = daemon_->socket_path();
  context.out = std::tmpfile();
  context.max_bundle_bytes = bundle.size() - 1;
  const absl::Status refused = command.run(context, *arguments).status();
  EXPECT_EQ(ReasonOf(refused), "OUT_OF_RANGE");
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(absl::StrCat(directory_, "/in: has ", bundle.size(), " bytes, a bundle has at most ",
                                     bundle.size() - 1)));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--arch, --key"));
  EXPECT_EQ(daemon_->calls("ImportCache"), 0);
  context.max_bundle_bytes = bundle.size();
  EXPECT_TRUE(command.run(context, *arguments).ok());
  EXPECT_EQ(daemon_->calls("ImportCache"), 1);
  EXPECT_THAT(Drain(context.out), HasSubstr("1 imported"));
}

TEST_F(GemmctlDaemonTest, NamesTheFileOfABundleThatTheDaemonRefuses) {
  const std::string path = Write(jit::EncodeBundle({"entry"}));
  client::Fault damaged{.times = 1};
  damaged.code = grpc::StatusCode::DATA_LOSS;
  damaged.reason = "BUNDLE_DAMAGED";
  daemon_->Inject("ImportCache", damaged);
  const ToolRun run = Gemmctl({"cache", "import", path});
  EXPECT_EQ(run.code, kFailed);
  EXPECT_THAT(run.err, HasSubstr(path + ": "));
  client::Fault refused{.times = 1};
  refused.code = grpc::StatusCode::PERMISSION_DENIED;
  refused.reason = "NOT_ADMIN";
  daemon_->Inject("ImportCache", refused);
  EXPECT_THAT(Gemmctl({"cache", "import", path}).err, testing::Not(HasSubstr(path))) << "not the file's fault";
}

TEST_F(GemmctlDaemonTest, AnImportSaysWhetherThereWasACompilerToCompareWith) {
  const std::string path = Write(jit::EncodeBundle({"entry"}));
  daemon_->imported_of_other_compiler = 1;
  for (const char* output : {"text", "json"}) {
    daemon_->status.set_compiler("13.0 0123456789");
    EXPECT_THAT(Gemmctl({"cache", "import", path, "-o", output}).err,
                HasSubstr("1 come from another compiler than this daemon's")) << output;
    daemon_->status.clear_compiler();
    const ToolRun none = Gemmctl({"cache", "import", path, "-o", output});
    EXPECT_EQ(none.code, kDone);
    EXPECT_THAT(none.err, HasSubstr("has no compiler (NVRTC): whether the 1 kernels are of its version "
                                    "could not be compared"));
    EXPECT_THAT(none.err, testing::Not(HasSubstr("another compiler")));
  }
  daemon_->imported_of_other_compiler = 0;
  EXPECT_EQ(Gemmctl({"cache", "import", path}).err, "");
}

TEST_F(GemmctlDaemonTest, APrewarmCountsItsOutcomesWithCommas) {
  daemon_->prewarmed = {v1::PREWARM_OUTCOME_CACHED, v1::PREWARM_OUTCOME_NO_KERNEL, v1::PREWARM_OUTCOME_CACHED};
  EXPECT_EQ(Gemmctl({"prewarm", "--running"}).out, "1 distinct layers of 1: 2 cached, 1 no kernel\n");
  daemon_->prewarmed = {};
  EXPECT_EQ(Gemmctl({"prewarm", "--running"}).out, "0 distinct layers of 0\n");
}

TEST_F(GemmctlDaemonTest, APrewarmOnAFullDiskSaysWhatBecameOfEveryKernelAndFails) {
  const std::string manifest = directory_ + "/manifest";
  const ToolRun run = Gemmctl({"prewarm", "--running", "--save", manifest});
  EXPECT_EQ(run.code, kFailed);
  EXPECT_THAT(run.out, HasSubstr("1 not stored"));
  EXPECT_THAT(run.err, HasSubstr("CACHE_WRITE"));
  EXPECT_TRUE(std::filesystem::exists(manifest));
  const ToolRun json = Gemmctl({"prewarm", "--running", "-o", "json"});
  EXPECT_EQ(json.code, kFailed);
  EXPECT_THAT(json.out, HasSubstr("PREWARM_OUTCOME_NOT_STORED"));
}

TEST_F(GemmctlDaemonTest, AnImportOfTuningThatTakesNothingFails) {
  const std::string path = Write("{\"entries\": [{}, {}]}");
  daemon_->imported_tuning.set_stale(2);
  for (const char* output : {"text", "json"}) {
    EXPECT_EQ(Gemmctl({"tune", "--import", path, "-o", output}).code, kFailed) << output;
  }
  const ToolRun run = Gemmctl({"tune", "--import", path});
  EXPECT_EQ(run.out, "0 layers imported\n");
  EXPECT_EQ(run.err, "warning: 2 were measured with other kernels and are not taken\n");
  daemon_->imported_tuning.set_layers(1);
  EXPECT_EQ(Gemmctl({"tune", "--import", path}).code, kDone) << "some were taken";
  daemon_->imported_tuning.Clear();
  EXPECT_EQ(Gemmctl({"tune", "--import", path}).code, kDone) << "an empty export";
}

TEST_F(GemmctlDaemonTest, WarningsAreForStderrWhateverTheOutput) {
  daemon_->listed_cache.set_warning("the directory\x1b[2J takes no kernels");
  daemon_->listed_tuning.add_warnings("one table is damaged");
  for (const char* output : {"text", "json"}) {
    const ToolRun cache = Gemmctl({"cache", "list", "-o", output});
    EXPECT_EQ(cache.code, kDone);
    EXPECT_THAT(cache.out, testing::Not(HasSubstr("warning: ")));
    EXPECT_THAT(cache.err, testing::AllOf(testing::StartsWith("warning: the directory"), HasSubstr("takes no kernels\n"),
                                          testing::Not(HasSubstr("\x1b"))));
    const ToolRun tune = Gemmctl({"tune", "--list", "-o", output});
    EXPECT_EQ(tune.code, kDone);
    EXPECT_THAT(tune.out, testing::Not(HasSubstr("warning: ")));
    EXPECT_EQ(tune.err, "warning: one table is damaged\n");
  }
}

TEST_F(GemmctlDaemonTest, AFilterTakesSeveralArchitectures) {
  ASSERT_EQ(Gemmctl({"cache", "list", "--arch", "sm_80,sm_86,sm_90a"}).code, kDone);
  EXPECT_EQ(daemon_->cache_filter.architecture(), "sm_80");
  EXPECT_THAT(daemon_->cache_filter.architectures(), testing::ElementsAre("sm_86", "sm_90a"));
  ASSERT_EQ(Gemmctl({"cache", "list", "--arch", "sm_80"}).code, kDone);
  EXPECT_EQ(daemon_->cache_filter.architectures_size(), 0);
}

TEST_F(GemmctlDaemonTest, RegisterAllTellsTheErrorOfWhatWasQuantized) {
  const ToolRun quantized = Gemmctl({"register", "p", "--all", "--quantize", "int4"});
  EXPECT_EQ(quantized.code, kDone) << quantized.err;
  EXPECT_THAT(quantized.out, HasSubstr("RELATIVE ERROR"));
  EXPECT_THAT(quantized.out, HasSubstr("6.25e-02"));
  const ToolRun stored = Gemmctl({"register", "p", "--all"});
  EXPECT_EQ(stored.code, kDone) << stored.err;
  EXPECT_THAT(stored.out, testing::Not(HasSubstr("RELATIVE ERROR")));
}

TEST_F(GemmctlDaemonTest, ZeroPointsAreReadAsTheOptionSaysOrTheDaemon) {
  daemon_->device = "cpu";
  for (const char* command : {"register", "explain"}) {
    Gemmctl({command, "p", "m", "--gptq-zero-points", "field-masked"});
    EXPECT_EQ(daemon_->checkpoint.gptq_zero_points(), v1::GPTQ_ZERO_POINTS_FIELD_MASKED) << command;
    Gemmctl({command, "p", "m", "--gptq-zero-points", "word"});
    EXPECT_EQ(daemon_->checkpoint.gptq_zero_points(), v1::GPTQ_ZERO_POINTS_WORD) << command;
    Gemmctl({command, "p", "m"});
    EXPECT_EQ(daemon_->checkpoint.gptq_zero_points(), v1::GPTQ_ZERO_POINTS_UNSPECIFIED) << command;
  }
}

// Each layer is registered once more, by the library: as the model was, or it would be another layer.
TEST_F(GemmctlDaemonTest, ZeroPointsOfEveryLayerOfAModelAreReadAsTheOptionSays) {
  ASSERT_EQ(Gemmctl({"register", "p", "--all", "--gptq-zero-points", "field-masked"}).code, kDone);
  EXPECT_EQ(daemon_->model.gptq_zero_points(), v1::GPTQ_ZERO_POINTS_FIELD_MASKED);
  EXPECT_EQ(daemon_->checkpoint.gptq_zero_points(), v1::GPTQ_ZERO_POINTS_FIELD_MASKED);
  ASSERT_EQ(Gemmctl({"register", "p", "--all"}).code, kDone);
  EXPECT_EQ(daemon_->model.gptq_zero_points(), v1::GPTQ_ZERO_POINTS_UNSPECIFIED);
}

TEST_F(GemmctlDaemonTest, NotesAboutALayerAreForStderrAndForScripts) {
  daemon_->device = "cpu";
  daemon_->notes = {"tensor m.qzeros: one\x1b[2J", "two"};
  const ToolRun text = Gemmctl({"register", "p", "m"});
  EXPECT_EQ(text.code, kDone) << text.err;
  EXPECT_THAT(text.err, testing::AllOf(HasSubstr("note: tensor m.qzeros: one"), HasSubstr("\nnote: two\n"),
                                       testing::Not(HasSubstr("\x1b"))));
  EXPECT_THAT(text.out, testing::Not(HasSubstr("note")));
  for (const char* what : {"m", "--all"}) {
    EXPECT_THAT(Gemmctl({"register", "p", what, "-o", "json"}).out,
                testing::ContainsRegex("\"notes\": \\[[^]]*\"two\""))
        << what;
  }
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"explain"}, {"bench", "--m", "1", "--seconds", "0.05"}, {"run", "--random", "1"}}) {
    std::vector<std::string> of_layer = words;
    of_layer.insert(of_layer.end(), {"p", "m"});
    EXPECT_THAT(Gemmctl(of_layer).err, HasSubstr("note: two\n")) << words[0];  // whatever follows
  }
  daemon_->notes.clear();
  EXPECT_THAT(Gemmctl({"register", "p", "m"}).err, testing::Not(HasSubstr("note: ")));
}

TEST_F(GemmctlDaemonTest, SaysOnceThatItWaitsForTheNextDaemon) {
  Context context;
  context.socket = daemon_->socket_path();
  context.err = std::tmpfile();
  {
    auto session = context.OpenSession("gemmctl register");
    ASSERT_TRUE(session.ok()) << session.status();
    daemon_->Stop();
    daemon_->Start();
    while (session->connected()) absl::SleepFor(absl::Milliseconds(5));
    EXPECT_TRUE(session->AllocateHost(4096).ok());
    EXPECT_TRUE(session->AllocateHost(4096).ok());
  }
  EXPECT_EQ(Drain(context.err),
            "gemmctl register: the daemon ended the session; waiting up to 10s for the next one\n");
}

}  // namespace
}  // namespace gemmd::gemmctl

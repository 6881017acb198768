// The programs people call, against a real daemon: gemmctl and the Python client without our
// library.
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/environment.h"

// client/examples/readme.cc
absl::Status HostGemm(const std::string& checkpoint, const std::string& module, int64_t m);

namespace gemmd::e2e {
namespace {

class ToolsTest : public DaemonTest {
 protected:
  ToolsTest() { StartDaemon(); }

  struct Result {
    int code;
    std::string out;
  };
  Result Gemmctl(std::vector<std::string> words) {
    words.insert(words.begin(), {Program("gemmctl"), "--socket", socket()});
    auto tool = Start(words);
    const int code = tool->Wait(absl::Minutes(2));
    return {code, tool->Rest()};
  }
  static std::vector<std::string> LayerWords(const std::string& command) {
    return {command, Checkpoints() + "/awq_gemm_g128", "model.layers.0.self_attn.o_proj"};
  }
  static std::vector<std::string> With(std::vector<std::string> words,
                                       std::vector<std::string> more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(ToolsTest, GemmctlRunsOnEveryKindOfMemoryAndAgreesWithBothReferences) {
  const std::string expected =
      Checkpoints() +
      "/awq_gemm_g128/expected.safetensors:model.layers.0.self_attn.o_proj.weight_f32";
  std::vector<std::string> kinds = {"auto", "daemon"};
  kinds.push_back(OnCuda() ? "ipc" : "memfd");
  for (const std::string& kind : kinds) {
    const Result run = Gemmctl(With(LayerWords("run"), {"--random", "5", "--memory", kind}));
    EXPECT_EQ(run.code, 0) << kind << "\n" << run.out;
    const Result known =
        Gemmctl(With(LayerWords("run"), {"--random", "5", "--memory", kind, "--expected", expected,
                                         "--dtype", "f16"}));
    EXPECT_EQ(known.code, 0) << kind << "\n" << known.out;
  }
  const Result wrong = Gemmctl(With(LayerWords("run"), {"--random", "5", "--max-error", "1e-9"}));
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.out, testing::HasSubstr("OUTSIDE"));
}

TEST_F(ToolsTest, GemmctlLooksAtEverything) {
  for (const char* command :
       {"status", "devices", "layers", "sessions", "config", "metrics", "doctor"}) {
    const Result text = Gemmctl({command});
    EXPECT_EQ(text.code, 0) << command << "\n" << text.out;
    const Result json = Gemmctl({command, "-o", "json"});
    EXPECT_EQ(json.code, 0) << command;
    EXPECT_THAT(json.out, testing::AnyOf(testing::StartsWith("{"), testing::StartsWith("[")))
        << command;
  }
  for (const char* command : {"register", "explain"})
    EXPECT_EQ(Gemmctl(LayerWords(command)).code, 0);
  const Result bench =
      Gemmctl(With(LayerWords("bench"), {"--m", "0,1", "--seconds", "0.1", "-o", "json"}));
  EXPECT_EQ(bench.code, 0) << bench.out;
  EXPECT_THAT(bench.out, testing::HasSubstr("\"p99_us\""));
}

TEST_F(ToolsTest, GemmctlNamesWhatTheDaemonRefused) {
  EXPECT_EQ(Gemmctl({"register", Checkpoints() + "/awq_gemm_g128", "no.such.module"}).code, 1);
  EXPECT_EQ(Gemmctl({"register", "/etc", "m"}).code, 77);
  EXPECT_EQ(Gemmctl(With(LayerWords("register"), {"--rows", ""})).code, 2) << "an unset variable";
}

// What --expected weights leave out is the checkpoint's: static scales, a bias, factors of x.
TEST_F(ToolsTest, GemmctlTakesWhatExpectedWeightsLeaveOutFromTheCheckpoint) {
  const std::pair<const char*, const char*> cases[] = {
      {"ct_fp8_tensor_static", "model.layers.0.mlp.down_proj"},
      {"ct_int8_channel_static_asym_input", "model.layers.0.mlp.down_proj"},
      {"gptq_v2_gptqmodel_b4_descact_g32", "model.layers.0.mlp.down_proj"},
      {"modelopt_w4a16_awq", "model.layers.0.mlp.down_proj"},
      {"encoded_modelopt_w4a8_awq", "model.layers.0.self_attn.o_proj"}};
  for (const auto& [name, module] : cases) {
    const std::string folder = Checkpoints() + "/" + name;
    const Result run = Gemmctl({"run", folder, module, "--random", "4", "--expected",
                                absl::StrCat(folder, "/expected.safetensors:", module, ".weight_f32"),
                                "--dtype", "f32", "--max-error", "1e-3"});
    EXPECT_EQ(run.code, 0) << name << "\n" << run.out << log();
  }
}

TEST_F(ToolsTest, GemmctlRunsBatchInvariantRequests) {
  const Result run = Gemmctl(With(LayerWords("run"), {"--random", "3", "--batch-invariant"}));
  EXPECT_EQ(run.code, 0) << run.out;
  const Result json =
      Gemmctl(With(LayerWords("run"), {"--random", "3", "--batch-invariant", "-o", "json"}));
  EXPECT_EQ(json.out.find("\"numerics\"") != std::string::npos, OnCuda()) << json.out;
  EXPECT_EQ(Gemmctl(With(LayerWords("run"), {"--random", "3", "--numerics", "1234"})).code, 1)
      << "no kernel has them";
}

TEST_F(ToolsTest, GemmctlPermitsSumsOfFloat16) {
  const Result run =
      Gemmctl(With(LayerWords("run"), {"--random", "300", "--dtype", "f16", "--fp16-accumulation"}));
  EXPECT_EQ(run.code, 0) << run.out << log();
  EXPECT_THAT(run.out, testing::ContainsRegex("sums +(not )?float16"));
  // No kernel sums x of bf16 in float16.
  const Result bf16 = Gemmctl(With(LayerWords("run"), {"--random", "3", "--fp16-accumulation"}));
  EXPECT_THAT(bf16.out, testing::HasSubstr("not float16: --fp16-accumulation had no effect")) << bf16.out;
  EXPECT_THAT(Gemmctl(With(LayerWords("run"), {"--random", "3"})).out, testing::Not(testing::HasSubstr("float16:")));
  EXPECT_EQ(
      Gemmctl(With(LayerWords("bench"), {"--m", "64", "--seconds", "0.1", "--dtype", "f16", "--fp16-accumulation"}))
          .code,
      0);
}

TEST_F(ToolsTest, GemmctlTransformsXInBothReferencesToo) {
  const std::pair<const char*, const char*> cases[] = {
      {"ct_fp8_tensor_static", "model.layers.0.mlp.down_proj"},
      {"encoded_modelopt_w4a8_awq", "model.layers.0.self_attn.o_proj"}};
  for (const auto& [name, module] : cases) {
    const std::string folder = Checkpoints() + "/" + name;
    const std::vector<std::string> words = {"run",     folder, module,        "--random", "3", "--hadamard", "16",
                                            "--dtype", "f32",  "--max-error", "1e-3"};
    const Result run = Gemmctl(words);
    EXPECT_EQ(run.code, 0) << name << "\n" << run.out << log();
    EXPECT_THAT(run.out, testing::HasSubstr("transformed by Hadamard blocks of 16 columns"));
    const Result known = Gemmctl(With(
        words, {"--expected", absl::StrCat(folder, "/expected.safetensors:", module, ".weight_f32")}));
    EXPECT_EQ(known.code, 0) << name << "\n" << known.out << log();
  }
  EXPECT_EQ(Gemmctl(With(LayerWords("bench"), {"--m", "1", "--seconds", "0.1", "--hadamard", "8"})).code, 0);
  EXPECT_NE(Gemmctl(With(LayerWords("run"), {"--random", "3", "--hadamard", "3"})).code, 0);
}

// Nothing of the old daemon is in the way of the next one.
TEST_F(ToolsTest, DrainWaitsUntilAnotherDaemonCanStart) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Gemmctl({"drain", "--wait"}).code, 0);
    StartDaemon();
    ASSERT_TRUE(daemon_->running()) << log();
  }
}

TEST_F(ToolsTest, HoldingEndsWithTheDaemon) {
  auto holder = Start(With({Program("gemmctl"), "--socket", socket()},
                           With(LayerWords("register"), {"--hold"})));
  ASSERT_TRUE(Within(absl::Seconds(60), [&] { return Status().layers() == 1; }));
  EXPECT_TRUE(holder->running());
  KillDaemon();
  EXPECT_EQ(holder->Wait(absl::Seconds(20)), 69);
}

TEST_F(ToolsTest, TimeoutHoldsForLoadingALayerToo) {
  daemon_->Signal(SIGSTOP);
  const absl::Time start = absl::Now();
  EXPECT_NE(Gemmctl(With({"--timeout", "1"}, LayerWords("register"))).code, 0);
  EXPECT_LT(absl::Now() - start, absl::Seconds(4));
  daemon_->Signal(SIGCONT);
}

TEST_F(ToolsTest, PrewarmingNothingIsAFailure) {
  EXPECT_EQ(Gemmctl({"prewarm", "--arch", "sm_42"}).code, 1) << "no layer";
  EXPECT_EQ(Gemmctl({"prewarm", Checkpoints() + "/awq_gemm_g128", "--arch", "sm_42"}).code, 1)
      << "no kernel";
  EXPECT_EQ(Gemmctl({"prewarm", "--running", "--arch", "sm_90a"}).code, 0) << "asked for just that";
}

TEST_F(ToolsTest, GemmctlWaitsForADaemonThatPauses) {
  daemon_->Signal(SIGSTOP);
  auto tool = Start({Program("gemmctl"), "--socket", socket(), "status"});
  absl::SleepFor(absl::Milliseconds(600));
  daemon_->Signal(SIGCONT);
  EXPECT_EQ(tool->Wait(absl::Minutes(1)), 0);
}

TEST_F(ToolsTest, GemmctlSaysThatItsOutputWasLost) {
  const std::string command =
      absl::StrCat(Program("gemmctl"), " --socket ", socket(), " layers > /dev/full");
  EXPECT_EQ(Start({"/bin/sh", "-c", command})->Wait(absl::Minutes(1)), 1);
}

// As of a full disk: an error, and nothing of the file stays.
TEST_F(ToolsTest, ALimitOfFileSizesIsAnErrorAndNoSignal) {
  const std::string file = directory_ + "/layer.safetensors";
  const std::vector<std::string> layer = LayerWords("");
  const std::string command = absl::StrCat("ulimit -f 8; ", Program("gemmctl"), " export ", layer[1],
                                           " ", layer[2], " ", file, " --as float32");
  EXPECT_EQ(Start({"/bin/sh", "-c", command})->Wait(absl::Minutes(1)), 1);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(ToolsTest, TheExampleOfTheClientsReadmeRuns) {
  ASSERT_EQ(setenv("GEMMD_SOCKET", socket().c_str(), 1), 0);
  const absl::Status status = HostGemm(LayerWords("")[1], LayerWords("")[2], 16);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(Status().requests_total(), 1u);
  unsetenv("GEMMD_SOCKET");
}

// Python without our library.
class PythonTest : public ToolsTest {
 protected:
  void SetUp() override {
    if (Start({python_, "-c", "import grpc, google.protobuf, numpy"})->Wait(absl::Minutes(1)) !=
        0) {
      FAIL() << python_ << " lacks grpc, google.protobuf or numpy: install python3-grpcio, "
             << "python3-protobuf and python3-numpy (deploy/install-deps does)";
    }
  }
  const std::string python_ = Variable("GEMMD_E2E_PYTHON", "/usr/bin/python3");
};

TEST_F(PythonTest, TheExampleOfTheReadmeRuns) {
  if (access("/usr/bin/protoc", X_OK) != 0 || access("/usr/bin/grpc_python_plugin", X_OK) != 0) {
    FAIL() << "no protoc or no grpc_python_plugin: install protobuf-compiler and "
           << "protobuf-compiler-grpc (deploy/install-deps does)";
  }
  auto example =
      Start({python_, Source() + "/tests/e2e/readme_example.py", "--root", Source(), "--socket",
             socket(), "--checkpoint", Checkpoints() + "/gptq_v1_autogptq_b4_g128_sym"});
  EXPECT_EQ(example->Wait(absl::Minutes(1)), 0);
  EXPECT_THAT(example->Rest(), testing::HasSubstr(" (4, 96)\n"));
}

TEST_F(PythonTest, APlainClientDoesAWholeJob) {
  std::vector<std::string> words = {python_,    Source() + "/tests/e2e/plain_client.py",
                                    "--socket", socket(),
                                    "--data",   Checkpoints()};
  const std::string described = Variable("GEMMD_E2E_DESCRIPTORS", "");
  words = With(words, described.empty() ? std::vector<std::string>{"--proto", Source() + "/proto"}
                                        : std::vector<std::string>{"--descriptor-set", described});
  auto client = Start(words, {"PYTHONDONTWRITEBYTECODE=1"});
  EXPECT_EQ(client->Wait(absl::Minutes(2)), 0) << client->Rest();
  EXPECT_TRUE(Within(absl::Seconds(2), [&] { return Status().sessions() == 0; }));
}

}  // namespace
}  // namespace gemmd::e2e

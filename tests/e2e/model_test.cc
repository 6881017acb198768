// Whole models against a real daemon: one call, every module right, one copy for two processes.
#include <signal.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/layer_slice.h"
#include "client/model.h"
#include "client/session.h"
#include "core/checkpoint/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"
#include "tests/e2e/environment.h"
#include "tests/e2e/golden_layer.h"
#include "tests/e2e/layer_check.h"

namespace gemmd::e2e {
namespace {

using client::Model;
using ::testing::HasSubstr;

constexpr char kLlama[] = "modelopt_fp8_llama";
constexpr char kQwen[] = "modelopt_fp8_qwen3moe";
constexpr uint32_t kLlamaModules = 7;

class ModelTest : public DaemonTest {
 protected:
  void SetUp() override {
    daemon_device_ = "cpu";
    StartDaemon();
  }
  client::Session Open(const std::string& name) {
    return client::Session::Open({.address = socket(), .name = name}).value();
  }
  static v1::RegisterModelRequest Of(const std::string& name) {
    v1::RegisterModelRequest request;
    request.set_path(Checkpoints() + "/" + name);
    return request;
  }
  std::unique_ptr<Process> StartTool(std::vector<std::string> words) {
    words.insert(words.begin(), {Program("gemmctl"), "--socket", socket()});
    return Start(words);
  }
  // A copy of the model whose up_proj has no scale.
  std::string Damaged() {
    EditableCheckpoint checkpoint(Checkpoints() + "/" + kLlama);
    checkpoint.tensors.erase("model.layers.0.mlp.up_proj.weight_scale");
    const std::string folder = directory_ + "/ckpt/damaged";
    std::filesystem::create_directory(folder);
    checkpoint.Write(folder);
    return folder;
  }
};

TEST_F(ModelTest, EveryModuleComputesWhatItsExporterMeans) {
  client::Session session = Open("model");
  for (const char* name : {kLlama, kQwen}) {
    uint64_t bytes_done = 0;
    uint64_t bytes_total = 0;
    const auto model =
        client::RegisterModel(session, Of(name), [&](const v1::RegisterModelProgress& progress) {
          EXPECT_GE(progress.bytes_done(), bytes_done);
          bytes_done = progress.bytes_done();
          bytes_total = progress.bytes_total();
          return true;
        });
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(bytes_done, bytes_total);
    size_t checked = 0;
    for (const GoldenLayer& golden : GoldenLayers()) {
      if (golden.checkpoint != name) continue;
      const auto read = ReadLayer(Checkpoints() + "/" + name, golden.module);
      ASSERT_TRUE(read.ok()) << read.status();
      const auto check = CheckLayer(session, model->layers.at(golden.module), golden, read->tensor,
                                    v1::DATA_TYPE_BFLOAT16, absl::ZeroDuration());
      ASSERT_TRUE(check.ok()) << check.status();
      EXPECT_TRUE(check->right()) << golden.module;
      ++checked;
    }
    EXPECT_EQ(checked, model->layers.size());
  }
}

TEST_F(ModelTest, TwoProcessesShareOneCopy) {
  auto holder = StartTool({"register", Checkpoints() + "/" + kLlama, "--all", "--hold"});
  ASSERT_TRUE(holder->ReadUntil("7 layers", absl::Minutes(1)));
  const v1::GetStatusResponse before = Status();
  EXPECT_EQ(before.layers(), kLlamaModules);
  client::Session session = Open("second");
  {
    const auto model = client::RegisterModel(session, Of(kLlama));
    ASSERT_TRUE(model.ok()) << model.status();
    for (const auto& [module, layer] : model->layers) {
      EXPECT_EQ(layer.info().references(), 2u) << module;
    }
    const v1::GetStatusResponse both = Status();
    EXPECT_EQ(both.layers(), kLlamaModules);
    EXPECT_EQ(both.layer_references(), 2 * kLlamaModules);
    EXPECT_EQ(both.devices(0).weights_bytes(), before.devices(0).weights_bytes());
    holder->Signal(SIGTERM);
    EXPECT_EQ(holder->Wait(absl::Minutes(1)), 0);
    EXPECT_TRUE(Within(absl::Seconds(10),
                       [&] { return Status().layer_references() == kLlamaModules; }));
  }
  // The layers went with their objects, not with the session.
  EXPECT_TRUE(Within(absl::Seconds(10), [&] { return Status().layers() == 0; }));
  EXPECT_EQ(Status().sessions(), 1u);
}

TEST_F(ModelTest, RanksOfTensorAndExpertParallelismHoldTheirParts) {
  client::Session session = Open("ranks");
  v1::RegisterModelRequest whole = Of(kQwen);
  whole.set_fuse(true);
  const auto all = client::RegisterModel(session, whole);
  ASSERT_TRUE(all.ok()) << all.status();
  for (uint32_t rank = 0; rank < 2; ++rank) {
    v1::RegisterModelRequest request = whole;
    request.set_name_prefix(absl::StrCat("rank ", rank, " "));
    *request.mutable_slice()->mutable_tensor() = client::RankOf(rank, 2).rank();
    *request.mutable_slice()->mutable_experts() = client::RangeOf(rank, rank + 2);
    const auto part = client::RegisterModel(session, request);
    ASSERT_TRUE(part.ok()) << part.status();
    ASSERT_EQ(part->layers.size(), all->layers.size());
    for (const auto& [module, layer] : all->layers) {
      const v1::LayerInfo one = part->layers.at(module).info();
      EXPECT_EQ(2 * one.n() * one.k(), layer.info().n() * layer.info().k()) << module;
      EXPECT_EQ(one.experts(), layer.info().experts() == 1 ? 1 : 2) << module;
      EXPECT_NE(one.digest(), layer.info().digest()) << module;
    }
  }
}

TEST_F(ModelTest, FailsWholeOrKeepsGoing) {
  client::Session session = Open("damaged");
  v1::RegisterModelRequest request;
  request.set_path(Damaged());
  const auto whole = client::RegisterModel(session, request);
  EXPECT_EQ(ReasonOf(whole.status()), "BAD_CHECKPOINT") << whole.status();
  EXPECT_THAT(std::string(whole.status().message()), HasSubstr("model.layers.0.mlp.up_proj"));
  EXPECT_EQ(Status().layers(), 0u);
  request.set_keep_going(true);
  const auto rest = client::RegisterModel(session, request);
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(rest->layers.size(), kLlamaModules - 1);
  ASSERT_EQ(rest->failures.size(), 1u);
  EXPECT_EQ(rest->failures.at("model.layers.0.mlp.up_proj").reason(), "BAD_CHECKPOINT");
}

TEST_F(ModelTest, StopsWhenItsClientSaysSo) {
  client::Session session = Open("cancelled");
  int messages = 0;
  const auto model = client::RegisterModel(
      session, Of(kQwen), [&](const v1::RegisterModelProgress&) { return ++messages < 4; });
  EXPECT_EQ(model.status().code(), absl::StatusCode::kCancelled) << model.status();
  EXPECT_TRUE(Within(absl::Seconds(10), [&] { return Status().layers() == 0; }));
}

TEST_F(ModelTest, FollowsARestartedDaemonAndSaysSo) {
  int told = 0;
  client::Session session =
      client::Session::Open({.address = socket(), .name = "restarted", .on_reconnect = [&] { ++told; }}).value();
  bool restarted = false;
  const auto model = client::RegisterModel(session, Of(kLlama), [&](const v1::RegisterModelProgress&) {
    if (!std::exchange(restarted, true)) {
      KillDaemon();
      StartDaemon();
    }
    return true;
  });
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->layers.size(), kLlamaModules);
  EXPECT_EQ(Status().layers(), kLlamaModules) << "the next daemon holds them";
  EXPECT_EQ(session.reopened(), 1u);
  EXPECT_EQ(told, 1);
}

TEST_F(ModelTest, GemmctlRegistersAll) {
  const std::string folder = Checkpoints() + "/" + kLlama;
  auto text = StartTool({"register", folder, "--all", "--fuse", "--tp", "1/2"});
  EXPECT_EQ(text->Wait(absl::Minutes(1)), 0);
  const std::string table = text->Rest();
  EXPECT_THAT(table, HasSubstr("model.layers.0.self_attn.qkv_proj"));
  EXPECT_THAT(table, HasSubstr("4 layers"));
  auto chosen = StartTool(
      {"register", folder, "--all", "--modules", "*.mlp.*", "--exclude", "*.up_proj", "-o", "json"});
  EXPECT_EQ(chosen->Wait(absl::Minutes(1)), 0);
  const auto json = nlohmann::json::parse(chosen->Rest(), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["layers"].size(), 2u);
  EXPECT_EQ(json["layers"]["model.layers.0.mlp.down_proj"]["state"], "READY");
  EXPECT_EQ(json["failures"].size(), 0u);
  const std::string damaged = Damaged();
  EXPECT_EQ(StartTool({"register", damaged, "--all"})->Wait(absl::Minutes(1)), 1);
  auto rest = StartTool({"register", damaged, "--all", "--keep-going"});
  EXPECT_EQ(rest->Wait(absl::Minutes(1)), 1);
  EXPECT_THAT(rest->Rest(), HasSubstr("1 of 7 modules were not registered"));
  StartTool({"register", folder, "--all", "--exclude", "lm_hed", "--experts", "0/3"})->Wait(absl::Minutes(1));
  std::stringstream told;
  told << std::ifstream(log()).rdbuf();
  EXPECT_THAT(told.str(), HasSubstr("warning: --exclude 'lm_hed' matches none of the chosen modules"));
  EXPECT_THAT(told.str(), HasSubstr("warning: --experts chose nothing: no module has experts"));
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"--rows", "0/2"}, {"--tp", "half"}, {"--name", "x"}, {"model.layers.0.mlp.up_proj"}}) {
    std::vector<std::string> words = {"register", folder, "--all"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(StartTool(words)->Wait(absl::Minutes(1)), 2) << more.front();
  }
}

}  // namespace
}  // namespace gemmd::e2e

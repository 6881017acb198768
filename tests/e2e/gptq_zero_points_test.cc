// Zero points of GPTQ version 1 that wrap, through a real daemon: what a layer multiplies by, and who is told.
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/model.h"
#include "client/session.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/checkpoint/test_checkpoint.h"
#include "tests/e2e/environment.h"

namespace gemmd::e2e {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSize = 64;  // N = K, one group

// Zero points 15, 3, 15, 15, 7, 14, 0, 15 as they are stored in each word, lowest first, and what they are plus one: to the
// whole word 15 + 1 is 0 and carries, 15 + 1 and a carry is 1 and carries on, and the last carry is lost.
constexpr char kWord[] = "\x3f\xff\xe7\xf0";
const std::vector<float> kByWord = {0, 5, 0, 1, 9, 15, 1, 0};
const std::vector<float> kByField = {0, 4, 0, 0, 8, 15, 1, 0};

class GptqZeroPointsTest : public DaemonTest {
 protected:
  void StartWith(const std::string& setting) {
    daemon_device_ = "cpu";
    if (!setting.empty()) daemon_environment_ = {"GEMMD_GPTQ_ZERO_POINTS=" + setting};
    StartDaemon();
    session_.emplace(client::Session::Open({.address = socket(), .name = "zero points"}).value());
  }

  // A module "a" whose weights are minus its zero points: codes of 0 and scales of 1.
  std::string WriteModel() const {
    const std::string folder = directory_ + "/ckpt/wrapping";
    std::filesystem::create_directory(folder);
    std::string zeros, scales;
    for (int64_t i = 0; i < kSize / 8; ++i) zeros.append(kWord, 4);
    for (int64_t i = 0; i < kSize; ++i) scales.append("\x00\x3c", 2);
    WriteTensors(folder + "/model.safetensors",
                 {{"a.qweight", {"I32", {kSize / 8, kSize}, std::string(kSize * kSize / 2, '\0')}},
                  {"a.qzeros", {"I32", {1, kSize / 8}, zeros}},
                  {"a.scales", {"F16", {1, kSize}, scales}}});
    WriteFile(folder + "/config.json",
              R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1, "sym": false}})");
    return folder;
  }

  absl::StatusOr<client::Layer> Register(v1::GptqZeroPoints rule) {
    v1::CheckpointSource source;
    source.set_path(WriteModel());
    source.set_module("a");
    source.set_gptq_zero_points(rule);
    return session_->RegisterCheckpoint(source, "", v1::GptqZeroPoints_Name(rule));
  }

  // Of the first eight rows, by x = (-1, 0, 0, ...).
  std::vector<float> ZeroPointsOf(const client::Layer& layer) {
    client::Region memory = session_->AllocateHost(2 * kSize * sizeof(float)).value();
    std::vector<float> x(2 * kSize);
    x[0] = -1;
    std::memcpy(memory.data(), x.data(), x.size() * sizeof(float));
    client::Gemm gemm{.layer = &layer};
    gemm.x = {.region = &memory, .dtype = v1::DATA_TYPE_FLOAT32, .rows = 1, .columns = kSize};
    gemm.y = {.region = &memory,
              .byte_offset = kSize * sizeof(float),
              .dtype = v1::DATA_TYPE_FLOAT32,
              .rows = 1,
              .columns = kSize};
    const auto report = session_->Run(gemm);
    EXPECT_TRUE(report.ok()) << report.status();
    std::vector<float> y(8);
    std::memcpy(y.data(), memory.data() + kSize * sizeof(float), 8 * sizeof(float));
    return y;
  }

  std::string LogText() const {
    std::ifstream file(log());
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Lines are written a little after what they tell.
  bool IsLogged(const std::string& text) const {
    return Within(absl::Seconds(10), [&] { return absl::StrContains(LogText(), text); });
  }

  std::optional<client::Session> session_;
};

TEST_F(GptqZeroPointsTest, AWorkerChoosesWhatItsLayerMultipliesBy) {
  StartWith("");
  const auto unset = Register(v1::GPTQ_ZERO_POINTS_UNSPECIFIED);
  const auto word = Register(v1::GPTQ_ZERO_POINTS_WORD);
  const auto field = Register(v1::GPTQ_ZERO_POINTS_FIELD_MASKED);
  ASSERT_TRUE(unset.ok() && word.ok() && field.ok()) << unset.status() << word.status() << field.status();
  EXPECT_EQ(ZeroPointsOf(*unset), kByWord);
  EXPECT_EQ(ZeroPointsOf(*word), kByWord);
  EXPECT_EQ(ZeroPointsOf(*field), kByField);
  EXPECT_EQ(unset->info().layer_id(), word->info().layer_id());
  EXPECT_NE(field->info().digest(), word->info().digest());
}

TEST_F(GptqZeroPointsTest, TheDaemonsSettingIsForThoseWhoDoNotChoose) {
  StartWith("field-masked");
  const auto unset = Register(v1::GPTQ_ZERO_POINTS_UNSPECIFIED);
  const auto word = Register(v1::GPTQ_ZERO_POINTS_WORD);
  ASSERT_TRUE(unset.ok() && word.ok()) << unset.status() << word.status();
  EXPECT_EQ(ZeroPointsOf(*unset), kByField);
  EXPECT_EQ(ZeroPointsOf(*word), kByWord);
}

TEST_F(GptqZeroPointsTest, AModelIsReadAsItsRequestSays) {
  StartWith("");
  v1::RegisterModelRequest request;
  request.set_path(WriteModel());
  request.set_gptq_zero_points(v1::GPTQ_ZERO_POINTS_FIELD_MASKED);
  const auto model = client::RegisterModel(*session_, request);
  ASSERT_TRUE(model.ok()) << model.status();
  const client::Layer& layer = model->layers.at("a");
  EXPECT_EQ(ZeroPointsOf(layer), kByField);
  EXPECT_THAT(layer.notes(), ElementsAre(HasSubstr("each alone (field-masked)")));
}

TEST_F(GptqZeroPointsTest, WorkersAndTheLogAreTold) {
  StartWith("");
  const auto layer = Register(v1::GPTQ_ZERO_POINTS_UNSPECIFIED);
  ASSERT_TRUE(layer.ok()) << layer.status();
  const std::string told =
      "tensor a.qzeros: 32 of 64 zero points are stored as 15, and plus one they wrap to 0, with a carry into the next of "
      "their word (word)";
  EXPECT_THAT(layer->notes(), ElementsAre(HasSubstr(told)));
  EXPECT_TRUE(IsLogged(told)) << LogText();
  const auto other = session_->RegisterCheckpoint(Checkpoints() + "/awq_gemm_g128", "model.layers.0.self_attn.o_proj");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(other->notes(), IsEmpty());
  auto tool = Start({Program("gemmctl"), "--socket", socket(), "register", WriteModel(), "a", "--gptq-zero-points",
                     "field-masked"});
  EXPECT_EQ(tool->Wait(absl::Minutes(1)), 0);
  EXPECT_TRUE(IsLogged("note: tensor a.qzeros: 32 of 64 zero points")) << LogText();
  EXPECT_TRUE(IsLogged("each alone (field-masked)")) << LogText();
}

}  // namespace
}  // namespace gemmd::e2e

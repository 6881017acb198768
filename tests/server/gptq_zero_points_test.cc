// How a daemon reads zero points of GPTQ version 1 that wrap: its setting, and what requests choose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "core/quant/digest.h"
#include "gemmd/v1/model.grpc.pb.h"
#include "kernels/base/status.h"
#include "server/convert.h"
#include "server/exit_codes.h"
#include "server/logging.h"
#include "server/note_log.h"
#include "tests/server/fixture.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kModule[] = "model.layers.0.mlp.down_proj";
constexpr char kDiffer[] = "gptq_v1_gptqmodel_b4_g64_asym_borrow";  // the rules give different zero points
constexpr char kAgree[] = "gptq_v1_autogptq_b4_g32_asym";           // and the same ones

std::filesystem::path Folder(const std::string& name) {
  return std::filesystem::canonical(std::filesystem::path(GEMMD_TEST_DATA) / "checkpoints") / name;
}

// What the reader gives.
std::string DigestOf(const std::string& name, GptqZeroPoints rule) {
  const auto layer = ReadLayer(Folder(name), kModule, nullptr, {}, {}, nullptr, {.gptq_zero_points = rule});
  EXPECT_TRUE(layer.ok()) << layer.status();
  return layer.ok() ? Digest(layer->tensor) : "";
}

class GptqZeroPointsTest : public DaemonTest {
 protected:
  void SetUp() override { Start({}); }
  void Start(FlagValues flags) {
    flags["checkpoint_roots"] = Folder("");
    StartDaemon(flags);
    models_ = v1::ModelService::NewStub(channel_);
  }

  static v1::RegisterLayerRequest Of(const std::string& name, v1::GptqZeroPoints rule) {
    v1::RegisterLayerRequest request;
    request.mutable_checkpoint()->set_path(Folder(name));
    request.mutable_checkpoint()->set_module(kModule);
    request.mutable_checkpoint()->set_gptq_zero_points(rule);
    return request;
  }

  v1::LayerInfo Register(const std::string& token, const std::string& name, v1::GptqZeroPoints rule) {
    v1::LayerInfo layer;
    const grpc::Status status = TryRegisterLayer(token, Of(name, rule), &layer);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return layer;
  }

  // What RegisterLayer says beside the layer.
  std::vector<std::string> NotesOf(const std::string& token, const v1::RegisterLayerRequest& request) {
    const auto context = Context(token);
    const auto stream = layers_->RegisterLayer(context.get(), request);
    v1::RegisterLayerProgress message;
    std::vector<std::string> notes;
    while (stream->Read(&message)) {
      EXPECT_TRUE(message.has_layer() || message.notes().empty());
      notes.assign(message.notes().begin(), message.notes().end());
    }
    EXPECT_TRUE(stream->Finish().ok());
    return notes;
  }
  std::vector<std::string> NotesOf(const std::string& token, const std::string& name, v1::GptqZeroPoints rule) {
    return NotesOf(token, Of(name, rule));
  }

  // The only module of the model.
  v1::LayerInfo RegisterModel(const std::string& token, const std::string& name, v1::GptqZeroPoints rule) {
    v1::RegisterModelRequest request;
    request.set_path(Folder(name));
    request.set_gptq_zero_points(rule);
    const auto context = Context(token);
    const auto stream = models_->RegisterModel(context.get(), request);
    v1::RegisterModelProgress message;
    v1::LayerInfo layer;
    plan_notes_.clear();
    while (stream->Read(&message)) {
      const v1::RegisterLayerProgress& progress = message.module().progress();
      for (const std::string& note : message.notes()) {
        if (absl::StrContains(note, ".qzeros")) plan_notes_.push_back(note);
      }
      if (!progress.has_layer()) continue;
      layer = progress.layer();
      module_notes_.assign(progress.notes().begin(), progress.notes().end());
    }
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return layer;
  }

  const std::string by_word_ = DigestOf(kDiffer, GptqZeroPoints::kWord);
  const std::string by_field_ = DigestOf(kDiffer, GptqZeroPoints::kFieldMasked);
  std::unique_ptr<v1::ModelService::Stub> models_;
  std::vector<std::string> plan_notes_, module_notes_;  // about zero points, of the last RegisterModel
};

TEST_F(GptqZeroPointsTest, ARequestChooses) {
  ASSERT_NE(by_word_, by_field_);
  const std::string token = OpenBySocket();
  EXPECT_EQ(Register(token, kDiffer, v1::GPTQ_ZERO_POINTS_UNSPECIFIED).digest(), by_word_);
  EXPECT_EQ(Register(token, kDiffer, v1::GPTQ_ZERO_POINTS_WORD).digest(), by_word_);
  EXPECT_EQ(Register(token, kDiffer, v1::GPTQ_ZERO_POINTS_FIELD_MASKED).digest(), by_field_);
  const std::string other = OpenBySocket();
  EXPECT_EQ(RegisterModel(other, kDiffer, v1::GPTQ_ZERO_POINTS_UNSPECIFIED).digest(), by_word_);
  const std::string third = OpenBySocket();
  EXPECT_EQ(RegisterModel(third, kDiffer, v1::GPTQ_ZERO_POINTS_FIELD_MASKED).digest(), by_field_);
}

TEST_F(GptqZeroPointsTest, TheSettingDecidesForRequestsThatDoNotChoose) {
  Start({{"gptq_zero_points", "field-masked"}});
  const std::string token = OpenBySocket();
  EXPECT_EQ(Register(token, kDiffer, v1::GPTQ_ZERO_POINTS_UNSPECIFIED).digest(), by_field_);
  EXPECT_EQ(Register(token, kDiffer, v1::GPTQ_ZERO_POINTS_FIELD_MASKED).digest(), by_field_);
  EXPECT_EQ(Register(token, kDiffer, v1::GPTQ_ZERO_POINTS_WORD).digest(), by_word_);
  const std::string other = OpenBySocket();
  EXPECT_EQ(RegisterModel(other, kDiffer, v1::GPTQ_ZERO_POINTS_UNSPECIFIED).digest(), by_field_);
  const std::string third = OpenBySocket();
  EXPECT_EQ(RegisterModel(third, kDiffer, v1::GPTQ_ZERO_POINTS_WORD).digest(), by_word_);
}

// The same files, module and slice: only the choice tells the layers apart before they are read.
TEST_F(GptqZeroPointsTest, WorkersThatChooseDifferentlyDoNotShareALayer) {
  const std::string one = OpenBySocket(), other = OpenBySocket();
  const v1::LayerInfo word = Register(one, kDiffer, v1::GPTQ_ZERO_POINTS_WORD);
  const v1::LayerInfo field = Register(other, kDiffer, v1::GPTQ_ZERO_POINTS_FIELD_MASKED);
  EXPECT_NE(word.layer_id(), field.layer_id());
  EXPECT_EQ(field.references(), 1u);
  const std::string third = OpenBySocket();
  EXPECT_EQ(Register(third, kDiffer, v1::GPTQ_ZERO_POINTS_UNSPECIFIED).layer_id(), word.layer_id());
  EXPECT_EQ(Register(third, kDiffer, v1::GPTQ_ZERO_POINTS_FIELD_MASKED).layer_id(), field.layer_id());
}

TEST_F(GptqZeroPointsTest, WhereTheRulesAgreeTheLayerIsOne) {
  const std::string one = OpenBySocket(), other = OpenBySocket();
  const v1::LayerInfo word = Register(one, kAgree, v1::GPTQ_ZERO_POINTS_WORD);
  const v1::LayerInfo field = Register(other, kAgree, v1::GPTQ_ZERO_POINTS_FIELD_MASKED);
  EXPECT_EQ(word.layer_id(), field.layer_id());
  EXPECT_EQ(field.references(), 2u);
}

TEST_F(GptqZeroPointsTest, NamesWithinASessionMeanOneReading) {
  const std::string token = OpenBySocket();
  v1::RegisterLayerRequest request = Of(kDiffer, v1::GPTQ_ZERO_POINTS_WORD);
  request.set_name("down");
  v1::LayerInfo layer;
  ASSERT_TRUE(TryRegisterLayer(token, request, &layer).ok());
  request.mutable_checkpoint()->set_gptq_zero_points(v1::GPTQ_ZERO_POINTS_FIELD_MASKED);
  EXPECT_EQ(ReasonOf(TryRegisterLayer(token, request, &layer)), "LAYER_CONFLICT");
}

TEST_F(GptqZeroPointsTest, UnknownValuesOfRequestsAreRefused) {
  const std::string token = OpenBySocket();
  v1::LayerInfo layer;
  const grpc::Status status =
      TryRegisterLayer(token, Of(kDiffer, static_cast<v1::GptqZeroPoints>(7)), &layer);
  EXPECT_EQ(ReasonOf(status), "UNKNOWN_ENUM");
  EXPECT_THAT(status.error_message(), HasSubstr("checkpoint.gptq_zero_points: 7"));
  v1::RegisterModelRequest request;
  request.set_path(Folder(kDiffer));
  request.set_gptq_zero_points(static_cast<v1::GptqZeroPoints>(7));
  const auto context = Context(token);
  const grpc::Status of_model = models_->RegisterModel(context.get(), request)->Finish();
  EXPECT_EQ(ReasonOf(of_model), "UNKNOWN_ENUM");
  EXPECT_THAT(of_model.error_message(), HasSubstr("gptq_zero_points: 7"));
}

TEST_F(GptqZeroPointsTest, EveryoneWhoRegistersALayerIsToldOfZeroPointsThatWrap) {
  const auto by_word = ElementsAre(AllOf(HasSubstr(absl::StrCat("tensor ", kModule, ".qzeros: 29 of ")),
                                         HasSubstr("with a carry into the next of their word (word)")));
  const auto by_field = ElementsAre(AllOf(HasSubstr(absl::StrCat("tensor ", kModule, ".qzeros: 29 of ")),
                                          HasSubstr("each alone (field-masked)")));
  const std::string one = OpenBySocket(), other = OpenBySocket();
  EXPECT_THAT(NotesOf(one, kDiffer, v1::GPTQ_ZERO_POINTS_UNSPECIFIED), by_word);
  EXPECT_THAT(NotesOf(other, kDiffer, v1::GPTQ_ZERO_POINTS_WORD), by_word) << "the layer was there";
  EXPECT_THAT(NotesOf(other, kDiffer, v1::GPTQ_ZERO_POINTS_FIELD_MASKED), by_field);
  EXPECT_THAT(NotesOf(one, kAgree, v1::GPTQ_ZERO_POINTS_UNSPECIFIED), IsEmpty());
  RegisterModel(OpenBySocket(), kDiffer, v1::GPTQ_ZERO_POINTS_WORD);
  EXPECT_THAT(plan_notes_, by_word);
  EXPECT_THAT(module_notes_, by_word);
  RegisterModel(OpenBySocket(), kDiffer, v1::GPTQ_ZERO_POINTS_FIELD_MASKED);
  EXPECT_THAT(plan_notes_, by_field);
  EXPECT_THAT(module_notes_, by_field);
  RegisterModel(OpenBySocket(), kAgree, v1::GPTQ_ZERO_POINTS_UNSPECIFIED);
  EXPECT_THAT(plan_notes_, IsEmpty());
  EXPECT_THAT(module_notes_, IsEmpty());
}

class ReadingLogTest : public GptqZeroPointsTest {
 protected:
  void SetUp() override {
    GptqZeroPointsTest::SetUp();
    StartLogging(LogFormat::kJson, LogLevel::kWarn);
    before_ = LogMessages(LogLevel::kWarn);
  }
  void TearDown() override {
    StopLogging();
    GptqZeroPointsTest::TearDown();
  }
  uint64_t Warnings() const { return LogMessages(LogLevel::kWarn) - before_; }

  uint64_t before_ = 0;
};

TEST_F(ReadingLogTest, ATensorIsLoggedOnceForEachReading) {
  Register(OpenBySocket(), kAgree, v1::GPTQ_ZERO_POINTS_UNSPECIFIED);
  EXPECT_EQ(Warnings(), 0u);
  for (uint32_t rank : {0, 1}) {  // each a load of its own
    v1::RegisterLayerRequest request = Of(kDiffer, v1::GPTQ_ZERO_POINTS_UNSPECIFIED);
    request.mutable_checkpoint()->mutable_slice()->mutable_rows()->mutable_rank()->set_rank(rank);
    request.mutable_checkpoint()->mutable_slice()->mutable_rows()->mutable_rank()->set_size(2);
    EXPECT_THAT(NotesOf(OpenBySocket(), request), SizeIs(1));
  }
  EXPECT_EQ(Warnings(), 1u);
  RegisterModel(OpenBySocket(), kDiffer, v1::GPTQ_ZERO_POINTS_UNSPECIFIED);
  EXPECT_EQ(Warnings(), 1u);
  RegisterModel(OpenBySocket(), kDiffer, v1::GPTQ_ZERO_POINTS_FIELD_MASKED);
  EXPECT_EQ(Warnings(), 2u);
  Register(OpenBySocket(), kDiffer, v1::GPTQ_ZERO_POINTS_FIELD_MASKED);
  EXPECT_EQ(Warnings(), 2u);
}

TEST_F(ReadingLogTest, AModelAloneIsLoggedToo) {
  RegisterModel(OpenBySocket(), kDiffer, v1::GPTQ_ZERO_POINTS_UNSPECIFIED);
  EXPECT_EQ(Warnings(), 1u);
}

TEST_F(ReadingLogTest, TheOldestNoteIsForgottenFirst) {
  NoteLog log(2);
  log.Write("p", "m", {"1", "2"});
  log.Write("p", "m", {"1", "2"});
  EXPECT_EQ(Warnings(), 2u);
  log.Write("p", "other", {"2"});  // forgets 1
  EXPECT_EQ(Warnings(), 3u);
  log.Write("p", "m", {"2"});
  EXPECT_EQ(Warnings(), 3u);
  log.Write("p", "m", {"1"});
  log.Write("q", "m", {"1"});
  EXPECT_EQ(Warnings(), 5u);
}

TEST(GptqZeroPointsSettingTest, IsOneOfTheTwoNames) {
  TempDir directory;
  const auto load = [&directory](const char* value) {
    FlagValues flags = FlagsFor(directory);
    if (value != nullptr) flags["gptq_zero_points"] = value;
    return LoadConfig(flags, {[](const std::string&) { return std::nullopt; }, geteuid()});
  };
  EXPECT_EQ(load(nullptr)->config.node.reading.gptq_zero_points, GptqZeroPoints::kWord);
  EXPECT_EQ(load("word")->config.node.reading.gptq_zero_points, GptqZeroPoints::kWord);
  EXPECT_EQ(load("field-masked")->config.node.reading.gptq_zero_points, GptqZeroPoints::kFieldMasked);
  for (const char* bad : {"", "Word", "field_masked", "1"}) {
    const auto refused = load(bad);
    EXPECT_EQ(ExitCodeOf(refused.status()), kExitBadFlag) << bad;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("flag --gptq_zero_points")) << bad;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("is none of word, field-masked")) << bad;
  }
}

}  // namespace
}  // namespace gemmd

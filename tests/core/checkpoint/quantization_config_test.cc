// Where config.json may hold its quantization.
#include "core/checkpoint/model_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/model_plan.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kCase[] = "ct_pack_w4_g128_sym";
constexpr char kConfig[] = "quantization_config";

// A golden checkpoint whose config lies at the place `pointer`, "/text_config", and no longer at the top.
EditableCheckpoint Moved(const std::string& name, const std::string& pointer) {
  EditableCheckpoint checkpoint(name);
  const nlohmann::ordered_json quantization = checkpoint.config[kConfig];
  checkpoint.config.erase(kConfig);
  checkpoint.config[nlohmann::ordered_json::json_pointer(pointer)] = quantization;
  return checkpoint;
}

TEST(QuantizationConfigTest, OfThePartForTextIsReadLikeThatAtTheTop) {
  for (const char* pointer :
       {"/text_config/quantization_config", "/llm_config/quantization_config", "/language_config/quantization_config",
        "/thinker_config/text_config/quantization_config", "/text_config/compression_config"}) {
    SCOPED_TRACE(pointer);
    const TemporaryDirectory directory;
    Moved(kCase, pointer).Write(directory.path());
    const auto checkpoint = Checkpoint::Open(directory.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const auto expected = ListModules(CaseDirectory(kCase));
    EXPECT_EQ(*ListCandidates(**checkpoint), *expected);
    const auto layer = (*checkpoint)->ReadLayer(expected->front());
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_EQ(layer->format, "compressed-tensors");
  }
}

TEST(QuantizationConfigTest, OfModelOptIsMergedWithItsFile) {
  const TemporaryDirectory directory;
  const EditableCheckpoint checkpoint = Moved("modelopt_nvfp4_llama", "/text_config/quantization_config");
  checkpoint.Write(directory.path());
  const auto modules = ListModules(CaseDirectory("modelopt_nvfp4_llama"));
  const auto layer = ReadLayer(directory.path(), modules->front());
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->format, "modelopt");
}

// Of an image encoder, or deeper in another part: that is not the language model's.
TEST(QuantizationConfigTest, OfOtherPartsIsNone) {
  for (const char* pointer : {"/vision_config/quantization_config", "/vision_config/text_config/quantization_config"}) {
    const EditableCheckpoint checkpoint = Moved(kCase, pointer);
    const auto found = FindQuantizationConfig(checkpoint.config);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, nullptr);
  }
}

TEST(QuantizationConfigTest, TheTopOneIsTakenWhereAllAreEqual) {
  const Json config = Json::parse(R"({"text_config": {"quantization_config": {"b": 1, "a": [2]}},
      "quantization_config": {"a": [2], "b": 1}})");
  const auto found = FindQuantizationConfig(config);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, &config[kConfig]);
  // One without a field names none.
  const Json empty = Json::parse(R"({"quantization_config": {}, "text_config": {"quantization_config": {"a": 1}}})");
  EXPECT_EQ(*FindQuantizationConfig(empty).value(), Json::parse(R"({"a": 1})"));
}

TEST(QuantizationConfigTest, TwoThatDifferAreAnErrorWithBothKeys) {
  EditableCheckpoint checkpoint(kCase);
  checkpoint.config["thinker_config"]["text_config"][kConfig] = {{"quant_method", "awq"}};
  const TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  const absl::Status status = Checkpoint::Open(directory.path()).status();
  EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith((directory.path() / "config.json").string()),
                    HasSubstr(R"("thinker_config.text_config.quantization_config": expected the same as in)"),
                    HasSubstr(R"( "quantization_config", {"config_groups":)"),
                    EndsWith(R"(; got {"quant_method":"awq"})")))
      << status;
}

TEST(QuantizationConfigTest, OneThatIsNoObjectIsAnErrorWithItsKey) {
  const Json config = Json::parse(R"({"text_config": {"quantization_config": [4]}})");
  EXPECT_THAT(std::string(FindQuantizationConfig(config).status().message()),
              HasSubstr(R"("text_config.quantization_config": expected an object, got [4])"));
}

}  // namespace
}  // namespace gemmd

// Zero points of GPTQ version 1 that wrap, by both rules. What they become is worked out by hand, field by field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr ReadingOptions kWord{GptqZeroPoints::kWord};
constexpr ReadingOptions kFieldMasked{GptqZeroPoints::kFieldMasked};

using Numbers = std::vector<int>;

// Fields as a stream of bits, LSB first.
std::string Packed(int bits, const Numbers& fields) {
  std::string bytes(fields.size() * bits / 8, '\0');
  for (size_t i = 0; i < fields.size() * bits; ++i) {
    const int bit = fields[i / bits] >> (i % bits) & 1;
    bytes[i / 8] = static_cast<char>(bytes[i / 8] | bit << (i % 8));
  }
  return bytes;
}

// A module of K = N with one group, codes of 0 and scales of 1.
void AddModule(const std::string& module, int bits, const Numbers& stored, RawTensors& tensors) {
  const auto n = static_cast<int64_t>(stored.size());
  std::string ones;
  for (int64_t i = 0; i < n; ++i) ones += std::string("\x00\x3c", 2);
  tensors[module + ".qweight"] = {"I32", {n * bits / 32, n}, std::string(static_cast<size_t>(n * n * bits / 8), '\0')};
  tensors[module + ".qzeros"] = {"I32", {1, n * bits / 32}, Packed(bits, stored)};
  tensors[module + ".scales"] = {"F16", {1, n}, ones};
}

class WrappingCheckpoint {
 public:
  WrappingCheckpoint(const nlohmann::json& config, const RawTensors& tensors) {
    WriteFile(directory_.path() / "config.json", nlohmann::json{{"quantization_config", config}}.dump());
    WriteTensors(directory_.path() / "model.safetensors", tensors);
  }

  Numbers Read(const std::string& module, const ReadingOptions& options) const {
    const auto layer = ReadLayer(directory_.path(), module, nullptr, {}, {}, nullptr, options);
    EXPECT_TRUE(layer.ok()) << layer.status();
    return layer.ok() ? ZeroPointsOf(layer->tensor) : Numbers();
  }

  static Numbers ZeroPointsOf(const StandardTensor& tensor) {
    std::vector<int16_t> wide(tensor.zero_points.size() / sizeof(int16_t));
    std::memcpy(wide.data(), tensor.zero_points.data(), tensor.zero_points.size());
    return {wide.begin(), wide.end()};
  }

 private:
  const TemporaryDirectory directory_;
};

nlohmann::json Gptq(int bits, const char* version = "gptq") {
  return {{"quant_method", "gptq"}, {"bits", bits}, {"group_size", -1}, {"sym", false}, {"checkpoint_format", version}};
}

WrappingCheckpoint OneModule(const nlohmann::json& config, int bits, const Numbers& stored) {
  RawTensors tensors;
  AddModule("a", bits, stored, tensors);
  return {config, tensors};
}

// 15 + 1 is 0 and carries; 15 + 1 and a carry is 1 and carries on; what the last field carries is lost.
const Numbers kFourBits = {15, 3, 15, 15, 7, 14, 0, 15};
const Numbers kFourBitsByWord = {0, 5, 0, 1, 9, 15, 1, 0};
const Numbers kFourBitsByField = {0, 4, 0, 0, 8, 15, 1, 0};

TEST(GptqZeroPointsTest, OfFourBitsCarryUnlessTheyAreMasked) {
  const WrappingCheckpoint checkpoint = OneModule(Gptq(4), 4, kFourBits);
  EXPECT_EQ(checkpoint.Read("a", kWord), kFourBitsByWord);
  EXPECT_EQ(checkpoint.Read("a", {}), kFourBitsByWord);
  EXPECT_EQ(checkpoint.Read("a", kFieldMasked), kFourBitsByField);
}

TEST(GptqZeroPointsTest, OfTwoBitsCarryUnlessTheyAreMasked) {
  // The tenth, 2, is 2 + 1 and a carry: 0, and carries on.
  const WrappingCheckpoint checkpoint = OneModule(Gptq(2), 2, {3, 0, 3, 3, 3, 1, 2, 3, 3, 2, 0, 0, 0, 0, 0, 3});
  EXPECT_THAT(checkpoint.Read("a", kWord), ElementsAre(0, 2, 0, 1, 1, 3, 3, 0, 1, 0, 2, 1, 1, 1, 1, 0));
  EXPECT_THAT(checkpoint.Read("a", kFieldMasked), ElementsAre(0, 1, 0, 0, 0, 2, 3, 0, 0, 3, 1, 1, 1, 1, 1, 0));
}

TEST(GptqZeroPointsTest, OfEightBitsCarryUnlessTheyAreMasked) {
  const WrappingCheckpoint checkpoint = OneModule(Gptq(8), 8, {255, 255, 9, 255});
  EXPECT_THAT(checkpoint.Read("a", kWord), ElementsAre(0, 1, 11, 0));
  EXPECT_THAT(checkpoint.Read("a", kFieldMasked), ElementsAre(0, 0, 10, 0));
}

TEST(GptqZeroPointsTest, OfThreeBitsNeverCarry) {
  Numbers stored;
  Numbers expected;
  for (int i = 0; i < 4; ++i) {
    for (const int field : {7, 7, 0, 6, 7, 1, 5, 7}) stored.push_back(field);
    for (const int zero_point : {0, 0, 1, 7, 0, 2, 6, 0}) expected.push_back(zero_point);
  }
  const WrappingCheckpoint checkpoint = OneModule(Gptq(3), 3, stored);
  EXPECT_THAT(checkpoint.Read("a", kWord), ElementsAreArray(expected));
  EXPECT_THAT(checkpoint.Read("a", kFieldMasked), ElementsAreArray(expected));
}

TEST(GptqZeroPointsTest, AreTheSameByBothRulesWhereTheLastFieldOfAWordAloneWraps) {
  const WrappingCheckpoint checkpoint =
      OneModule(Gptq(4), 4, {1, 2, 3, 4, 5, 6, 7, 15, 0, 14, 13, 12, 11, 10, 9, 15});
  const Numbers expected = {2, 3, 4, 5, 6, 7, 8, 0, 1, 15, 14, 13, 12, 11, 10, 0};
  EXPECT_EQ(checkpoint.Read("a", kWord), expected);
  EXPECT_EQ(checkpoint.Read("a", kFieldMasked), expected);
}

TEST(GptqZeroPointsTest, OfVersion2AreAsTheyAreStored) {
  const WrappingCheckpoint checkpoint = OneModule(Gptq(4, "gptq_v2"), 4, kFourBits);
  EXPECT_EQ(checkpoint.Read("a", kWord), kFourBits);
  EXPECT_EQ(checkpoint.Read("a", kFieldMasked), kFourBits);
}

TEST(GptqZeroPointsTest, AreReadSoInAutoRoundsFilesOfVersion1) {
  for (const char* packing : {"auto_round:auto_gptq", "auto_round:gptq"}) {
    const WrappingCheckpoint checkpoint =
        OneModule({{"quant_method", "auto-round"}, {"packing_format", packing}, {"bits", 4}, {"group_size", -1},
                   {"sym", false}},
                  4, kFourBits);
    EXPECT_EQ(checkpoint.Read("a", kWord), kFourBitsByWord) << packing;
    EXPECT_EQ(checkpoint.Read("a", kFieldMasked), kFourBitsByField) << packing;
  }
}

TEST(GptqZeroPointsTest, AreReadSoInEveryPartOfAModule) {
  RawTensors tensors;
  for (const char* part : {"mlp.gate_proj", "mlp.up_proj"}) AddModule(part, 4, kFourBits, tensors);
  const WrappingCheckpoint checkpoint(Gptq(4), tensors);
  Numbers expected = kFourBitsByField;
  expected.insert(expected.end(), kFourBitsByField.begin(), kFourBitsByField.end());
  EXPECT_EQ(checkpoint.Read("mlp.gate_up_proj", kFieldMasked), expected);
}

// Zero points of a golden case that differ between the rules.
int DifferencesOf(const std::string& name) {
  const std::string module = ListModules(CaseDirectory(name))->front();
  const auto by_word = ReadLayer(CaseDirectory(name), module, nullptr, {}, {}, nullptr, kWord);
  const auto by_field = ReadLayer(CaseDirectory(name), module, nullptr, {}, {}, nullptr, kFieldMasked);
  if (!by_word.ok() || !by_field.ok()) return -1;
  EXPECT_EQ(by_word->tensor.codes, by_field->tensor.codes);
  const Numbers one = WrappingCheckpoint::ZeroPointsOf(by_word->tensor);
  const Numbers other = WrappingCheckpoint::ZeroPointsOf(by_field->tensor);
  int different = 0;
  for (size_t i = 0; i < one.size(); ++i) different += one[i] == other.at(i) ? 0 : 1;
  return different;
}

// Counted in the files by a program of its own.
TEST(GptqZeroPointsTest, OfGoldenFilesDifferWhereAFieldBelowTheLastWraps) {
  for (const auto& [name, different] : {std::pair("gptq_v1_gptqmodel_b2_g32_asym_borrow", 46),
                                        std::pair("gptq_v1_gptqmodel_b4_g64_asym_borrow", 32),
                                        std::pair("autoround_autogptq_b4_g32_asym_borrow", 28),
                                        std::pair("gptq_v1_autogptq_b4_zero0_writerbug", 34),
                                        std::pair("gptq_v1_gptqmodel_b3_g32_asym_wrap", 0),
                                        std::pair("gptq_v1_autogptq_b2_g32_asym", 0),
                                        std::pair("gptq_v1_autogptq_b4_g32_asym", 0),
                                        std::pair("gptq_v1_autogptq_b8_g64_asym", 0),
                                        std::pair("gptq_v1_autogptq_b4_descact_g64", 0),
                                        std::pair("gptq_v1_autogptq_b4_g128_sym", 0),
                                        std::pair("gptq_mislabelled_v2_zeros_as_v1", 0),
                                        std::pair("autoround_autogptq_b4_g64_sym", 0)}) {
    EXPECT_EQ(DifferencesOf(name), different) << name;
  }
}

}  // namespace
}  // namespace gemmd

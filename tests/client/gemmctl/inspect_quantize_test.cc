// gemmctl inspect --quantize.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/quantize_to.h"
#include "core/checkpoint/checkpoint.h"
#include "tests/client/gemmctl/inspection.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd::gemmctl {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class InspectQuantizedTest : public testing::Test {
 protected:
  // Two layers of 32 x 72 and a head of 8 x 64.
  InspectQuantizedTest() {
    RawTensors tensors;
    uint32_t code = 0x3c00;
    const auto linear = [&code](int64_t n, int64_t k) {
      RawTensor tensor{"F16", {n, k}, {}};
      for (int64_t i = 0; i < n * k; ++i, code = 0x3000 + code * 7 % 0x1000) {
        tensor.bytes.append({static_cast<char>(code), static_cast<char>(code >> 8)});
      }
      return tensor;
    };
    for (const char* name : {"model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj"}) {
      tensors[absl::StrCat(name, ".weight")] = linear(32, 72);
    }
    tensors["lm_head.weight"] = linear(8, 64);
    WriteTensors(directory_.path() / "model.safetensors", tensors);
    WriteFile(directory_.path() / "config.json", "{}");
  }
  ToolRun Run(const std::string& spec, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"inspect", directory_.path().string(), "--quantize", spec});
    return Tool(more);
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path())) {
      files.push_back(entry.path().filename().string());
    }
    return files;
  }

  TemporaryDirectory directory_;
};

TEST_F(InspectQuantizedTest, ShowsWhatRegisteringWouldGiveAndWritesNothing) {
  const std::vector<std::string> before = Files();
  const ToolRun run = Run("int4,group=32", {"-o", "json"});
  ASSERT_EQ(run.code, kDone) << run.err;
  const json report = json::parse(run.out);
  ASSERT_EQ(report["modules"].size(), 3u);
  QuantizeTarget target{.spec = {.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 32}};
  const QuantizeOnRead quantize{target, nullptr, nullptr};
  for (const json& module : report["modules"]) {
    const auto layer = ReadLayer(directory_.path(), module["module"].get<std::string>(), nullptr, {}, {}, &quantize);
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_EQ(module["scheme"], "int4, float16 scale per 1 x 32");
    EXPECT_EQ(module["layer_bytes"], layer->tensor.total_bytes());
    EXPECT_EQ(module["quantized"], true);
    EXPECT_EQ(module["quantization_error"], layer->quantized->error.relative());
  }
  EXPECT_EQ(DeviceOf(report, "sm_90a")["runs"], true);
  ASSERT_EQ(report["notes"].size(), 1u) << report["notes"];
  EXPECT_EQ(report["notes"][0], "K = 72 is no multiple of 32: the last scale of each row is for 8 columns "
                                "(model.layers.0.mlp.down_proj and 1 more)");
  const std::string text = Run("int4,group=32").out;
  EXPECT_THAT(text, HasSubstr("for this report only; relative error of the weights "));
  EXPECT_THAT(text, HasSubstr("ERROR"));
  EXPECT_EQ(Files(), before);
  EXPECT_THAT(Tool({"inspect", directory_.path().string()}).out, testing::Not(HasSubstr("ERROR")));
}

TEST_F(InspectQuantizedTest, SaysWhatDevicesMakeOfTheActivations) {
  const auto why = [this](const char* spec) {
    return DeviceOf(json::parse(Run(spec, {"-o", "json"}).out), "cpu")["why"].get<std::string>();
  };
  EXPECT_EQ(why("w4a16"), "");
  EXPECT_EQ(why("w8a8"), "x of 16 and 32 bits becomes int8");
  EXPECT_THAT(why("mxfp4,x=e4m3,x_group=32,x_scale=e8m0"), HasSubstr("used as it is: "));
}

// Nobody gets by a preset's name what no device does.
TEST_F(InspectQuantizedTest, PresetsAskForActivationsThatDevicesMakeOrForNone) {
  for (const auto& [name, meaning] : client::QuantizePresets()) {
    const json report = json::parse(Run(name, {"-o", "json"}).out);
    const std::string why = DeviceOf(report, "cpu")["why"];
    EXPECT_THAT(why, testing::AnyOf("", testing::StartsWith("x of 16 and 32 bits becomes "))) << name;
    EXPECT_EQ(DeviceOf(report, "sm_90a")["runs"], true) << name;
    EXPECT_EQ(why.empty(), report["modules"][0]["activations"] == "as given") << name;
  }
}

TEST_F(InspectQuantizedTest, NamesWhatCannotBeQuantized) {
  EXPECT_EQ(Run("int9").code, kUsage);
  EXPECT_EQ(Run("int4,group=32,channel").code, kUsage);
  EXPECT_EQ(Run("").code, kUsage);
  const ToolRun unsupported = Run("int4,scale=none,secondary=tensor");
  EXPECT_EQ(unsupported.code, kFailed);
  EXPECT_THAT(unsupported.err, HasSubstr("--quantize: "));
  const ToolRun quantized = Tool({"inspect", CaseDirectory(kGptqCase).string(), "--quantize", "int4", "-o", "json"});
  EXPECT_EQ(quantized.code, kFailed);
  const json problems = json::parse(quantized.out)["problems"];
  ASSERT_EQ(problems.size(), 1u) << "one problem, of all modules";
  EXPECT_EQ(problems[0]["reason"], "ALREADY_QUANTIZED");
}

}  // namespace
}  // namespace gemmd::gemmctl

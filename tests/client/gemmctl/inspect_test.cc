// gemmctl inspect on the golden checkpoints: what it says of layers that can be read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/gemmctl/inspect_checkpoint.h"
#include "client/gemmctl/inspect_text.h"
#include "core/checkpoint/checkpoint.h"
#include "tests/client/gemmctl/inspection.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd::gemmctl {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<std::string> GoldenCases() {
  std::vector<std::string> cases;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(GEMMD_TEST_DATA) + "/checkpoints")) {
    if (entry.is_directory()) cases.push_back(entry.path().filename().string());
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

TEST(InspectTest, AgreesWithTheReaderOnEveryGoldenCheckpoint) {
  int modules = 0;
  for (const std::string& name : GoldenCases()) {
    SCOPED_TRACE(name);
    const Inspection inspection = Inspect(CaseDirectory(name));
    const auto listed = ListModules(CaseDirectory(name));
    ASSERT_TRUE(listed.ok()) << listed.status();
    std::map<std::string, json> reports;
    for (const json& module : inspection.report["modules"]) reports[module["module"]] = module;
    size_t problems = 0;
    for (const std::string& module : *listed) {
      const auto layer = ReadLayer(CaseDirectory(name), module);
      ASSERT_EQ(layer.ok(), reports.count(module) == 1) << module << layer.status();
      if (!layer.ok()) {
        ++problems;
        continue;
      }
      ++modules;
      EXPECT_EQ(reports[module]["exporter"], layer->format);
      EXPECT_EQ(reports[module]["n"], layer->tensor.shape.n);
      EXPECT_EQ(reports[module]["k"], layer->tensor.shape.k);
      EXPECT_EQ(reports[module]["experts"], layer->tensor.shape.experts);
      EXPECT_EQ(reports[module]["layer_bytes"], layer->tensor.total_bytes());
      EXPECT_GT(reports[module]["stored_bytes"].get<uint64_t>(), 0u);
    }
    EXPECT_EQ(inspection.report["problems"].size(), problems);
    EXPECT_EQ(inspection.code, problems == 0 ? kDone : kFailed);
  }
  EXPECT_GT(modules, 100);
}

TEST(InspectTest, SaysWhichDevicesRunALayerAndWithWhichTypes) {
  const json report = Inspect(CaseDirectory(kGptqCase)).report;
  EXPECT_EQ(DeviceOf(report, "cpu")["kernels"], "reference");
  const json turing = DeviceOf(report, "sm_75");
  EXPECT_EQ(turing["runs"], false);
  EXPECT_THAT(turing["why"].get<std::string>(), HasSubstr("TF32"));
  EXPECT_EQ(DeviceOf(report, "sm_80")["kernels"], "generic");
  const json hopper = DeviceOf(report, "sm_90a");
  EXPECT_EQ(hopper["kernels"], "specialised");
  EXPECT_THAT(hopper["specialised"].get<std::vector<std::string>>(),
              testing::UnorderedElementsAre("bfloat16", "float16"));
  EXPECT_THAT(hopper["activations"].get<std::vector<std::string>>(),
              testing::Contains("float8_e4m3"));
}

TEST(InspectTest, WideActivationsOfLayersThatQuantizeThemAreServedByTheirKernelsToo) {
  const json hopper = DeviceOf(Inspect(CaseDirectory("ct_int8_channel_sym")).report, "sm_90a");
  EXPECT_THAT(hopper["specialised"].get<std::vector<std::string>>(),
              testing::UnorderedElementsAre("int8", "bfloat16", "float16", "float32"));
}

TEST(InspectTest, SaysWhatTheCpuMakesOfWideActivations) {
  const auto why = [](const char* name) {
    return DeviceOf(Inspect(CaseDirectory(name)).report, "cpu").value("why", "");
  };
  EXPECT_EQ(why(kGptqCase), "") << "asks for none";
  EXPECT_EQ(why("ct_int8_channel_sym"), "x of 16 and 32 bits becomes int8");
  EXPECT_THAT(why("ct_nvfp4_n50_k80"), HasSubstr("used as it is: only e4m3, e5m2 and int8"));
}

TEST(InspectTest, ExpertsAreOfferedWideActivationsOnly) {
  const json report = Inspect(CaseDirectory("gptoss_mxfp4_hf")).report;
  EXPECT_THAT(DeviceOf(report, "sm_80")["activations"].get<std::vector<std::string>>(),
              testing::UnorderedElementsAre("float32", "float16", "bfloat16"));
  EXPECT_EQ(report["modules"][0]["experts"], 3);
}

TEST(InspectTest, SaysWhichPartsStaySingle) {
  EditableCheckpoint checkpoint(kGptqCase);
  checkpoint.config = {{"attention_k_eq_v", true}};
  checkpoint.tensors = PlainLinears({"l.0.q_proj", "l.0.k_proj"}, 0);
  TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  const Inspection inspection = Inspect(directory.path());
  EXPECT_EQ(inspection.code, kDone);
  ASSERT_EQ(inspection.report["notes"].size(), 1u);
  EXPECT_THAT(Tool({"inspect", directory.path().string()}).out,
              HasSubstr("note        module l.0: q_proj, k_proj stay single"));
}

// Checkpoints in a download cache are folders of links to files elsewhere.
TEST(InspectTest, FollowsLinksThatLeaveTheFolder) {
  TemporaryDirectory directory;
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::create_symlink(CaseDirectory(kGptqCase) / name, directory.path() / name);
  }
  EXPECT_EQ(Inspect(directory.path()).code, kDone);
}

TEST(InspectTest, ModulesThatDifferInNumbersShareALine) {
  const std::string directory = CaseDirectory("modelopt_nvfp4_qwen3moe").string();
  const ToolRun grouped = Tool({"inspect", directory});
  EXPECT_EQ(grouped.code, kDone);
  EXPECT_THAT(grouped.out, HasSubstr("model.layers.*.mlp.experts.*.down_proj"));
  EXPECT_THAT(grouped.out, testing::Not(HasSubstr("experts.0.down_proj")));
  EXPECT_THAT(grouped.out, HasSubstr("13 of 13 modules"));
  EXPECT_THAT(grouped.out, HasSubstr("e2m1, e4m3 scale per 1 x 16 and tensor"));
  const ToolRun each = Tool({"inspect", directory, "--all"});
  EXPECT_THAT(each.out, HasSubstr("experts.0.down_proj"));
  EXPECT_THAT(each.out, testing::Not(HasSubstr("*.mlp")));
}

StandardTensor SomeInt4() {
  StandardTensor tensor;
  tensor.spec.weight = IntegerFormat(4);
  tensor.spec.scale = kBFloat16;
  tensor.spec.scale_block_k = 128;
  tensor.shape = {1, 64, 256};
  return tensor;
}

TEST(SchemeTextTest, TellsSchemesApart) {
  StandardTensor tensor = SomeInt4();
  EXPECT_EQ(SchemeText(tensor), "int4, bfloat16 scale per 1 x 128");
  EXPECT_EQ(ActivationText(tensor), "as given");
  tensor.spec.zero_point = ZeroPointKind::kInteger;
  tensor.spec.has_group_index = true;
  tensor.spec.bias = kFloat16;
  EXPECT_EQ(SchemeText(tensor),
            "int4 with zero points, bfloat16 scale per 1 x 128, reordered columns, bias");
  tensor.spec.scale_block_n = 0;
  tensor.spec.scale_block_k = 0;
  tensor.spec.secondary_scale = SecondaryScaleKind::kChannel;
  EXPECT_THAT(SchemeText(tensor), HasSubstr("scale per tensor and channel"));
  tensor.spec.scale_block_n = 1;
  EXPECT_THAT(SchemeText(tensor), HasSubstr("scale per channel"));
  tensor.spec.activation = kFloat8E4M3;
  tensor.spec.activation_scale = ActivationScaleKind::kDynamicGroup;
  tensor.spec.activation_group = 128;
  EXPECT_EQ(ActivationText(tensor), "e4m3, per 128 columns");
}

// Factors that do not go into the weights' scales: x is multiplied, on every GPU that has a kernel.
TEST(DevicesForTest, AnInputScaleKeepsNoGpuAway) {
  StandardTensor tensor = SomeInt4();
  tensor.scale_columns = 2;
  tensor.scales.resize(64 * 2 * 2, std::byte{0x3f});
  const std::vector<DeviceSupport> plain = DevicesFor(tensor);
  tensor.has_input_scale = true;
  tensor.input_scale.resize(256 * sizeof(float));
  for (int64_t k = 0; k < 256; ++k) {
    const float factor = k == 7 ? 3 : 1;
    std::memcpy(tensor.input_scale.data() + k * sizeof(float), &factor, sizeof(factor));
  }
  const std::vector<DeviceSupport> scaled = DevicesFor(tensor);
  ASSERT_EQ(scaled.size(), plain.size());
  for (size_t i = 0; i < scaled.size(); ++i) {
    EXPECT_EQ(scaled[i].kernels, plain[i].kernels) << scaled[i].device;
    EXPECT_EQ(scaled[i].activations, plain[i].activations) << scaled[i].device;
    EXPECT_EQ(scaled[i].specialised, plain[i].specialised) << scaled[i].device;
  }
}

}  // namespace
}  // namespace gemmd::gemmctl

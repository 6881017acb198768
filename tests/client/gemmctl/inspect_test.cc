// gemmctl inspect on the golden checkpoints and on damaged copies of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/gemmctl/inspect_checkpoint.h"
#include "client/gemmctl/inspect_text.h"
#include "client/quantize_to.h"
#include "core/checkpoint/checkpoint.h"
#include "tests/client/gemmctl/tool.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd::gemmctl {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kGptqCase[] = "gptq_v1_autogptq_b4_g128_sym";
constexpr char kDownProj[] = "model.layers.0.mlp.down_proj";

struct Inspection {
  int code = -1;
  json report;
};

Inspection Inspect(const std::filesystem::path& directory) {
  const ToolRun run = Tool({"inspect", directory.string(), "-o", "json"});
  return {run.code, json::parse(run.out)};
}

// Of a checkpoint with exactly one.
json OnlyProblem(const std::filesystem::path& directory) {
  const Inspection inspection = Inspect(directory);
  EXPECT_EQ(inspection.code, kFailed);
  EXPECT_EQ(inspection.report["problems"].size(), 1u) << inspection.report["problems"].dump(2);
  return inspection.report["problems"].empty() ? json() : inspection.report["problems"][0];
}

// The answer of `device` for the first module.
json DeviceOf(const json& report, const std::string& device) {
  const json& module = report["modules"][0];
  for (const json& answer : report["device_sets"][module["device_set"].get<size_t>()]) {
    if (answer["device"] == device) return answer;
  }
  ADD_FAILURE() << "no device " << device;
  return {};
}

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

TEST(InspectTest, ExpertsAreOfferedWideActivationsOnly) {
  const json report = Inspect(CaseDirectory("gptoss_mxfp4_hf")).report;
  EXPECT_THAT(DeviceOf(report, "sm_80")["activations"].get<std::vector<std::string>>(),
              testing::UnorderedElementsAre("float32", "float16", "bfloat16"));
  EXPECT_EQ(report["modules"][0]["experts"], 3);
}

TEST(InspectTest, NamesFileModuleTensorExpectedAndGot) {
  EditableCheckpoint checkpoint(kGptqCase);
  RawTensor& scales = checkpoint.tensors[std::string(kDownProj) + ".scales"];
  scales.shape[0] += 1;
  scales.bytes += scales.bytes.substr(0, scales.bytes.size() / (scales.shape[0] - 1));
  TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  json problem = OnlyProblem(directory.path());
  EXPECT_EQ(problem["file"], "model.safetensors");
  EXPECT_EQ(problem["module"], kDownProj);
  EXPECT_EQ(problem["tensor"], std::string(kDownProj) + ".scales");
  EXPECT_EQ(problem["reason"], "BAD_CHECKPOINT");
  EXPECT_THAT(problem["message"].get<std::string>(), HasSubstr("expected"));
  EXPECT_THAT(problem["message"].get<std::string>(), HasSubstr("got"));
  const ToolRun text = Tool({"inspect", directory.path().string()});
  EXPECT_EQ(text.code, kFailed);
  EXPECT_THAT(text.out, HasSubstr("PROBLEMS\n  BAD_CHECKPOINT  " +
                                  (directory.path() / "model.safetensors").string() +
                                  ": module " + kDownProj));
}

TEST(InspectTest, NamesAFileThatIsMissingAndATensorThatIsNowhere) {
  EditableCheckpoint checkpoint(kGptqCase);
  TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  json weight_map;
  for (const auto& [name, tensor] : checkpoint.tensors) weight_map[name] = "model.safetensors";
  weight_map["model.norm.weight"] = "model.safetensors";
  weight_map["lm_head.weight"] = "absent.safetensors";
  WriteFile(directory.path() / "model.safetensors.index.json",
            json{{"weight_map", weight_map}}.dump());
  const Inspection inspection = Inspect(directory.path());
  EXPECT_EQ(inspection.code, kFailed);
  ASSERT_EQ(inspection.report["problems"].size(), 2u) << inspection.report["problems"].dump(2);
  EXPECT_EQ(inspection.report["problems"][0]["file"], "absent.safetensors");
  EXPECT_EQ(inspection.report["problems"][1]["tensor"], "model.norm.weight");
  EXPECT_EQ(inspection.report["modules"].size(), 1u) << "the module itself is whole";
  EXPECT_EQ(inspection.report["tensors"], checkpoint.tensors.size());
}

TEST(InspectTest, MissingExpertsAndPartsAreProblemsOfTheModel) {
  EditableCheckpoint experts("modelopt_fp8_qwen3moe");
  experts.config["num_experts"] = 4;
  EditableCheckpoint parts(kGptqCase);
  parts.config = json::object();
  parts.tensors =
      PlainLinears({"l.0.q_proj", "l.0.k_proj", "l.0.v_proj", "l.1.q_proj", "l.1.k_proj"}, 0);
  EditableCheckpoint none = parts;
  none.tensors = {{"norm.weight", {"BF16", {4}, std::string(8, 0)}}};
  struct Case {
    const EditableCheckpoint& checkpoint;
    const char* module;
    const char* message;
  };
  for (const auto& [checkpoint, module, message] :
       {Case{experts, "model.layers.0.mlp.experts", "4 (num_experts); got 3"},
        Case{parts, "l.1.v_proj", "expected beside q_proj"},
        Case{none, "", "names no quantization"}}) {
    TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    json problem = OnlyProblem(directory.path());
    EXPECT_EQ(problem["module"], module);
    EXPECT_THAT(problem["message"].get<std::string>(), HasSubstr(message));
  }
}

TEST(InspectTest, NamesEverythingThatTheModelLacks) {
  EditableCheckpoint checkpoint(kGptqCase);
  checkpoint.config = {{"num_hidden_layers", 4}, {"num_experts", 3}};
  checkpoint.tensors = PlainLinears(
      {"layers.0.q_proj", "layers.0.k_proj", "layers.0.v_proj", "layers.0.o_proj",
       "layers.1.q_proj", "layers.1.v_proj", "layers.3.experts.0.w2", "layers.3.experts.1.w2"}, 0);
  TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  const Inspection inspection = Inspect(directory.path());
  EXPECT_EQ(inspection.code, kFailed);
  std::vector<std::string> messages;
  for (const json& problem : inspection.report["problems"]) messages.push_back(problem["message"]);
  EXPECT_THAT(messages, testing::UnorderedElementsAre(
                            HasSubstr("3 (num_experts); got 2"),
                            HasSubstr("module layers.1.k_proj: expected"),
                            HasSubstr("module layers.1.o_proj: expected"),
                            HasSubstr("there are none in layers.2")));
}

// Only its scale says that a module of 8-bit weights is quantized; without it, or with the scales alone, it is still one
// that should be there.
TEST(InspectTest, AModuleWithoutItsScaleOrItsCodesIsAProblem) {
  struct Case {
    const char* checkpoint;
    const char* module;
    const char* gone;
  };
  for (const auto& [name, module, gone] :
       {Case{"ct_fp8_tensor_static", kDownProj, ".weight_scale"},
        Case{"ct_int8_channel_sym", kDownProj, ".weight_scale"},
        Case{"encoded_fp8_experts_block", "model.layers.0.mlp.experts.1.w2", ".weight_scale_inv"},
        Case{"encoded_fp8_stack_shared", "model.layers.0.mlp.experts.down_proj", "_scale_inv"},
        Case{"gptoss_mxfp4_hf", "model.layers.0.mlp.experts.down_proj", "_blocks"}}) {
    EditableCheckpoint checkpoint(name);
    ASSERT_EQ(checkpoint.tensors.erase(std::string(module) + gone), 1u) << name;
    TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    json problem = OnlyProblem(directory.path());
    EXPECT_EQ(problem["module"], module);
  }
}

TEST(InspectTest, TellsAFaultOfTheConfigOnce) {
  EditableCheckpoint checkpoint("modelopt_fp8_llama");
  checkpoint.config.erase("quantization_config");
  checkpoint.modelopt_config["quantization"]["group_size"] = "sixteen";
  TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  json problem = OnlyProblem(directory.path());
  EXPECT_EQ(problem["file"], "hf_quant_config.json");
  EXPECT_EQ(problem["module"], kDownProj);
  EXPECT_THAT(problem["message"].get<std::string>(),
              HasSubstr("\"group_size\": expected an integer below 2^63, got \"sixteen\"; and so for 6 more modules"));
}

// What registration would say of a joined layer, without reading it.
TEST(InspectTest, SaysWhichPartsDoNotFitTogether) {
  EditableCheckpoint checkpoint(kGptqCase);
  checkpoint.config = json::object();
  checkpoint.tensors = PlainLinears({"l.0.gate_proj", "l.0.up_proj"}, 0);
  checkpoint.tensors["l.0.up_proj.weight"] = {"BF16", {2, 2}, std::string(8, 0)};
  TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  json problem = OnlyProblem(directory.path());
  EXPECT_EQ(problem["module"], "l.0.gate_up_proj");
  EXPECT_EQ(problem["reason"], "BAD_CHECKPOINT");
  EXPECT_EQ(problem["message"].get<std::string>(),
            ReadLayer(directory.path(), "l.0.gate_up_proj").status().message());
}

// Registration refuses it, and inspect without joining anything says the same.
TEST(InspectTest, GateAndUpOfDifferentNAreOneProblem) {
  EditableCheckpoint checkpoint(kGptqCase);
  checkpoint.config = json::object();
  checkpoint.tensors = PlainLinears({"l.0.gate_proj", "l.0.up_proj"}, 0);
  checkpoint.tensors["l.0.up_proj.weight"] = {"BF16", {1, 4}, std::string(8, 0)};
  TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  json problem = OnlyProblem(directory.path());
  EXPECT_EQ(problem["module"], "l.0.gate_up_proj");
  EXPECT_EQ(problem["message"].get<std::string>(),
            ReadLayer(directory.path(), "l.0.gate_up_proj").status().message());
}

TEST(InspectTest, CountsOfExpertsAreToldOnceForBothOfTheirStacks) {
  EditableCheckpoint checkpoint("gptoss_mxfp4_hf");
  checkpoint.config["num_local_experts"] = 7;
  TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  EXPECT_THAT(OnlyProblem(directory.path())["message"].get<std::string>(), HasSubstr("7 (num_local_experts); got 3"));
}

TEST(InspectTest, ATensorOfTheIndexThatNoFileHoldsIsToldOnce) {
  EditableCheckpoint checkpoint(kGptqCase);
  TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  json weight_map = {{"model.layers.1.mlp.down_proj.qweight", "model-1.safetensors"}};
  for (const auto& [name, tensor] : checkpoint.tensors) weight_map[name] = "model-1.safetensors";
  std::filesystem::rename(directory.path() / "model.safetensors", directory.path() / "model-1.safetensors");
  WriteFile(directory.path() / "model.safetensors.index.json", json{{"weight_map", weight_map}}.dump());
  json problem = OnlyProblem(directory.path());
  EXPECT_EQ(problem["tensor"], "model.layers.1.mlp.down_proj.qweight");
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

TEST(InspectTest, AMissingFileIsOneProblemOfAllItsModules) {
  for (const bool quantized : {true, false}) {
    EditableCheckpoint checkpoint(kGptqCase);
    if (!quantized) {
      checkpoint.config.erase("quantization_config");
      checkpoint.tensors = PlainLinears({"a", "b"}, 0);
    }
    TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    json weight_map;
    for (const auto& [name, tensor] : checkpoint.tensors) weight_map[name] = "absent.safetensors";
    std::filesystem::remove(directory.path() / "model.safetensors");
    WriteFile(directory.path() / "model.safetensors.index.json",
              json{{"weight_map", weight_map}}.dump());
    json problem = OnlyProblem(directory.path());
    EXPECT_EQ(problem["file"], "absent.safetensors");
    const std::string message = problem["message"];
    EXPECT_THAT(message,
                HasSubstr("absent.safetensors: expected by the index, there is no such file"));
    EXPECT_EQ(message.find(std::string("1 module needs it, ") + kDownProj) != std::string::npos,
              quantized)
        << message;
  }
}

// Two layers in two files, the second of which is missing: one problem, and the first is whole.
TEST(InspectTest, AMissingFileHidesNoModuleOfTheOthers) {
  for (const bool quantized : {true, false}) {
    EditableCheckpoint checkpoint(kGptqCase);
    RawTensors second;
    if (quantized) {
      for (const auto& [name, tensor] : checkpoint.tensors) {
        second["model.layers.1" + name.substr(std::strlen("model.layers.0"))] = tensor;
      }
    } else {
      checkpoint.config.erase("quantization_config");
      checkpoint.tensors = PlainLinears({kDownProj}, 0);
      checkpoint.tensors["model.layers.0.ln.weight"] = {"BF16", {4}, std::string(8, 0)};
      second = PlainLinears({"model.layers.1.mlp.down_proj", "model.layers.1.ln", "norm"}, 0);
    }
    TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    json weight_map;
    for (const auto& [name, tensor] : checkpoint.tensors) weight_map[name] = "model.safetensors";
    for (const auto& [name, tensor] : second) weight_map[name] = "absent.safetensors";
    WriteFile(directory.path() / "model.safetensors.index.json",
              json{{"weight_map", weight_map}}.dump());
    const Inspection inspection = Inspect(directory.path());
    EXPECT_EQ(inspection.code, kFailed);
    ASSERT_EQ(inspection.report["problems"].size(), 1u) << inspection.report["problems"].dump(2);
    const json& problem = inspection.report["problems"][0];
    EXPECT_EQ(problem["file"], "absent.safetensors");
    EXPECT_THAT(problem["message"].get<std::string>(),
                HasSubstr("1 module needs it, model.layers.1.mlp.down_proj"));
    ASSERT_EQ(inspection.report["modules"].size(), 1u);
    EXPECT_EQ(inspection.report["modules"][0]["module"], kDownProj);
    EXPECT_EQ(inspection.report["quantized_modules"], 2);
  }
}

// No index tells what lies in the damaged file: it is the one problem, and the other file's modules are there.
TEST(InspectTest, ADamagedFileWithoutAnIndexIsOneProblem) {
  const TemporaryDirectory directory;
  WriteFile(directory.path() / "config.json", R"({"num_hidden_layers": 2})");
  WriteTensors(directory.path() / "a.safetensors",
               PlainLinears({"model.layers.0.mlp.up_proj"}, 0x3f));
  WriteFile(directory.path() / "b.safetensors", "damaged");
  const Inspection inspection = Inspect(directory.path());
  EXPECT_EQ(inspection.code, kFailed);
  EXPECT_EQ(inspection.report["files"], 2);
  EXPECT_EQ(inspection.report["modules"].size(), 1u);
  ASSERT_EQ(inspection.report["problems"].size(), 1u) << inspection.report["problems"].dump(2);
  const json& problem = inspection.report["problems"][0];
  EXPECT_EQ(problem["file"], "b.safetensors");
  EXPECT_EQ(problem["reason"], "BAD_CHECKPOINT");
  EXPECT_THAT(problem["message"].get<std::string>(), HasSubstr("there are none in model.layers.1"));
}

// What an index or model.safetensors does not name is no problem, and is told.
TEST(InspectTest, FilesAndTensorsThatNobodyReadsAreNotes) {
  const TemporaryDirectory directory;
  WriteFile(directory.path() / "config.json", "{}");
  WriteTensors(directory.path() / "model.safetensors", PlainLinears({"a", "b"}, 0x3f));
  EXPECT_TRUE(Inspect(directory.path()).report["notes"].empty());
  WriteTensors(directory.path() / "consolidated.safetensors", PlainLinears({"a", "b"}, 0x3f));
  WriteFile(directory.path() / "._model.safetensors", "AppleDouble");
  const Inspection beside = Inspect(directory.path());
  EXPECT_EQ(beside.code, kDone);
  EXPECT_EQ(beside.report["notes"],
            json::array({"files that are not read, beside model.safetensors: consolidated.safetensors"}));
  WriteFile(directory.path() / "model.safetensors.index.json", R"({"weight_map": {"a.weight": "model.safetensors"}})");
  for (int i = 1; i <= 9; ++i) WriteFile(directory.path() / absl::StrCat("x", i, ".safetensors"), "");
  const Inspection indexed = Inspect(directory.path());
  EXPECT_EQ(indexed.code, kDone);
  EXPECT_EQ(indexed.report["modules"].size(), 1u);
  const std::string why = "that are not read, model.safetensors.index.json does not name them: ";
  EXPECT_EQ(indexed.report["notes"],
            json::array({"files " + why +
                             "consolidated.safetensors, x1.safetensors, x2.safetensors, x3.safetensors, x4.safetensors, "
                             "x5.safetensors, x6.safetensors, x7.safetensors and 2 more",
                         "tensors " + why + "b.weight in model.safetensors"}));
  EXPECT_THAT(Tool({"inspect", directory.path().string()}).out, HasSubstr("consolidated.safetensors"));
}

TEST(InspectTest, ATensorInTwoFilesIsToldOfItsModuleOrInANote) {
  const TemporaryDirectory directory;
  WriteFile(directory.path() / "config.json", "{}");
  RawTensors tensors = PlainLinears({"a", "b"}, 0x3f);
  tensors["norm.weight"] = {"BF16", {4}, std::string(8, 0x3f)};
  WriteTensors(directory.path() / "x.safetensors", tensors);
  tensors.erase("a.weight");
  WriteTensors(directory.path() / "y.safetensors", tensors);
  const Inspection inspection = Inspect(directory.path());
  EXPECT_EQ(inspection.code, kFailed);
  ASSERT_EQ(inspection.report["problems"].size(), 1u) << inspection.report["problems"].dump(2);
  EXPECT_EQ(inspection.report["problems"][0]["module"], "b");
  EXPECT_EQ(inspection.report["notes"], json::array({"in two files: norm.weight (x.safetensors, y.safetensors)"}));
}

// A sparse file may promise more than any machine has.
TEST(InspectTest, AModuleThatNoMemoryHoldsIsAProblemWithItsSize) {
  const TemporaryDirectory directory;
  WriteHugeCheckpoint(directory.path());
  const MemoryLimit limit;
  const json problem = OnlyProblem(directory.path());
  EXPECT_EQ(problem["reason"], "HOST_MEMORY");
  EXPECT_EQ(problem["module"], "a");
  EXPECT_THAT(problem["message"].get<std::string>(),
              HasSubstr("model.safetensors: the machine has no memory for a tensor of 2199023255552 bytes: module a"));
  const ToolRun exported = Tool({"export", directory.path().string(), "a", (directory.path() / "y.safetensors").string()});
  EXPECT_EQ(exported.code, kFailed) << exported.err;
  EXPECT_THAT(exported.err, HasSubstr("2199023255552 bytes: module a"));
}

TEST(InspectTest, ACutFileIsAProblemAndNoFolderIsAnError) {
  EditableCheckpoint checkpoint(kGptqCase);
  TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  const auto file = directory.path() / "model.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  const Inspection cut = Inspect(directory.path());
  EXPECT_EQ(cut.code, kFailed);
  ASSERT_EQ(cut.report["problems"].size(), 1u);
  EXPECT_EQ(cut.report["problems"][0]["file"], "model.safetensors");
  const ToolRun none = Tool({"inspect", (directory.path() / "nothing").string()});
  EXPECT_EQ(none.code, kFailed);
  EXPECT_THAT(none.err, HasSubstr("CHECKPOINT_NOT_FOUND"));
  EXPECT_EQ(Tool({"inspect"}).code, kUsage);
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

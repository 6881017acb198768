// gemmctl inspect on damaged copies of golden checkpoints: problems and notes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "tests/client/gemmctl/inspection.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd::gemmctl {
namespace {

using nlohmann::json;
using testing::HasSubstr;

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
              HasSubstr("\"group_size\": expected an integer from -2^63 to 2^63 - 1, got \"sixteen\"; and so for 6 more modules"));
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

// Each loads, so that a model with them registers: it is told that they are not one layer.
TEST(InspectTest, PartsThatCannotBeOneLayerAreANote) {
  const TemporaryDirectory directory;
  WriteFile(directory.path() / "config.json", "{}");
  RawTensors tensors = PlainLinears({"l.0.mlp.gate_proj", "l.0.mlp.up_proj"}, 0x3f);
  tensors["l.0.mlp.up_proj.weight"] = {"F32", {2, 4}, std::string(32, 0x3f)};
  WriteTensors(directory.path() / "model.safetensors", tensors);
  const Inspection inspection = Inspect(directory.path());
  EXPECT_EQ(inspection.code, kDone) << inspection.report["problems"].dump(2);
  EXPECT_EQ(inspection.report["modules"].size(), 2u);
  EXPECT_EQ(inspection.report["notes"],
            json::array({"module l.0.mlp.gate_up_proj: left in its parts: its parts cannot be one layer: weight type: "
                         "up_proj has F32, gate_proj has BF16"}));
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

}  // namespace
}  // namespace gemmd::gemmctl

// Models on a node with the CPU device: whole, in parts, failing, cancelled, shared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/exec/cpu_device.h"
#include "core/model_registration.h"
#include "core/prewarm.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"
#include "tests/core/node/node_fixture.h"

namespace gemmd {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kLlama[] = "modelopt_fp8_llama";
constexpr int kLlamaModules = 7;

class NodeModelTest : public ::testing::Test {
 protected:
  NodeModelTest() {
    NodeOptions options;
    options.checkpoint_roots = {std::filesystem::canonical(CaseDirectory("")), directory.path()};
    options.max_layers_per_session = 20;
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(CreateCpuDevice({2}));
    node = std::make_unique<Node>(std::move(options), std::move(devices), nullptr);
    session = NewSession();
  }

  std::shared_ptr<Session> NewSession() {
    return node->OpenSession({"test", getpid(), getuid(), "socket"}).value();
  }

  static ModelRequest Of(const std::string& path) {
    ModelRequest request;
    request.path = path;
    return request;
  }
  static ModelRequest OfCase(const std::string& name) { return Of(CaseDirectory(name)); }

  absl::StatusOr<ModelResult> Register(const ModelRequest& request) {
    return Register(request, session, [](const ModelProgress&) { return true; });
  }
  absl::StatusOr<ModelResult> Register(const ModelRequest& request,
                                       const std::shared_ptr<Session>& owner,
                                       const std::function<bool(const ModelProgress&)>& progress) {
    reports.clear();
    Outcome<ModelResult> outcome;
    node->RegisterModel(
        owner, request,
        [&](const ModelProgress& report) {
          reports.push_back(report);  // calls are serialised
          return progress(report);
        },
        [&](absl::StatusOr<ModelResult> result) { outcome.Set(std::move(result)); });
    auto result = outcome.Wait();
    EXPECT_EQ(outcome.calls(), 1);
    return result;
  }

  // A copy of the model in which one module's scale is not there.
  std::string Damaged() {
    EditableCheckpoint checkpoint(kLlama);
    checkpoint.tensors.erase("model.layers.0.mlp.up_proj.weight_scale");
    checkpoint.Write(directory.path());
    return directory.path();
  }

  TemporaryDirectory directory;
  std::unique_ptr<Node> node;
  std::shared_ptr<Session> session;
  std::vector<ModelProgress> reports;
};

// Zero points of GPTQ that programs read in different ways.
TEST_F(NodeModelTest, ThePlanTellsWhatIsReadOtherwiseElsewhere) {
  ASSERT_TRUE(Register(OfCase("gptq_v1_gptqmodel_b4_g64_asym_borrow")).ok());
  EXPECT_THAT(reports.front().notes, Contains(HasSubstr(".qzeros: ")));
  const auto other = NewSession();  // its names are its own
  ASSERT_TRUE(Register(OfCase(kLlama), other, [](const ModelProgress&) { return true; }).ok());
  EXPECT_THAT(reports.front().notes, Not(Contains(HasSubstr(".qzeros: "))));
}

TEST_F(NodeModelTest, RegistersEveryModuleAndSaysHowFarItIs) {
  const auto result = Register(OfCase(kLlama));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->registered, kLlamaModules);
  EXPECT_EQ(result->failed, 0);
  std::set<std::string> names;
  for (const LayerInfo& layer : node->ListLayers(*session)) names.insert(layer.name);
  EXPECT_EQ(names.size(), static_cast<size_t>(kLlamaModules));
  EXPECT_EQ(names.count("model.layers.0.mlp.down_proj"), 1u);
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports.front().module, "");
  EXPECT_EQ(reports.front().modules_total, kLlamaModules);
  EXPECT_GT(reports.front().bytes_total, 0u);
  std::set<std::string> ready;
  uint64_t bytes = 0;
  int done = 0;
  for (const ModelProgress& report : reports) {
    EXPECT_LE(report.bytes_done, report.bytes_total);
    EXPECT_GE(report.modules_done, done);
    done = report.modules_done;
    if (report.state != LayerState::kReady) continue;
    ready.insert(report.module);
    bytes += report.module_bytes_total;
    ASSERT_TRUE(report.layer.has_value());
    EXPECT_EQ(report.layer->name, report.module);
  }
  EXPECT_EQ(ready.size(), static_cast<size_t>(kLlamaModules));
  EXPECT_EQ(bytes, reports.front().bytes_total);
  EXPECT_EQ(reports.back().bytes_done, bytes);
  EXPECT_EQ(reports.back().modules_done, kLlamaModules);
}

TEST_F(NodeModelTest, TwoSessionsShareOneCopy) {
  ASSERT_TRUE(Register(OfCase(kLlama)).ok());
  const auto other = NewSession();
  const uint64_t before = node->Status().devices[0].weights_bytes;
  ASSERT_TRUE(Register(OfCase(kLlama), other, [](const ModelProgress&) { return true; }).ok());
  EXPECT_EQ(node->Status().devices[0].weights_bytes, before);
  EXPECT_EQ(node->Status().layer_references, 2 * kLlamaModules);
  node->EndSession(session, "test");
  EXPECT_EQ(node->ListLayers(*other).size(), static_cast<size_t>(kLlamaModules));
  node->EndSession(other, "test");
  EXPECT_EQ(node->Status().layers, 0);
}

TEST_F(NodeModelTest, RegistersFusedModulesOfOneRank) {
  ModelRequest request = OfCase(kLlama);
  request.selection.fuse = true;
  request.selection.tensor = {.rank = 1, .size = 2, .range = {}};
  request.name_prefix = "rank 1 ";
  const auto result = Register(request);
  ASSERT_TRUE(result.ok()) << result.status();
  std::map<std::string, LayerInfo> layers;
  for (const LayerInfo& layer : node->ListLayers(*session)) layers[layer.name] = layer;
  ASSERT_EQ(layers.size(), 4u);
  const LayerInfo qkv = layers.at("rank 1 model.layers.0.self_attn.qkv_proj");
  ModelRequest whole = OfCase(kLlama);
  whole.selection.modules = {"model.layers.0.self_attn.qkv_proj", "*.o_proj"};
  ASSERT_TRUE(Register(whole).ok());
  for (const LayerInfo& layer : node->ListLayers(*session)) layers[layer.name] = layer;
  EXPECT_EQ(2 * qkv.shape.n, layers.at("model.layers.0.self_attn.qkv_proj").shape.n);
  EXPECT_EQ(2 * layers.at("rank 1 model.layers.0.self_attn.o_proj").shape.k,
            layers.at("model.layers.0.self_attn.o_proj").shape.k);
}

TEST_F(NodeModelTest, FailsWholeAndSaysWhatFailed) {
  // Held before: stays.
  Outcome<LayerInfo> held;
  const std::string path = Damaged();
  node->RegisterLayer(session, {"", "mine", CheckpointSource{path, "model.layers.0.mlp.down_proj", {}}},
                      nullptr, [&](absl::StatusOr<LayerInfo> info) { held.Set(std::move(info)); });
  ASSERT_TRUE(held.Wait().ok()) << held.Wait().status();
  const auto result = Register(Of(path));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(result.status()), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("1 of 7 modules cannot be registered"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(": model.layers.0.mlp.up_proj: "));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("weight_scale"));
  const std::vector<LayerInfo> left = node->ListLayers(*session);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].layer_id, held.Wait()->layer_id);
}

TEST_F(NodeModelTest, TellsAFaultOfAllModulesOnce) {
  EditableCheckpoint checkpoint(kLlama);
  checkpoint.config.erase("quantization_config");
  checkpoint.modelopt_config["quantization"]["quant_algo"] = "NVFP5";
  checkpoint.Write(directory.path());
  const std::string message(Register(Of(directory.path().string())).status().message());
  const size_t first = message.find("hf_quant_config.json");
  ASSERT_NE(first, std::string::npos) << message;
  EXPECT_EQ(message.find("hf_quant_config.json", first + 1), std::string::npos) << message;
  // How many were tried before the first one failed differs.
  EXPECT_THAT(message, HasSubstr("of 7 modules cannot be registered"));
}

TEST_F(NodeModelTest, SaysHowManyWereNotTried) {
  ModelPlan plan;
  for (const char* module : {"model.layers.0.mlp.down_proj", "no.such", "a.third", "a.fourth"}) {
    plan.modules.push_back({module, {}, 0});
  }
  Outcome<ModelResult> outcome;
  std::make_shared<ModelRegistration>(
      *node, session, Of(Damaged()), plan, /*window=*/1, nullptr,
      [&](absl::StatusOr<ModelResult> result) { outcome.Set(std::move(result)); })
      ->Start();
  EXPECT_THAT(std::string(outcome.Wait().status().message()),
              HasSubstr("1 of 4 modules cannot be registered, 2 were not tried: no.such: "));
}

TEST_F(NodeModelTest, KeepsGoingWhereAsked) {
  ModelRequest request = Of(Damaged());
  request.keep_going = true;
  const auto result = Register(request);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->registered, kLlamaModules - 1);
  EXPECT_EQ(result->failed, 1);
  EXPECT_EQ(node->ListLayers(*session).size(), static_cast<size_t>(kLlamaModules - 1));
  int failed = 0;
  for (const ModelProgress& report : reports) {
    if (report.state != LayerState::kFailed) continue;
    ++failed;
    EXPECT_EQ(report.module, "model.layers.0.mlp.up_proj");
    EXPECT_EQ(ReasonOf(report.failure), "BAD_CHECKPOINT");
  }
  EXPECT_EQ(failed, 1);
}

// No index tells what lies in a damaged file: it fails like a module, and the others are registered.
TEST_F(NodeModelTest, AFileThatCannotBeReadFailsAndHidesNoOther) {
  WriteFile(directory.path() / "config.json", "{}");
  WriteTensors(directory.path() / "a.safetensors", PlainLinears({"a", "b"}, 0x3f));
  WriteFile(directory.path() / "c.safetensors", "damaged");
  ModelRequest request = Of(directory.path());
  const auto whole = Register(request);
  EXPECT_EQ(ReasonOf(whole.status()), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(whole.status().message()), HasSubstr("c.safetensors: a file of 7 bytes"));
  EXPECT_TRUE(node->ListLayers(*session).empty());
  request.keep_going = true;
  const auto rest = Register(request);
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(rest->registered, 2);
  EXPECT_EQ(rest->failed, 1);
  ASSERT_GE(reports.size(), 2u);
  EXPECT_EQ(reports[0].modules_total, 3);
  EXPECT_EQ(reports[1].module, "c.safetensors");
  EXPECT_EQ(reports[1].state, LayerState::kFailed);
  EXPECT_EQ(ReasonOf(reports[1].failure), "BAD_CHECKPOINT");
  EXPECT_EQ(reports.back().modules_done, 3);
  // Read again as soon as it is whole.
  WriteTensors(directory.path() / "c.safetensors", PlainLinears({"c"}, 0x3f));
  request.keep_going = false;
  const auto mended = Register(request);
  ASSERT_TRUE(mended.ok()) << mended.status();
  EXPECT_EQ(mended->registered, 3);
}

TEST_F(NodeModelTest, ATensorInTwoFilesFailsItsModuleOnly) {
  WriteFile(directory.path() / "config.json", "{}");
  WriteTensors(directory.path() / "a.safetensors", PlainLinears({"a", "b"}, 0x3f));
  WriteTensors(directory.path() / "c.safetensors", PlainLinears({"b", "c"}, 0x3f));
  ModelRequest request = Of(directory.path());
  EXPECT_THAT(std::string(Register(request).status().message()),
              HasSubstr("tensor b.weight: it is in c.safetensors too"));
  request.keep_going = true;
  const auto rest = Register(request);
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(rest->registered, 2);
  EXPECT_EQ(rest->failed, 1);
}

TEST_F(NodeModelTest, AModuleThatNoMemoryHoldsNamesItselfAndItsSize) {
  WriteHugeCheckpoint(directory.path());
  const MemoryLimit limit;
  const absl::Status status = Register(Of(directory.path())).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2199023255552 bytes: module a"));
}

TEST_F(NodeModelTest, RegistersAndQuantizesAModelWhoseConfigQuantizesTheCacheAlone) {
  WriteFile(directory.path() / "config.json", "{}");
  WriteFile(directory.path() / "hf_quant_config.json",
            R"({"quantization": {"quant_algo": null, "kv_cache_quant_algo": "FP8"}})");
  WriteTensors(directory.path() / "model.safetensors", PlainLinears({"a", "b"}, 0x3f));
  ModelRequest request = Of(directory.path());
  const auto plain = Register(request);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->registered, 2);
  request.name_prefix = "quantized ";
  request.quantize = QuantizeTarget{.spec = {.weight = kFloat8E4M3, .scale = kFloat32}};
  const auto quantized = Register(request);
  ASSERT_TRUE(quantized.ok()) << quantized.status();
  EXPECT_EQ(quantized->registered, 2);
}

TEST_F(NodeModelTest, LeavesNothingWhenItIsCancelled) {
  int ready = 0;
  const auto result = Register(OfCase(kLlama), session, [&](const ModelProgress& report) {
    if (report.state == LayerState::kReady) ++ready;
    return ready < 3;
  });
  EXPECT_EQ(ReasonOf(result.status()), "CANCELLED");
  EXPECT_EQ(ready, 3);
  EXPECT_TRUE(node->ListLayers(*session).empty());
  const auto at_once =
      Register(OfCase(kLlama), session, [](const ModelProgress&) { return false; });
  EXPECT_EQ(ReasonOf(at_once.status()), "CANCELLED");
  EXPECT_EQ(reports.size(), 1u);
}

TEST_F(NodeModelTest, AQuotaEndsItAlsoWhenItKeepsGoing) {
  ModelRequest request = OfCase("modelopt_fp8_qwen3moe");  // 13 modules
  ASSERT_TRUE(Register(request).ok());
  ModelRequest more = OfCase("modelopt_nvfp4_qwen3moe");  // 13 more, and 20 are allowed
  more.keep_going = true;
  more.name_prefix = "nvfp4 ";
  const auto result = Register(more);
  EXPECT_EQ(ReasonOf(result.status()), "QUOTA") << result.status();
  EXPECT_EQ(node->ListLayers(*session).size(), 13u);
}

TEST_F(NodeModelTest, TheEndOfTheSessionEndsIt) {
  ModelRequest request = OfCase("modelopt_fp8_qwen3moe");
  request.keep_going = true;
  const auto result = Register(request, session, [&](const ModelProgress& report) {
    if (report.module.empty()) node->EndSession(session, "test");
    return true;
  });
  EXPECT_EQ(ReasonOf(result.status()), "SESSION_ENDED") << result.status();
  EXPECT_EQ(node->Status().layers, 0);
}

TEST_F(NodeModelTest, RefusesWhatItCannotPlan) {
  EXPECT_EQ(ReasonOf(Register(Of("")).status()), "MISSING_FIELD");
  EXPECT_EQ(ReasonOf(Register(Of(std::string("/a\0b", 4))).status()), "BAD_PATH");
  EXPECT_EQ(ReasonOf(Register(Of("/etc")).status()), "PATH_NOT_ALLOWED");
  EXPECT_EQ(ReasonOf(Register(OfCase("nothing")).status()), "CHECKPOINT_NOT_FOUND");
  ModelRequest request = OfCase(kLlama);
  request.device = "cuda:none";
  EXPECT_EQ(ReasonOf(Register(request).status()), "WRONG_DEVICE");
  request = OfCase(kLlama);
  request.selection.modules = {"*.nothing"};
  EXPECT_EQ(ReasonOf(Register(request).status()), "MODULE_NOT_FOUND");
  request.selection.modules = {"model.layers.7.mlp.up_proj"};  // a name: found out when it is read
  EXPECT_EQ(ReasonOf(Register(request).status()), "MODULE_NOT_FOUND");
  request = OfCase(kLlama);
  request.name_prefix = std::string(250, 'x');
  EXPECT_EQ(ReasonOf(Register(request).status()), "OUT_OF_RANGE");
  ASSERT_TRUE(node->Drain(absl::Now() + absl::Seconds(5)).ok());
  EXPECT_EQ(ReasonOf(Register(OfCase(kLlama)).status()), "DRAINING");
  EXPECT_TRUE(reports.empty());
}

// Prewarming asks for the kernels of the layers that registering gives.
TEST_F(NodeModelTest, QuantizesAModelToWhatAPrewarmOfItExpects) {
  RawTensors tensors;
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    RawTensor& tensor = tensors[std::string("model.layers.0.self_attn.") + name + ".weight"];
    tensor = {"F16", {32, 32}, {}};
    for (size_t i = 0; i < 32 * 32; ++i) {  // 1 to 1.99, differently for every module
      tensor.bytes.append({static_cast<char>(37 * (i + tensors.size())), static_cast<char>(0x3c + i % 4)});
    }
  }
  WriteFile(directory.path() / "config.json", "{}");
  WriteTensors(directory.path() / "model.safetensors", tensors);
  ModelRequest request = Of(directory.path());
  request.selection.fuse = true;
  PrewarmJob prewarm;
  prewarm.architectures = {"sm_90a"};
  prewarm.models = {{request.path, request.selection}};
  for (const QuantSpec& spec : {QuantSpec{.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 16},
                                QuantSpec{.weight = kFloat8E4M3, .scale = kFloat32, .scale_block_n = 0}}) {
    request.quantize = prewarm.models[0].quantize = QuantizeTarget{.spec = spec};
    const auto result = Register(request);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->registered, 2);
    uint64_t quantized = 0;
    for (const ModelProgress& report : reports) {
      if (report.state != LayerState::kQuantizing) continue;
      EXPECT_LE(report.module_bytes_done, report.module_bytes_total);
      quantized += report.module_bytes_done == report.module_bytes_total ? report.module_bytes_total : 0;
    }
    EXPECT_GE(quantized, 4 * 32 * 32 * 2u) << "each layer was told to be done";
    const auto plan = ResolvePrewarm(prewarm, *node, {directory.path()}, [] { return false; });
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (const LayerInfo& layer : node->ListLayers(*session)) {
      EXPECT_TRUE(layer.quantized.has_value());
      EXPECT_NE(std::find(plan->layers.begin(), plan->layers.end(),
                          PrewarmLayer{layer.spec, layer.shape, layer.traits}),
                plan->layers.end())
          << layer.name;
      EXPECT_TRUE(node->ReleaseLayer(*session, layer.layer_id).ok());
    }
  }
  request.quantize->spec.has_group_index = true;
  EXPECT_EQ(ReasonOf(Register(request).status()), "UNSUPPORTED_SPEC");
  prewarm.models[0].quantize = request.quantize;
  EXPECT_EQ(ReasonOf(ResolvePrewarm(prewarm, *node, {directory.path()}, [] { return false; }).status()),
            "UNSUPPORTED_SPEC");
}

}  // namespace
}  // namespace gemmd

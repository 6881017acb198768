// An operator prewarms real models: hundreds of gigabytes by their names and shapes, a few megabytes on disk.
#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/gemmctl/command.h"
#include "tests/client/gemmctl/tool.h"
#include "tests/server/fixture.h"
#include "tests/server/sparse_model.h"

namespace gemmd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kOneBytes[] = "\x80\x3f";       // bfloat16
constexpr char kSmall[] = "\x0a\xd7\x23\x3c";  // float32

// DeepSeek-V3: 61 layers, the first 3 dense, then 256 experts each. Only the first layer of each kind has scales.
SparseModel DeepSeekV3() {
  SparseModel model({{"model_type", "deepseek_v3"},
                     {"n_routed_experts", 256},
                     {"quantization_config",
                      {{"quant_method", "fp8"},
                       {"fmt", "e4m3"},
                       {"activation_scheme", "dynamic"},
                       {"weight_block_size", {128, 128}}}}});
  const auto add = [&model](const std::string& module, int64_t n, int64_t k, bool is_first) {
    model.Add(module + ".weight", "F8_E4M3", {n, k});
    model.Add(module + ".weight_scale_inv", "F32", {(n + 127) / 128, (k + 127) / 128},
              is_first ? std::string(kSmall, 4) : "");
  };
  for (int layer = 0; layer < 61; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    const std::string attention = prefix + "self_attn.";
    add(attention + "q_a_proj", 1536, 7168, layer == 0);
    add(attention + "q_b_proj", 24576, 1536, layer == 0);
    add(attention + "kv_a_proj_with_mqa", 576, 7168, layer == 0);
    add(attention + "kv_b_proj", 32768, 512, layer == 0);
    add(attention + "o_proj", 7168, 16384, layer == 0);
    const auto mlp = [&](const std::string& name, int64_t width, bool is_first) {
      add(name + "gate_proj", width, 7168, is_first);
      add(name + "up_proj", width, 7168, is_first);
      add(name + "down_proj", 7168, width, is_first);
    };
    if (layer < 3) {
      mlp(prefix + "mlp.", 18432, layer == 0);
      continue;
    }
    model.Add(prefix + "mlp.gate.weight", "BF16", {256, 7168});
    const bool is_first = layer == 10;  // by name
    for (int expert = 0; expert < 256; ++expert) {
      mlp(absl::StrCat(prefix, "mlp.experts.", expert, "."), 2048, is_first && expert == 0);
    }
    mlp(prefix + "mlp.shared_experts.", 2048, is_first);
  }
  model.Add("model.embed_tokens.weight", "BF16", {129280, 7168});
  model.Add("lm_head.weight", "BF16", {129280, 7168});
  return model;
}

// The first layers of Llama-3.1-8B as neuralmagic published it in FP8.
SparseModel Llama8bFp8() {
  const nlohmann::ordered_json activations = {
      {"num_bits", 8}, {"type", "float"}, {"strategy", "token"}, {"dynamic", true}, {"symmetric", true}};
  nlohmann::ordered_json weights = activations;
  weights["strategy"] = "channel";
  weights["dynamic"] = false;
  SparseModel model({{"model_type", "llama"},
                     {"quantization_config",
                      {{"quant_method", "compressed-tensors"},
                       {"format", "float-quantized"},
                       {"quantization_status", "frozen"},
                       {"ignore", {"lm_head"}},
                       {"config_groups",
                        {{"group_0",
                          {{"targets", {"Linear"}},
                           {"weights", weights},
                           {"input_activations", activations}}}}}}}});
  const std::vector<std::tuple<std::string, int64_t, int64_t>> linears = {
      {"self_attn.q_proj", 4096, 4096}, {"self_attn.k_proj", 1024, 4096},
      {"self_attn.v_proj", 1024, 4096}, {"self_attn.o_proj", 4096, 4096},
      {"mlp.gate_proj", 14336, 4096},   {"mlp.up_proj", 14336, 4096},
      {"mlp.down_proj", 4096, 14336}};
  for (int layer = 0; layer < 32; ++layer) {
    for (const auto& [name, n, k] : linears) {
      const std::string module = absl::StrCat("model.layers.", layer, ".", name);
      model.Add(module + ".weight", "F8_E4M3", {n, k});
      model.Add(module + ".weight_scale", "BF16", {n, 1},
                layer == 0 ? std::string(kOneBytes, 2) : "");
    }
  }
  model.Add("lm_head.weight", "BF16", {128256, 4096});
  return model;
}

class RealModelTest : public DaemonTest {
 protected:
  void SetUp() override { StartDaemon({{"checkpoint_roots", directory_.path()}}); }

  // "ExNxK" of the layers that a prewarm of `model` finds. sm_75 has no kernels, so nothing is compiled.
  std::vector<std::string> Layers(const SparseModel& model, const std::vector<std::string>& options) {
    const std::string path = directory_ / "model";
    const std::string manifest = directory_ / "manifest.json";
    model.Write(path);
    std::vector<std::string> words = {"--socket", daemon_->config().socket, "prewarm", path, "--arch",
                                      "sm_75",    "--save",                 manifest,  "--force"};
    words.insert(words.end(), options.begin(), options.end());
    run_ = gemmctl::Tool(words);
    std::set<std::string> layers;
    std::ifstream file(manifest);
    const auto json = nlohmann::json::parse(file, nullptr, false);
    EXPECT_TRUE(json.is_object()) << run_.err;
    if (!json.is_object()) return {};
    for (const auto& shape : json["shapes"]) {
      const auto number = [&shape](const char* name) { return shape[name].get<std::string>(); };
      layers.insert(absl::StrCat(number("experts"), "x", number("n"), "x", number("k")));
    }
    return {layers.begin(), layers.end()};
  }
  gemmctl::ToolRun run_;
};

TEST_F(RealModelTest, DeepSeekV3IsKnownWithoutReadingIt) {
  const SparseModel model = DeepSeekV3();
  EXPECT_GT(model.size(), uint64_t{600} << 30);
  EXPECT_THAT(Layers(model, {"--fuse"}),
              ElementsAre("1x2112x7168", "1x24576x1536", "1x32768x512", "1x36864x7168", "1x4096x7168",
                          "1x7168x16384", "1x7168x18432", "1x7168x2048", "256x4096x7168",
                          "256x7168x2048"));
  EXPECT_THAT(run_.out, HasSubstr("10 distinct layers of 482"));
}

TEST_F(RealModelTest, ARankHasItsPartsOnly) {
  EXPECT_THAT(Layers(DeepSeekV3(), {"--fuse", "--tp", "3/8", "--experts", "0:32", "--modules",
                                    "*.mlp.experts.*,*.self_attn.o_proj"}),
              ElementsAre("1x7168x2048", "32x512x7168", "32x7168x256"));
  EXPECT_THAT(Layers(DeepSeekV3(), {"--fuse", "--exclude", "*self_attn*,*experts*,nothing"}),
              ElementsAre("1x36864x7168", "1x7168x18432"));
  EXPECT_THAT(run_.err, HasSubstr("note: exclude \"nothing\" matches none"));
}

TEST_F(RealModelTest, LlamaIsKnownAsItsWorkersRegisterIt) {
  EXPECT_THAT(Layers(Llama8bFp8(), {}),
              ElementsAre("1x1024x4096", "1x14336x4096", "1x4096x14336", "1x4096x4096"));
  EXPECT_THAT(Layers(Llama8bFp8(), {"--fuse"}),
              ElementsAre("1x28672x4096", "1x4096x14336", "1x4096x4096", "1x6144x4096"));
  EXPECT_THAT(run_.out, HasSubstr("4 distinct layers of 128"));
}

}  // namespace
}  // namespace gemmd

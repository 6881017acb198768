// Modules that are quantized as they are read: each as it is stored, then joined and cut like those of a quantized
// checkpoint.
#include "core/checkpoint/layer_quantizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/layer_kinds.h"
#include "core/checkpoint/model_plan.h"
#include "core/quant/combine.h"
#include "core/quant/input_scale.h"
#include "core/quant/rank_slice.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using ::testing::StartsWith;

const std::string kExpertModules = "model.layers.0.mlp.experts.";
constexpr int64_t kExpertCount = 3;

RawTensor Linear(int64_t n, int64_t k, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> weights(0, 0.01f * static_cast<float>(1 + seed % 5));
  RawTensor tensor{"BF16", {n, k}, {}};
  for (int64_t i = 0; i < n * k; ++i) {
    const uint32_t code = EncodeNumber(kBFloat16, weights(random));
    tensor.bytes.append({static_cast<char>(code), static_cast<char>(code >> 8)});
  }
  return tensor;
}

// Two layers of a dense MLP, and experts that are stored one by one.
class LayerQuantizerTest : public ::testing::Test {
 protected:
  LayerQuantizerTest() {
    RawTensors tensors;
    uint32_t seed = 0;
    for (int64_t expert = 0; expert < kExpertCount; ++expert) {
      for (const char* name : {"gate_proj", "up_proj"}) {
        tensors[absl::StrCat(kExpertModules, expert, ".", name, ".weight")] = Linear(32, 64, ++seed);
      }
      tensors[absl::StrCat(kExpertModules, expert, ".down_proj.weight")] = Linear(64, 32, ++seed);
    }
    for (const char* layer : {"1", "2"}) {
      tensors[absl::StrCat("model.layers.", layer, ".mlp.down_proj.weight")] = Linear(32, 64, ++seed);
    }
    WriteFile(directory_.path() / "config.json", "{}");
    WriteTensors(directory_.path() / "model.safetensors", tensors);
    checkpoint_ = *Checkpoint::Open(directory_.path());
  }

  StandardTensor Plain(const std::string& module) const { return checkpoint_->ReadLayer(module)->tensor; }

  TemporaryDirectory directory_;
  std::shared_ptr<const Checkpoint> checkpoint_;
};

std::vector<QuantizeTarget> Targets() {
  return {{.spec = {.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 32}},
          {.spec = {.weight = kFloat8E4M3, .scale = kFloat32, .scale_block_n = 0}},
          {.spec = {.weight = kFloat4E2M1,
                    .scale = kFloat8E4M3,
                    .scale_block_k = 16,
                    .secondary_scale = SecondaryScaleKind::kTensor}}};
}

TEST_F(LayerQuantizerTest, ExpertsAreQuantizedPartByPartAndStacked) {
  for (const QuantizeTarget& target : Targets()) {
    std::vector<StandardTensor> experts;
    QuantizationError error;
    for (int64_t expert = 0; expert < kExpertCount; ++expert) {
      std::vector<StandardTensor> parts;
      for (const char* name : {"gate_proj", "up_proj"}) {
        parts.push_back(
            *QuantizeLayer(Plain(absl::StrCat(kExpertModules, expert, ".", name)), target, {}, &error));
      }
      experts.push_back(*ConcatenateRows(std::move(parts)));
    }
    const StandardTensor want = *StackExperts(std::move(experts));
    const QuantizeOnRead quantize{target, nullptr, nullptr};
    const auto layer = checkpoint_->ReadLayer(kExpertModules + "gate_up_proj", nullptr, {}, &quantize);
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_EQ(Digest(layer->tensor), Digest(want));
    ASSERT_TRUE(layer->quantized.has_value());
    EXPECT_EQ(layer->quantized->error.relative(), error.relative());
    EXPECT_EQ(layer->format, "unquantized");
  }
}

TEST_F(LayerQuantizerTest, ARanksPartIsCutOutOfTheQuantizedWhole) {
  for (const QuantizeTarget& target : Targets()) {
    const QuantizeOnRead quantize{target, nullptr, nullptr};
    const std::string module = "model.layers.1.mlp.down_proj";
    const StandardTensor whole = *QuantizeLayer(Plain(module), target);
    for (int64_t rank = 0; rank < 2; ++rank) {
      const SliceRequest rows{{}, {.rank = rank, .size = 2, .range = {}}, {}, {}};
      const auto part = checkpoint_->ReadLayer(module, nullptr, rows, &quantize);
      ASSERT_TRUE(part.ok()) << part.status();
      EXPECT_EQ(Digest(part->tensor), Digest(*Slice(whole, rows)));
    }
  }
}

TEST_F(LayerQuantizerTest, KindsAreThoseOfTheQuantizedLayers) {
  ModelSelection selection;
  selection.fuse = true;
  const auto plan = PlanModel(*checkpoint_, selection);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const QuantizeTarget& target : Targets()) {
    const QuantizeOnRead quantize{target, nullptr, nullptr};
    const auto kinds = LayerKindsOf(*checkpoint_, plan->modules, [] { return false; }, &target);
    ASSERT_TRUE(kinds.ok()) << kinds.status();
    EXPECT_EQ(kinds->size(), 3u);
    for (const PlannedModule& module : plan->modules) {
      const auto layer = checkpoint_->ReadLayer(module.module, nullptr, module.slice, &quantize);
      ASSERT_TRUE(layer.ok()) << layer.status();
      const auto same = [&layer](const LayerKind& kind) {
        return kind.spec == layer->tensor.spec && kind.shape == layer->tensor.shape &&
               kind.traits == TraitsOf(layer->tensor);
      };
      EXPECT_TRUE(std::any_of(kinds->begin(), kinds->end(), same)) << module.module;
    }
  }
}

TEST_F(LayerQuantizerTest, TellsTheBytesOfAllPartsAndStopsWhenTold) {
  uint64_t last = 0;
  QuantizeOnRead quantize{Targets()[0], nullptr, [&last](uint64_t done, uint64_t total) {
                            EXPECT_EQ(total, kExpertCount * 2 * 32 * 64 * 2);
                            EXPECT_GE(done, last);
                            last = done;
                            return true;
                          }};
  ASSERT_TRUE(checkpoint_->ReadLayer(kExpertModules + "gate_up_proj", nullptr, {}, &quantize).ok());
  EXPECT_EQ(last, kExpertCount * 2 * 32 * 64 * 2);
  quantize.progress = [](uint64_t done, uint64_t) { return done < 9000; };
  EXPECT_TRUE(absl::IsCancelled(
      checkpoint_->ReadLayer(kExpertModules + "gate_up_proj", nullptr, {}, &quantize).status()));
}

// What quantizing `module` of `directory` says is wrong.
std::string Refusal(const std::filesystem::path& directory, const std::string& module, const char* reason) {
  const QuantizeOnRead quantize{Targets()[0], nullptr, nullptr};
  const absl::Status status = ReadLayer(directory, module, nullptr, {}, {}, &quantize).status();
  EXPECT_EQ(ReasonOf(status), reason) << status;
  return std::string(status.message());
}

TEST(LayerQuantizerErrorTest, NamesFileModuleAndTensorOfWhatIsQuantized) {
  for (const auto& [name, module, key] :
       {std::tuple("gptq_v1_autogptq_b4_g128_sym", "model.layers.0.mlp.down_proj", ".qweight"),
        {"fp8_block128_deepseek", "model.layers.0.self_attn.o_proj", ".weight"},
        {"ct_pack_w4_g32_asym_n100", "model.layers.0.mlp.down_proj", ".weight_packed"}}) {
    const std::string file = (CaseDirectory(name) / "model.safetensors").string();
    EXPECT_THAT(Refusal(CaseDirectory(name), module, "ALREADY_QUANTIZED"),
                StartsWith(absl::StrCat(file, ": module ", module, ": tensor ", module, key, ": its weights have ")));
  }
}

TEST(LayerQuantizerErrorTest, NamesFileModuleAndTensorOfWhatIsNotFinite) {
  const TemporaryDirectory directory;
  RawTensors tensors = PlainLinears({"a.q_proj", "a.k_proj", "a.v_proj"}, 0);
  tensors["a.k_proj.bias"] = {"F32", {2}, std::string(8, '\0')};
  tensors["a.k_proj.weight"].bytes.replace(2 * 5, 2, "\xc0\x7f");
  WriteFile(directory.path() / "config.json", "{}");
  const std::string file = (directory.path() / "model.safetensors").string();
  WriteTensors(file, tensors);
  const std::string expected =
      file + ": module a.k_proj: tensor a.k_proj.weight: weight of row 1, column 1 is nan";
  EXPECT_EQ(Refusal(directory.path(), "a.k_proj", "NOT_FINITE"), expected);
  EXPECT_EQ(Refusal(directory.path(), "a.qkv_proj", "NOT_FINITE"), expected);
}

// However many files a model has: it is one fault.
TEST(LayerQuantizerErrorTest, ThatModulesAreQuantizedIsOneFaultInAllFiles) {
  const std::string what = "its weights have 4 bits; only float16 can be quantized";
  EXPECT_EQ(FaultOf("ALREADY_QUANTIZED", "/m/1.safetensors: module a: tensor a.qweight: " + what), what);
  EXPECT_EQ(FaultOf("ALREADY_QUANTIZED", "/m/2.safetensors: module b: tensor b.qweight: " + what), what);
  EXPECT_EQ(FaultOf("BAD_CHECKPOINT", "/m/2.safetensors: module b: tensor b.qweight: bad"),
            "/m/2.safetensors: tensor b.qweight: bad");
}

}  // namespace
}  // namespace gemmd

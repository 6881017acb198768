// Scales of a quantized key-value cache, which lie beside the projections and are no part of their weights.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

constexpr char kCompressedCase[] = "ct_fp8_channel";

// The golden module as `module`, with one number more under each of `keys`.
absl::StatusOr<CheckpointLayer> ReadWithNumbers(const std::string& module, const std::vector<std::string>& keys) {
  EditableCheckpoint checkpoint(kCompressedCase);
  const std::string golden = ListModules(CaseDirectory(kCompressedCase))->front();
  RawTensors tensors;
  for (const char* key : {".weight", ".weight_scale"}) tensors[module + key] = checkpoint.tensors.at(golden + key);
  for (const std::string& key : keys) tensors[module + key] = {"BF16", {1}, std::string("\x80\x3f", 2)};
  checkpoint.tensors = std::move(tensors);
  const TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  return ReadLayer(directory.path(), module);
}

TEST(CacheScalesTest, OfOldAndNewFilesAreNotReadWithTheWeights) {
  const auto golden = ReadLayer(CaseDirectory(kCompressedCase), ListModules(CaseDirectory(kCompressedCase))->front());
  ASSERT_TRUE(golden.ok()) << golden.status();
  for (const char* name : {"k_proj", "v_proj"}) {
    const std::string module = absl::StrCat("model.layers.0.self_attn.", name);
    for (const std::vector<std::string>& keys :
         {std::vector<std::string>{".output_scale"}, {".output_scale", ".output_zero_point"}, {".k_scale", ".v_scale"}}) {
      const auto layer = ReadWithNumbers(module, keys);
      ASSERT_TRUE(layer.ok()) << layer.status();
      EXPECT_EQ(Digest(layer->tensor), Digest(golden->tensor));
    }
  }
}

TEST(CacheScalesTest, OfOtherModulesAreAnError) {
  for (const char* module : {"model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj", "my_k_proj"}) {
    EXPECT_EQ(ReasonOf(ReadWithNumbers(module, {".output_scale"}).status()), "BAD_CHECKPOINT") << module;
  }
  EXPECT_EQ(ReasonOf(ReadWithNumbers("a.k_proj", {".output_shift"}).status()), "BAD_CHECKPOINT");
}

// The cache alone is quantized: config_groups is absent, and so are scales of weights.
TEST(CacheScalesTest, BesideUnquantizedWeights) {
  const TemporaryDirectory directory;
  WriteFile(directory.path() / "config.json",
            R"({"quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}})");
  RawTensors tensors = PlainLinears({"a.k_proj", "a.v_proj"}, 0x3f);
  for (const char* name : {"a.k_proj.output_scale", "a.v_proj.output_scale"}) tensors[name] = {"F32", {1}, std::string(4, 0x3f)};
  WriteTensors(directory.path() / "model.safetensors", tensors);
  const auto layer = ReadLayer(directory.path(), "a.k_proj");
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->format, "unquantized");
}

}  // namespace
}  // namespace gemmd

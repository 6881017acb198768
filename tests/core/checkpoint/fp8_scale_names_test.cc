// The scales of FP8 blocks go by three names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

constexpr char kBlocks[] = "fp8_block128_ue8m0";

// The golden module under the name `module`, its scales under `keys`.
struct RenamedScales {
  RenamedScales(const std::string& module, const std::vector<std::string>& keys) : checkpoint(kBlocks), name(module) {
    const std::string golden = ListModules(CaseDirectory(kBlocks))->front();
    RawTensors tensors;
    tensors[name + ".weight"] = checkpoint.tensors.at(golden + ".weight");
    for (const std::string& key : keys) tensors[name + key] = checkpoint.tensors.at(golden + ".weight_scale_inv");
    checkpoint.tensors = std::move(tensors);
    weights = Digest(ReadLayer(CaseDirectory(kBlocks), golden)->tensor);
  }
  absl::StatusOr<CheckpointLayer> Read() const {
    TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    const auto listed = ListModules(directory.path());
    EXPECT_TRUE(listed.ok() && *listed == std::vector<std::string>{name}) << listed.status();
    return ReadLayer(directory.path(), name);
  }

  EditableCheckpoint checkpoint;
  std::string name;
  std::string weights;  // digest of what the golden module holds
};

TEST(Fp8ScaleNamesTest, AreReadInDenseLayersAndExperts) {
  for (const char* module : {"layers.0.attn.wkv", "layers.0.ffn.shared_experts.w1", "layers.0.ffn.experts.0.w1"}) {
    for (const char* key : {".weight_scale_inv", ".weight_scale", ".scale"}) {
      const auto layer = RenamedScales(module, {key}).Read();
      ASSERT_TRUE(layer.ok()) << module << key << ": " << layer.status();
      EXPECT_EQ(Digest(layer->tensor), RenamedScales(module, {}).weights) << module << key;
      EXPECT_EQ(layer->tensor.spec.scale, kFloat8E8M0);
    }
  }
}

TEST(Fp8ScaleNamesTest, SeveralMustHoldTheSame) {
  RenamedScales both("layers.0.attn.wkv", {".weight_scale_inv", ".scale"});
  EXPECT_TRUE(both.Read().ok()) << both.Read().status();
  both.checkpoint.tensors.at("layers.0.attn.wkv.scale").bytes[0] ^= 1;
  const absl::Status status = both.Read().status();
  EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(status.message()), HasSubstr("wkv.scale: expected the scales of layers.0.attn.wkv.weight_scale_inv"));
}

TEST(Fp8ScaleNamesTest, MustHaveTheShapeOfTheBlocks) {
  RenamedScales bad("layers.0.attn.wkv", {".scale"});
  RawTensor& scale = bad.checkpoint.tensors.at("layers.0.attn.wkv.scale");
  scale = {scale.dtype, {1}, scale.bytes.substr(0, 1)};
  const absl::Status status = bad.Read().status();
  EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT");
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor layers.0.attn.wkv.scale: expected"));
}

}  // namespace
}  // namespace gemmd

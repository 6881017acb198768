// What the version of compressed-tensors decides, and what is refused because it does not tell.
#include "core/checkpoint/compressed_version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/checkpoint/checkpoint.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

constexpr char kVersioned[] = "model.layers.0.mlp.down_proj";

TEST(CompressedVersionTest, ReleasesAreBeforeOrSinceAChange) {
  for (const char* text : {"0.13.0", "0.13.7", "0.13", "0.9.2", "0.13.0+cu12", "0.0.0"}) {
    EXPECT_EQ(CompressedVersion(text).IsSince(14), std::optional(false)) << text;
  }
  for (const char* text : {"0.14.0", "0.14", "0.14.1", "0.100.0", "1.0.0", "0.14.0+g1a2b"}) {
    EXPECT_EQ(CompressedVersion(text).IsSince(14), std::optional(true)) << text;
  }
}

TEST(CompressedVersionTest, BuildsTellWhereTheyAreFarFromTheChange) {
  for (const char* text : {"0.13.0.a20250901", "0.13.0rc2", "0.12.3.dev4", "0.12.2.post1", "0.9.1a1"}) {
    EXPECT_EQ(CompressedVersion(text).IsSince(14), std::optional(false)) << text;
  }
  for (const char* text : {"0.14.1.a20260301", "0.15.0rc1", "0.18.1.dev0", "0.14.0.post1.dev2+g1", "1.0.0b1"}) {
    EXPECT_EQ(CompressedVersion(text).IsSince(14), std::optional(true)) << text;
  }
}

TEST(CompressedVersionTest, NothingIsKnownOfBuildsAroundTheChangeAndOfNoVersion) {
  for (const char* text : {"0.13.1.a20260225", "0.13.1a20260225", "0.13.1.dev3+g1a2b", "0.13.0.post1", "0.14.0.a1",
                           "0.14.0rc1", "0.14.0-dev0", "", "abc", "1", "0", "0.", ".14.0", "0.x", "v0.14.0", "0.14.0.",
                           "0.14.0.1", "0.99999999999.0", "-1.14.0", "0.-14.0", "0.14 .0"}) {
    EXPECT_EQ(CompressedVersion(text).IsSince(14), std::nullopt) << text;
  }
}

absl::StatusOr<CheckpointLayer> ReadOfVersion(const std::string& name, const nlohmann::ordered_json& version) {
  EditableCheckpoint checkpoint(name);
  checkpoint.config["quantization_config"]["version"] = version;
  if (version.is_null()) checkpoint.config["quantization_config"].erase("version");
  TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  return ReadLayer(directory.path(), kVersioned);
}

TEST(CompressedVersionTest, DecidesTheExponentsOfMxfp4) {
  const auto old = ReadOfVersion("ct_mxfp4_pre014_bias125", "0.13.0");
  const auto since = ReadOfVersion("ct_mxfp4_pre014_bias125", "0.14.0");
  ASSERT_TRUE(old.ok() && since.ok()) << old.status() << since.status();
  ASSERT_EQ(old->tensor.scales.size(), since->tensor.scales.size());
  for (size_t i = 0; i < old->tensor.scales.size(); ++i) {
    ASSERT_EQ(static_cast<int>(old->tensor.scales[i]), static_cast<int>(since->tensor.scales[i]) + 2) << i;
  }
}

TEST(CompressedVersionTest, RefusesMxfp4WhoseExponentsMayBeEither) {
  for (const nlohmann::ordered_json& version :
       std::vector<nlohmann::ordered_json>{"0.13.1.a20260225", "0.14.0rc1", "", "abc", "1", nullptr}) {
    const absl::Status status = ReadOfVersion("ct_mxfp4_n48_k96", version).status();
    EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT") << version;
    const std::string message(status.message());
    for (const char* part : {"/config.json: module ", kVersioned, "\"version\"", "exponents of MXFP4", "0.13.0 or 0.14.0"}) {
      EXPECT_THAT(message, HasSubstr(part)) << version;
    }
    const bool is_named = version.is_string() && version != "";
    EXPECT_THAT(message, HasSubstr(is_named ? "got " + version.dump() : "got none"));
  }
}

// What no release changed asks for none.
TEST(CompressedVersionTest, IsNotAskedForWhereNothingDependsOnIt) {
  for (const char* name : {"ct_mxfp8", "ct_nvfp4_n50_k80", "ct_pack_w3_g64_dense", "ct_pack_w3_g64_legacy_padded"}) {
    EXPECT_TRUE(ReadOfVersion(name, nullptr).ok()) << name;
    EXPECT_TRUE(ReadOfVersion(name, "0.13.1.a20260225").ok()) << name;
  }
}

// 10 columns of 3 bits take one word in both packings.
TEST(CompressedVersionTest, DecidesThePackingOfWordsThatFitBoth) {
  EditableCheckpoint checkpoint("ct_pack_w3_g64_dense");
  auto& config = checkpoint.config["quantization_config"];
  config["config_groups"]["group_0"]["weights"]["strategy"] = "channel";
  config["config_groups"]["group_0"]["weights"]["group_size"] = nullptr;
  checkpoint.tensors.clear();
  const std::string prefix = std::string(kVersioned) + ".";
  checkpoint.tensors[prefix + "weight_packed"] = {"I32", {1, 1}, std::string("\x88\xc6\xfa\x1a", 4)};
  checkpoint.tensors[prefix + "weight_scale"] = {"BF16", {1, 1}, std::string("\x80\x3f", 2)};
  checkpoint.tensors[prefix + "weight_shape"] = {"I64", {2}, std::string("\1\0\0\0\0\0\0\0\12\0\0\0\0\0\0\0", 16)};
  const auto read = [&](const char* version) {
    config["version"] = version;
    TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    return ReadLayer(directory.path(), kVersioned).status();
  };
  for (const char* version : {"0.17.0", "0.18.0", "0.17.0.a1", "0.18.1.dev0"}) EXPECT_TRUE(read(version).ok()) << version;
  for (const char* version : {"", "0.17.1.a20260601", "0.18.0rc1"}) {
    const absl::Status status = read(version);
    EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT") << version;
    EXPECT_THAT(std::string(status.message()), HasSubstr("0.17.0 or 0.18.0")) << version;
  }
}

}  // namespace
}  // namespace gemmd

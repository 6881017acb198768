#include "tests/bench/host/bench_format.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status.h"

namespace gemmd::bench {
namespace {

BenchFormat Weights(const char* name, NumberFormat weight, NumberFormat scale, int64_t group) {
  BenchFormat format;
  format.name = name;
  format.spec.weight = weight;
  format.spec.scale = scale;
  format.spec.scale_block_k = group;
  format.x = kBFloat16;
  return format;
}

// 8-bit activations, quantized per token by the caller.
BenchFormat PerToken(BenchFormat format, NumberFormat x) {
  format.x = x;
  format.x_scale_group = 0;
  format.spec.activation = x;
  format.spec.activation_scale = ActivationScaleKind::kDynamicToken;
  return format;
}

BenchFormat Float16(const char* name, NumberFormat weight, NumberFormat scale, int64_t group) {
  BenchFormat format = Weights(name, weight, scale, group);
  format.x = kFloat16;
  format.y = kFloat16;
  return format;
}

BenchFormat Int4ZeroPoints() {
  BenchFormat format = Weights("w4a16_uint4_zp_g128", IntegerFormat(4), kBFloat16, 128);
  format.spec.zero_point = ZeroPointKind::kInteger;
  return format;
}

BenchFormat Nvfp4() {
  BenchFormat format = Weights("w4a16_nvfp4_g16", kFloat4E2M1, kFloat8E4M3, 16);
  format.spec.secondary_scale = SecondaryScaleKind::kTensor;
  return format;
}

BenchFormat Fp8Block() {
  BenchFormat format = Weights("w8a8_fp8_block128", kFloat8E4M3, kFloat32, 128);
  format.spec.scale_block_n = 128;
  format.spec.activation = kFloat8E4M3;
  format.spec.activation_scale = ActivationScaleKind::kDynamicGroup;
  format.spec.activation_group = 128;
  format.x = kFloat8E4M3;
  format.x_scale_group = 128;
  return format;
}

const std::vector<BenchFormat>& Formats() {
  static const auto* formats = new std::vector<BenchFormat>{
      Weights("w4a16_int4_g128", IntegerFormat(4), kBFloat16, 128),
      Float16("w4a16_int4_channel_fp16", IntegerFormat(4), kFloat16, 0),
      Float16("w4a16_int4_g128_fp16", IntegerFormat(4), kFloat16, 128),
      Int4ZeroPoints(),
      Weights("w4a16_mxfp4", kFloat4E2M1, kFloat8E8M0, 32),
      Nvfp4(),
      PerToken(Weights("w4a8_mxfp4", kFloat4E2M1, kFloat8E8M0, 32), kFloat8E4M3),
      PerToken(Weights("w4a8_int4_g128_fp8", IntegerFormat(4), kBFloat16, 128), kFloat8E4M3),
      PerToken(Weights("w4a8_int4_g128_int8", IntegerFormat(4), kBFloat16, 128), kInt8),
      PerToken(Weights("w8a8_fp8_channel", kFloat8E4M3, kFloat32, 0), kFloat8E4M3),
      Fp8Block(),
      PerToken(Weights("w8a8_int8_channel", IntegerFormat(8), kFloat32, 0), kInt8),
      Weights("w8a16_int8_channel", IntegerFormat(8), kBFloat16, 0),
      Weights("w8a16_fp8_channel", kFloat8E4M3, kFloat32, 0),
      Weights("w3a16_int3_g128", IntegerFormat(3), kBFloat16, 128),
      Weights("w2a16_int2_g128", IntegerFormat(2), kBFloat16, 128),
      Weights("w16a16_bf16", kBFloat16, kNoFormat, 0),
      Float16("w16a16_fp16", kFloat16, kNoFormat, 0),
  };
  return *formats;
}

}  // namespace

std::vector<std::string> FormatNames() {
  std::vector<std::string> names;
  for (const BenchFormat& format : Formats()) names.push_back(format.name);
  return names;
}

absl::StatusOr<BenchFormat> FindFormat(const std::string& name) {
  for (const BenchFormat& format : Formats()) {
    if (format.name == name) return format;
  }
  return absl::NotFoundError(
      absl::StrCat("unknown format ", name, "; known: ", absl::StrJoin(FormatNames(), ", ")));
}

}  // namespace gemmd::bench

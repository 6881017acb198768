#include "kernels/select/legality.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

absl::Status NoKernel(absl::string_view message) {
  return Error(absl::StatusCode::kUnimplemented, "NO_KERNEL", message);
}

constexpr int kMmaM = 16;
constexpr int kMmaN = 8;
constexpr int kMmaK = 8;
constexpr int kRowPadding = 4;  // floats; kernels/device/block_tile.cuh
constexpr int kStaticSharedBytes = 48 * 1024;

absl::Status CheckFormats(const LayerConfig& layer) {
  const NumberFormat& weight = layer.weight;
  const bool known = weight.kind == NumberKind::kInteger || weight.kind == NumberKind::kFloat;
  if (!known || weight.bits < 1 || weight.bits > 32 || weight.exponent_bits > 8 ||
      weight.mantissa_bits > 23 || (weight.kind == NumberKind::kInteger && weight.bits > 8)) {
    return NoKernel(absl::StrCat("weights of format ", NumberFormatName(weight), " with ",
                                 weight.bits, " bits have no decode part"));
  }
  const int scale_bits = layer.scale.bits;
  if (layer.scale.present() && scale_bits != 8 && scale_bits != 16 && scale_bits != 32) {
    return NoKernel(absl::StrCat("scales of ", scale_bits, " bits are none of 8, 16, 32"));
  }
  if (layer.zero_point != ZeroPointKind::kNone && weight.kind != NumberKind::kInteger) {
    return NoKernel("zero points need integer weights");
  }
  return absl::OkStatus();
}

absl::Status CheckMultiple(absl::string_view name, int value, int step) {
  if (value > 0 && value % step == 0) return absl::OkStatus();
  return NoKernel(absl::StrCat(name, " ", value, " is not a positive multiple of ", step));
}

absl::Status CheckTiles(const TuningConfig& tuning) {
  if (tuning.warps_m < 1 || tuning.warps_n < 1 || tuning.threads() > 1024) {
    return NoKernel(
        absl::StrCat("warps ", tuning.warps_m, "x", tuning.warps_n, " are not 1 to 32 in all"));
  }
  GEMMD_RETURN_IF_ERROR(CheckMultiple("block_k", tuning.block_k, kMmaK));
  if (tuning.threads() % tuning.block_k != 0) {
    return NoKernel(absl::StrCat("threads ", tuning.threads(), " are not a multiple of block_k ",
                                 tuning.block_k));
  }
  const int rows_per_pass = tuning.threads() / tuning.block_k;
  GEMMD_RETURN_IF_ERROR(CheckMultiple("block_m", tuning.block_m, kMmaM * tuning.warps_m));
  GEMMD_RETURN_IF_ERROR(CheckMultiple("block_n", tuning.block_n, kMmaN * tuning.warps_n));
  GEMMD_RETURN_IF_ERROR(CheckMultiple("block_m", tuning.block_m, rows_per_pass));
  GEMMD_RETURN_IF_ERROR(CheckMultiple("block_n", tuning.block_n, rows_per_pass));
  const int shared_bytes =
      2 * (tuning.block_m + tuning.block_n) * (tuning.block_k + kRowPadding) * 4;
  if (shared_bytes > kStaticSharedBytes) {
    return NoKernel(absl::StrCat("two stages need ", shared_bytes,
                                 " bytes of shared memory, above ", kStaticSharedBytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> ComputeCapability(const std::string& architecture) {
  absl::string_view digits(architecture);
  int capability = 0;
  const bool has_prefix = absl::ConsumePrefix(&digits, "sm_");
  if (!digits.empty() && (digits.back() == 'a' || digits.back() == 'f')) digits.remove_suffix(1);
  if (!has_prefix || digits.empty() || digits.find_first_not_of("0123456789") != digits.npos ||
      !absl::SimpleAtoi(digits, &capability)) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_ARCHITECTURE",
                 absl::StrCat("architecture '", architecture, "' is not sm_<number>[a|f]"));
  }
  return capability;
}

absl::Status Supports(const GemmConfig& config, const std::string& architecture) {
  GEMMD_ASSIGN_OR_RETURN(const int capability, ComputeCapability(architecture));
  if (capability < 80) {
    return NoKernel(absl::StrCat(
        architecture, " has no TF32 matrix unit; the generic kernel needs sm_80 or newer"));
  }
  if (config.compute.weight_terms != 1 && config.compute.weight_terms != 2) {
    return NoKernel(
        absl::StrCat("weight_terms ", config.compute.weight_terms, " is neither 1 nor 2"));
  }
  GEMMD_RETURN_IF_ERROR(CheckFormats(config.layer));
  return CheckTiles(config.tuning);
}

absl::Status SupportsShape(const LayerShape& shape) {
  for (const auto& [name, extent] :
       {std::pair("experts", shape.experts), {"n", shape.n}, {"k", shape.k}}) {
    if (extent < 1 || extent > kLargestExtent) {
      return NoKernel(absl::StrCat(name, " is ", extent, "; kernels take 1 to ", kLargestExtent));
    }
  }
  return absl::OkStatus();
}

}  // namespace gemmd

#include "kernels/weight_args.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/pack/pack_weights.h"
#include "kernels/select/gemm_config.h"

namespace gemmd {

WeightArgs MakeWeightArgs(const QuantSpec& spec, const LayerShape& shape, int64_t scale_columns,
                          const LayerAddresses& addresses) {
  // 0 means one block over everything; a block larger than the extent means the same.
  const auto block = [](int64_t size, int64_t extent) {
    return static_cast<int32_t>(size == 0 ? extent : std::min(size, extent));
  };
  WeightArgs args{};
  args.codes = reinterpret_cast<const uint32_t*>(addresses.codes);
  args.scales = reinterpret_cast<const void*>(addresses.scales);
  args.zero_points = reinterpret_cast<const void*>(addresses.zero_points);
  args.secondary_scales = reinterpret_cast<const float*>(addresses.secondary_scales);
  args.group_index = reinterpret_cast<const int32_t*>(addresses.group_index);
  args.bias = reinterpret_cast<const void*>(addresses.bias);
  args.packed = reinterpret_cast<const void*>(addresses.packed);
  args.channel_factor = reinterpret_cast<const float*>(addresses.channel_factor);
  if (addresses.packed != 0) {
    args.packed_scale_bytes = static_cast<int32_t>(PackArgsOf(spec, shape).scale_unit_bytes());
  }
  args.row_words = spec.RowWords(shape.k);
  args.experts = static_cast<int32_t>(shape.experts);
  args.n = static_cast<int32_t>(shape.n);
  args.k = static_cast<int32_t>(shape.k);
  args.scale_rows = static_cast<int32_t>(spec.ScaleRows(shape.n));
  args.scale_columns = static_cast<int32_t>(scale_columns);
  args.secondary_scale_rows =
      static_cast<int32_t>(spec.secondary_scale == SecondaryScaleKind::kChannel ? shape.n : 1);
  args.scale_block_n = block(spec.scale_block_n, shape.n);
  args.scale_block_k = block(spec.scale_block_k, shape.k);
  args.bias_type = spec.bias == kFloat16    ? ElementType::kFloat16
                   : spec.bias == kBFloat16 ? ElementType::kBFloat16
                                            : ElementType::kFloat32;
  return args;
}

absl::StatusOr<ElementType> ElementTypeOf(const NumberFormat& format, bool is_signed_int) {
  if (format == kFloat32) return ElementType::kFloat32;
  if (format == kFloat16) return ElementType::kFloat16;
  if (format == kBFloat16) return ElementType::kBFloat16;
  if (format == kFloat8E4M3) return ElementType::kFloat8E4M3;
  if (format == kFloat8E5M2) return ElementType::kFloat8E5M2;
  if (format == kInt8 && is_signed_int) return ElementType::kInt8;
  return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_DTYPE",
               absl::StrCat("kernels read no elements of type ", NumberFormatName(format)));
}

}  // namespace gemmd

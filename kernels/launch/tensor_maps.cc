#include "kernels/launch/tensor_maps.h"

#include "kernels/launch/map_cache.h"

namespace gemmd {
namespace {

constexpr int kBoxBytes = 128;  // of a row: what the kernels' swizzle spans
constexpr int kAlignment = 16;
constexpr int64_t kLargestStride = int64_t{1} << 40;

CUtensorMapDataType MapType(ElementType type) {
  switch (type) {
    case ElementType::kBFloat16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case ElementType::kFloat16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case ElementType::kFloat32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case ElementType::kFloat8E4M3:
    case ElementType::kFloat8E5M2:
    case ElementType::kInt8:
      break;
  }
  return CU_TENSOR_MAP_DATA_TYPE_UINT8;
}

// Bytes from row to row; one row may have any.
int64_t RowBytes(const GemmArgs& args) {
  const int64_t bytes = ElementBytes(args.x_type);
  if (args.m > 1) return args.x_row_stride * bytes;
  return (args.weights.k * bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t XScaleColumns(const GemmArgs& args) {
  return (args.weights.k + args.group_scale_columns - 1) / args.group_scale_columns;
}
int64_t XScaleRowBytes(const GemmArgs& args) {
  constexpr int64_t kBytes = sizeof(float);
  if (args.m > 1) return args.group_scale_stride * kBytes;
  return (XScaleColumns(args) * kBytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool IsAddressable(const void* matrix, int64_t row_bytes) {
  return reinterpret_cast<uintptr_t>(matrix) % kAlignment == 0 && row_bytes % kAlignment == 0 &&
         row_bytes < kLargestStride;
}

MapRecipe XRecipe(const GemmKernel& kernel, const GemmArgs& args) {
  return {.matrix = args.x,
          .rows = args.m,
          .columns = args.weights.k,
          .row_bytes = RowBytes(args),
          .box_columns = static_cast<int32_t>(kBoxBytes / ElementBytes(args.x_type)),
          .box_rows = kernel.x_box_rows,
          .type = MapType(args.x_type),
          .swizzle = CU_TENSOR_MAP_SWIZZLE_128B};
}

MapRecipe XScaleRecipe(const GemmKernel& kernel, const GemmArgs& args) {
  return {.matrix = args.group_scale,
          .rows = args.m,
          .columns = XScaleColumns(args),
          .row_bytes = XScaleRowBytes(args),
          .box_columns = kAlignment / static_cast<int32_t>(sizeof(float)),
          .box_rows = kernel.x_box_rows,
          .type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
          .swizzle = CU_TENSOR_MAP_SWIZZLE_NONE};
}

int64_t YRowBytes(const GemmArgs& args) {
  constexpr int64_t kBytes = 2;
  if (args.m > 1) return args.y_row_stride * kBytes;
  return (args.weights.n * kBytes + kAlignment - 1) / kAlignment * kAlignment;
}

MapRecipe YRecipe(const GemmKernel& kernel, const GemmArgs& args) {
  return {.matrix = args.y,
          .rows = args.m,
          .columns = args.weights.n,
          .row_bytes = YRowBytes(args),
          .box_columns = kBoxBytes / 2,
          .box_rows = kernel.y_box_rows,
          .type = CU_TENSOR_MAP_DATA_TYPE_UINT16,
          .swizzle = CU_TENSOR_MAP_SWIZZLE_128B};
}

bool Set(const cuda::DriverTable& driver, const MapRecipe& recipe, TensorMap& to) {
  const TensorMap* const map = MapCache::OfThread().Get(driver, recipe);
  if (map != nullptr) to = *map;
  return map != nullptr;
}

bool HasXScaleMap(const GemmArgs& args) {
  return args.group_scale == nullptr || IsAddressable(args.group_scale, XScaleRowBytes(args));
}
bool IsXAddressable(const GemmArgs& args) { return IsAddressable(args.x, RowBytes(args)); }

}  // namespace

bool HasXMap(const GemmArgs& args) { return IsXAddressable(args) && HasXScaleMap(args); }

void SetXMap(const cuda::DriverTable& driver, const GemmKernel& kernel, GemmArgs& args) {
  args.has_x_map = 0;
  if (kernel.x_box_rows == 0 || !IsXAddressable(args) || args.m < 1) return;
  const bool wants_scales = kernel.needs_x_map && args.group_scale != nullptr;
  if (wants_scales && (!HasXScaleMap(args) ||
                       !Set(driver, XScaleRecipe(kernel, args), args.x_scale_map))) {
    return;
  }
  args.has_x_map = Set(driver, XRecipe(kernel, args), args.x_map) ? 1 : 0;
}

void SetYMap(const cuda::DriverTable& driver, const GemmKernel& kernel, GemmArgs& args) {
  args.has_y_map = 0;
  constexpr int kYBytes = 2;
  // A box at the end of a row is stored up to a multiple of 16 bytes, whoever owns what lies behind.
  const bool has_whole_rows = args.weights.n * kYBytes % kAlignment == 0;
  if (kernel.y_box_rows == 0 || ElementBytes(args.y_type) != kYBytes || !has_whole_rows) return;
  if (args.m < 1 || !IsAddressable(args.y, YRowBytes(args))) return;
  args.has_y_map = Set(driver, YRecipe(kernel, args), args.y_map) ? 1 : 0;
}

}  // namespace gemmd

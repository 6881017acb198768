#include "kernels/launch/x_map.h"

#include <cstring>

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

// Boxes of `box_columns` columns by `box_rows` rows of [m][columns].
struct Boxes {
  CUtensorMapDataType type;
  const void* matrix;
  int64_t columns;
  int64_t row_bytes;
  int box_columns;
  int box_rows;
  CUtensorMapSwizzle swizzle;
};

bool Encode(const cuda::DriverTable& driver, const Boxes& boxes, int64_t m, TensorMap& to) {
  CUtensorMap map;
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(boxes.columns), static_cast<cuuint64_t>(m)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(boxes.row_bytes)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(boxes.box_columns),
                            static_cast<cuuint32_t>(boxes.box_rows)};
  const cuuint32_t every[] = {1, 1};
  const CUresult result = driver.cuTensorMapEncodeTiled(
      &map, boxes.type, 2, const_cast<void*>(boxes.matrix), extents, strides, box, every,
      CU_TENSOR_MAP_INTERLEAVE_NONE, boxes.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return false;
  static_assert(sizeof(map) == sizeof(to));
  std::memcpy(&to, &map, sizeof(map));
  return true;
}

bool EncodeX(const cuda::DriverTable& driver, const GemmKernel& kernel, GemmArgs& args) {
  const Boxes boxes = {.type = MapType(args.x_type),
                       .matrix = args.x,
                       .columns = args.weights.k,
                       .row_bytes = RowBytes(args),
                       .box_columns = static_cast<int>(kBoxBytes / ElementBytes(args.x_type)),
                       .box_rows = kernel.x_box_rows,
                       .swizzle = CU_TENSOR_MAP_SWIZZLE_128B};
  return Encode(driver, boxes, args.m, args.x_map);
}

bool EncodeXScales(const cuda::DriverTable& driver, const GemmKernel& kernel, GemmArgs& args) {
  const Boxes boxes = {.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                       .matrix = args.group_scale,
                       .columns = XScaleColumns(args),
                       .row_bytes = XScaleRowBytes(args),
                       .box_columns = kAlignment / static_cast<int>(sizeof(float)),
                       .box_rows = kernel.x_box_rows,
                       .swizzle = CU_TENSOR_MAP_SWIZZLE_NONE};
  return Encode(driver, boxes, args.m, args.x_scale_map);
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
  if (wants_scales && (!HasXScaleMap(args) || !EncodeXScales(driver, kernel, args))) return;
  args.has_x_map = EncodeX(driver, kernel, args) ? 1 : 0;
}

}  // namespace gemmd

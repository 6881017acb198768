#include "kernels/launch/x_map.h"

#include <cstring>

namespace gemmd {
namespace {

constexpr int kBoxBytes = 128;  // of a row: what the kernels' swizzle spans
constexpr int64_t kAlignment = 16;
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

}  // namespace

bool HasXMap(const GemmArgs& args) {
  const int64_t row_bytes = RowBytes(args);
  return reinterpret_cast<uintptr_t>(args.x) % kAlignment == 0 && row_bytes % kAlignment == 0 &&
         row_bytes < kLargestStride;
}

void SetXMap(const cuda::DriverTable& driver, const GemmKernel& kernel, GemmArgs& args) {
  args.has_x_map = 0;
  if (kernel.x_box_rows == 0 || !HasXMap(args) || args.m < 1) return;
  const int64_t row_bytes = RowBytes(args);
  CUtensorMap map;
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(args.weights.k),
                                static_cast<cuuint64_t>(args.m)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(row_bytes)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(kBoxBytes / ElementBytes(args.x_type)),
                            static_cast<cuuint32_t>(kernel.x_box_rows)};
  const cuuint32_t every[] = {1, 1};
  const CUresult result = driver.cuTensorMapEncodeTiled(
      &map, MapType(args.x_type), 2, const_cast<void*>(args.x), extents, strides, box, every,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return;
  static_assert(sizeof(map) == sizeof(args.x_map));
  std::memcpy(&args.x_map, &map, sizeof(map));
  args.has_x_map = 1;
}

}  // namespace gemmd

#include "core/session/region.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

absl::Status Invalid(absl::string_view reason, absl::string_view message) {
  return Error(absl::StatusCode::kInvalidArgument, reason, message);
}

bool IsElement(const NumberFormat& type) {
  return type.present() &&
         (type.bits == 8 || type.bits == 16 || type.bits == 32 || type.bits == 64);
}

struct Shape {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;
};

absl::StatusOr<Shape> ShapeOf(absl::string_view field, const TensorRef& ref, VectorMeaning vector) {
  const size_t rank = ref.shape.size();
  if (rank != 1 && rank != 2) {
    return Invalid("SHAPE_MISMATCH",
                   absl::StrCat(field, " has ", rank, " dimensions, expected 1 or 2"));
  }
  for (const int64_t extent : ref.shape) {
    if (extent < 0) {
      return Invalid("SHAPE_MISMATCH",
                     absl::StrCat(field, " has the extent ", extent, ", expected 0 or more"));
    }
  }
  Shape shape;
  if (rank == 2) {
    shape = {ref.shape[0], ref.shape[1], ref.row_stride};
  } else if (vector == VectorMeaning::kRow) {
    shape = {1, ref.shape[0], ref.row_stride};
  } else {
    shape = {ref.shape[0], 1, ref.row_stride};
  }
  if (shape.row_stride < 0) {
    return Invalid("STRIDE_TOO_SMALL",
                   absl::StrCat(field, " has row_stride ", shape.row_stride, ", expected at least ",
                                shape.columns, " (its columns)"));
  }
  // One row has no stride to speak of: engines leave anything there.
  if (shape.row_stride == 0 || shape.rows <= 1) shape.row_stride = shape.columns;
  if (shape.row_stride < shape.columns) {
    return Invalid("STRIDE_TOO_SMALL",
                   absl::StrCat(field, " has row_stride ", shape.row_stride, ", expected at least ",
                                shape.columns, " (its columns)"));
  }
  return shape;
}

// Bytes from the first to the end of the last element; false when it does not fit 64 bits.
bool ByteSpan(const Shape& shape, uint64_t element_bytes, uint64_t& bytes) {
  if (shape.rows == 0 || shape.columns == 0) {
    bytes = 0;
    return true;
  }
  uint64_t elements = 0;
  return !__builtin_mul_overflow(static_cast<uint64_t>(shape.rows - 1),
                                 static_cast<uint64_t>(shape.row_stride), &elements) &&
         !__builtin_add_overflow(elements, static_cast<uint64_t>(shape.columns), &elements) &&
         !__builtin_mul_overflow(elements, element_bytes, &bytes);
}

}  // namespace

absl::StatusOr<Extent> ResolveBytes(absl::string_view field, uint64_t offset, uint64_t size,
                                    const Extent& region) {
  if (offset > region.size || size > region.size - offset) {
    return Invalid("REGION_OUT_OF_BOUNDS",
                   absl::StrCat(field, " covers ", size, " bytes from offset ", offset,
                                ", the region has ", region.size, " bytes"));
  }
  return Extent{region.address + offset, size};
}

absl::StatusOr<MatrixView> ResolveMatrix(absl::string_view field, const TensorRef& ref,
                                         const Extent& region, VectorMeaning vector) {
  if (!IsElement(ref.type)) {
    return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_DTYPE",
                 absl::StrCat(field, " has elements of ", static_cast<int>(ref.type.bits),
                              " bits, expected 8, 16, 32 or 64"));
  }
  GEMMD_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(field, ref, vector));
  const uint64_t element_bytes = ref.type.bits / 8u;
  uint64_t bytes = 0;
  if (!ByteSpan(shape, element_bytes, bytes)) {
    return Invalid(
        "REGION_OUT_OF_BOUNDS",
        absl::StrCat(field, " of ", shape.rows, " rows with stride ", shape.row_stride,
                     " covers more than 2^64 bytes, the region has ", region.size, " bytes"));
  }
  GEMMD_ASSIGN_OR_RETURN(const Extent extent, ResolveBytes(field, ref.byte_offset, bytes, region));
  if (extent.address % element_bytes != 0) {
    return Invalid("MISALIGNED_OFFSET",
                   absl::StrCat(field, " starts at byte_offset ", ref.byte_offset,
                                ", its address is not a multiple of ", element_bytes, " bytes"));
  }
  return MatrixView{extent.address, ref.type,      ref.is_signed_int,
                    shape.rows,     shape.columns, shape.row_stride};
}

RegionInfo Region::Info() const {
  return {ref, device->description().id, size, label, mapping->kind()};
}

}  // namespace gemmd

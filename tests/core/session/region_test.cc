#include "core/session/region.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "kernels/base/status.h"

namespace gemmd {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
constexpr int64_t kMaxSigned = std::numeric_limits<int64_t>::max();
constexpr Extent kRegion{0x100000, 4096};

TensorRef Ref(uint64_t offset, std::vector<int64_t> shape, int64_t stride = 0,
              const NumberFormat& type = kFloat16) {
  TensorRef ref;
  ref.byte_offset = offset;
  ref.type = type;
  ref.shape = std::move(shape);
  ref.row_stride = stride;
  return ref;
}

absl::StatusOr<MatrixView> Resolve(const TensorRef& ref,
                                   VectorMeaning vector = VectorMeaning::kRow) {
  return ResolveMatrix("x", ref, kRegion, vector);
}

void ExpectRefused(const TensorRef& ref, absl::string_view reason) {
  const absl::Status status = Resolve(ref).status();
  EXPECT_EQ(ReasonOf(status), std::string(reason)) << status;
  EXPECT_EQ(status.message().find("x "), 0u) << status;
}

TEST(ResolveMatrixTest, FillsTheRegionToTheLastByte) {
  const auto view = Resolve(Ref(96, {40, 50}));
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->address, kRegion.address + 96);
  EXPECT_EQ(view->row_stride, 50);
  ExpectRefused(Ref(98, {40, 50}), "REGION_OUT_OF_BOUNDS");
}

TEST(ResolveMatrixTest, TheLastRowEndsAtItsColumnsNotAtItsStride) {
  // 3 rows of stride 1000: 2 * 1000 + 48 elements.
  EXPECT_TRUE(Resolve(Ref(0, {3, 48}, 1000)).ok());
  ExpectRefused(Ref(0, {3, 49}, 1000), "REGION_OUT_OF_BOUNDS");
}

TEST(ResolveMatrixTest, RefusesStridesBelowTheColumns) {
  ExpectRefused(Ref(0, {3, 48}, 47), "STRIDE_TOO_SMALL");
  ExpectRefused(Ref(0, {3, 48}, -48), "STRIDE_TOO_SMALL");
  ExpectRefused(Ref(0, {1, 48}, -1), "STRIDE_TOO_SMALL");
}

TEST(ResolveMatrixTest, OneRowHasNoStride) {
  const auto view = Resolve(Ref(0, {1, 48}, 1));
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->row_stride, 48);
}

TEST(ResolveMatrixTest, AVectorIsARowOrAColumn) {
  const auto row = Resolve(Ref(0, {48}));
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->rows, 1);
  EXPECT_EQ(row->columns, 48);
  const auto column = Resolve(Ref(0, {48}), VectorMeaning::kColumn);
  ASSERT_TRUE(column.ok());
  EXPECT_EQ(column->rows, 48);
  EXPECT_EQ(column->columns, 1);
}

TEST(ResolveMatrixTest, RefusesShapesThatAreNoMatrix) {
  ExpectRefused(Ref(0, {}), "SHAPE_MISMATCH");
  ExpectRefused(Ref(0, {1, 2, 3}), "SHAPE_MISMATCH");
  ExpectRefused(Ref(0, {-1, 4}), "SHAPE_MISMATCH");
  ExpectRefused(Ref(0, {4, std::numeric_limits<int64_t>::min()}), "SHAPE_MISMATCH");
}

TEST(ResolveMatrixTest, RefusesMisalignedElements) {
  ExpectRefused(Ref(1, {2, 2}), "MISALIGNED_OFFSET");
  ExpectRefused(Ref(2, {2, 2}, 0, kFloat32), "MISALIGNED_OFFSET");
  EXPECT_TRUE(Resolve(Ref(1, {2, 2}, 0, kInt8)).ok());
}

TEST(ResolveMatrixTest, RefusesElementsOfPartsOfBytes) {
  ExpectRefused(Ref(0, {2, 2}, 0, IntegerFormat(4)), "UNSUPPORTED_DTYPE");
  ExpectRefused(Ref(0, {2, 2}, 0, kNoFormat), "UNSUPPORTED_DTYPE");
}

TEST(ResolveMatrixTest, EmptyMatricesAreLegalInsideTheRegion) {
  EXPECT_TRUE(Resolve(Ref(4096, {0, 64})).ok());
  ExpectRefused(Ref(4098, {0, 64}), "REGION_OUT_OF_BOUNDS");
}

TEST(ResolveMatrixTest, ProductsThatWrapAreOutOfBounds) {
  // rows * stride * 2 = 2^64 + 2^33: would look small after wrapping.
  ExpectRefused(Ref(0, {(int64_t{1} << 32) + 1, 1}, int64_t{1} << 31), "REGION_OUT_OF_BOUNDS");
  ExpectRefused(Ref(kMax - 1, {1, 1}), "REGION_OUT_OF_BOUNDS");
  ExpectRefused(Ref(kMax - 62, {1, 32}), "REGION_OUT_OF_BOUNDS");
  ExpectRefused(Ref(0, {kMaxSigned, kMaxSigned}, kMaxSigned), "REGION_OUT_OF_BOUNDS");
  ExpectRefused(Ref(0, {2, 1}, kMaxSigned), "REGION_OUT_OF_BOUNDS");
}

// Whatever is accepted lies inside, by arithmetic in 128 bits that cannot wrap.
class Extremes {
 public:
  explicit Extremes(uint64_t seed) : random_(seed) {}
  uint64_t Next() {
    const uint64_t small = random_() % 80;
    const uint64_t power = uint64_t{1} << (random_() % 64);
    switch (random_() % 6) {
      case 0:
        return small;
      case 1:
        return power;
      case 2:
        return power - small;
      case 3:
        return power + small;
      case 4:
        return kMax - small;
      default:
        return random_() >> (random_() % 64);
    }
  }

 private:
  std::mt19937_64 random_;
};

__extension__ using Wide = unsigned __int128;

// rows and columns below 2^63, stride below 2^63: the product stays below 2^126 + ... < 2^128.
bool Inside(const TensorRef& ref, const MatrixView& view) {
  if (view.rows == 0 || view.columns == 0) return ref.byte_offset <= kRegion.size;
  const Wide elements = static_cast<Wide>(view.rows - 1) * static_cast<Wide>(view.row_stride) +
                        static_cast<Wide>(view.columns);
  const Wide limit = kRegion.size;
  if (elements > limit) return false;
  return elements * (view.type.bits / 8u) + ref.byte_offset <= limit;
}

TEST(ResolveMatrixTest, NeverAcceptsAnythingOutside) {
  constexpr uint64_t kSeed = 20261129;
  SCOPED_TRACE(kSeed);
  Extremes extremes(kSeed);
  const NumberFormat types[] = {kInt8, kFloat16, kFloat32, IntegerFormat(64)};
  int accepted = 0;
  for (int i = 0; i < 200000; ++i) {
    const TensorRef ref =
        Ref(extremes.Next(),
            {static_cast<int64_t>(extremes.Next()), static_cast<int64_t>(extremes.Next())},
            static_cast<int64_t>(extremes.Next()), types[extremes.Next() % 4]);
    const auto view = Resolve(ref);
    if (!view.ok()) continue;
    ++accepted;
    ASSERT_TRUE(Inside(ref, *view))
        << ref.byte_offset << " " << ref.shape[0] << " " << ref.shape[1] << " " << ref.row_stride;
    ASSERT_EQ(view->address % (view->type.bits / 8u), 0u);
    ASSERT_GE(view->row_stride, view->columns);
  }
  EXPECT_GT(accepted, 100);
}

TEST(ResolveBytesTest, NeverAcceptsAnythingOutside) {
  Extremes extremes(7);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t offset = extremes.Next();
    const uint64_t size = extremes.Next();
    const auto extent = ResolveBytes("codes", offset, size, kRegion);
    const bool inside = static_cast<Wide>(offset) + size <= kRegion.size;
    ASSERT_EQ(extent.ok(), inside) << offset << " " << size;
  }
}

}  // namespace
}  // namespace gemmd

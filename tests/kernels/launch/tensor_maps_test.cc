#include "kernels/launch/tensor_maps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <thread>
#include <vector>

#include "kernels/launch/map_cache.h"

namespace gemmd {
namespace {

template <typename T>
const T* At(uintptr_t address) {
  return reinterpret_cast<const T*>(address);
}

// 1000 columns of 8 bits, 8 scales a row.
GemmArgs Args() {
  GemmArgs args{};
  args.weights.k = 1000;
  args.m = 5;
  args.x = At<void>(0x1000);
  args.x_type = ElementType::kFloat8E4M3;
  args.x_row_stride = 1008;
  args.group_scale = At<float>(0x2000);
  args.group_scale_stride = 8;
  args.group_scale_columns = 128;
  return args;
}

TEST(XMapTest, RowsOfXStartAtMultiplesOfSixteenBytes) {
  GemmArgs args = Args();
  EXPECT_TRUE(HasXMap(args));
  args.x_row_stride = 1000;
  EXPECT_FALSE(HasXMap(args));
  args.m = 1;
  EXPECT_TRUE(HasXMap(args)) << "there is no second row";
  args.x = At<void>(0x1008);
  EXPECT_FALSE(HasXMap(args));
}

TEST(XMapTest, SoDoTheRowsOfGroupScales) {
  GemmArgs args = Args();
  args.group_scale_stride = 10;
  EXPECT_FALSE(HasXMap(args));
  args.group_scale_stride = 12;
  EXPECT_TRUE(HasXMap(args)) << "with a gap behind each row";
  args.group_scale = At<float>(0x2004);
  EXPECT_FALSE(HasXMap(args));
  args.group_scale = nullptr;
  EXPECT_TRUE(HasXMap(args));
}

// What the accelerator cannot address: the kernels' threads copy then, or another kernel serves.
TEST(XMapTest, WhatTheAcceleratorCannotAddressHasNoMap) {
  GemmArgs args = Args();
  args.group_scale = nullptr;
  args.x_type = ElementType::kBFloat16;
  args.x_row_stride = 1008;
  ASSERT_TRUE(HasXMap(args));
  for (const uintptr_t offset : {2, 4, 8, 14}) {
    args.x = At<void>(0x1000 + offset);
    EXPECT_FALSE(HasXMap(args)) << offset;
  }
  args.x = At<void>(0x1010);
  EXPECT_TRUE(HasXMap(args));
  for (const int64_t stride : {1001, 1002, 1004, 1007}) {  // elements of two bytes
    args.x_row_stride = stride;
    EXPECT_FALSE(HasXMap(args)) << stride;
  }
  args.x_row_stride = 1008;
  args.m = 131072;
  EXPECT_TRUE(HasXMap(args));
  args.m = 5;
  args.x_row_stride = int64_t{1} << 39;
  EXPECT_FALSE(HasXMap(args)) << "2^40 bytes from row to row";
}

TEST(XMapTest, ColumnsThatAreNoMultipleOfAnythingNeedOnlyAlignedRows) {
  GemmArgs args = Args();
  args.group_scale = nullptr;
  for (const int32_t k : {1, 7, 127, 129, 1001}) {
    args.weights.k = k;
    EXPECT_TRUE(HasXMap(args)) << k;
    args.m = 1;
    args.x_row_stride = k;
    EXPECT_TRUE(HasXMap(args)) << k;
    args.m = 5;
    args.x_row_stride = 1008;
  }
}

// ---- maps that are kept ----

std::atomic<int> encoded{0};
std::atomic<CUresult> encode_result{CUDA_SUCCESS};

// A map that says what it was encoded from.
CUresult Encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t, void* matrix,
                const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  ++encoded;
  const cuuint64_t words[] = {reinterpret_cast<uintptr_t>(matrix), extents[0], extents[1],
                              strides[0], box[0], box[1], static_cast<cuuint64_t>(type),
                              static_cast<cuuint64_t>(swizzle)};
  *map = {};
  std::copy(std::begin(words), std::end(words), map->opaque);
  return encode_result;
}

class MapCacheTest : public ::testing::Test {
 protected:
  MapCacheTest() {
    driver_.cuTensorMapEncodeTiled = &Encode;
    encode_result = CUDA_SUCCESS;
    kernel_.x_box_rows = 64;
    kernel_.needs_x_map = true;
  }

  // Encodings that setting the maps took; they must be right.
  int Encodings(const GemmArgs& from) {
    const int before = encoded;
    GemmArgs args = from;
    SetXMap(driver_, kernel_, args);
    EXPECT_EQ(args.has_x_map, 1u);
    const auto bytes = static_cast<uint64_t>(ElementBytes(args.x_type));
    EXPECT_EQ(args.x_map.words[0], reinterpret_cast<uintptr_t>(args.x));
    EXPECT_EQ(args.x_map.words[1], static_cast<uint64_t>(args.weights.k));
    EXPECT_EQ(args.x_map.words[2], static_cast<uint64_t>(args.m));
    EXPECT_EQ(args.x_map.words[3], static_cast<uint64_t>(args.x_row_stride) * bytes);
    EXPECT_EQ(args.x_map.words[4], 128 / bytes);
    EXPECT_EQ(args.x_map.words[5], static_cast<uint64_t>(kernel_.x_box_rows));
    if (args.group_scale != nullptr) {
      EXPECT_EQ(args.x_scale_map.words[0], reinterpret_cast<uintptr_t>(args.group_scale));
      EXPECT_EQ(args.x_scale_map.words[2], static_cast<uint64_t>(args.m));
      EXPECT_EQ(args.x_scale_map.words[3], static_cast<uint64_t>(args.group_scale_stride) * 4);
      EXPECT_EQ(args.x_scale_map.words[5], static_cast<uint64_t>(kernel_.x_box_rows));
    }
    return encoded - before;
  }

  // In a thread of its own, which has no maps yet.
  template <typename Work>
  static void InNewThread(Work work) {
    std::thread(work).join();
  }

  cuda::DriverTable driver_;
  GemmKernel kernel_;
};

TEST_F(MapCacheTest, YIsMappedWhereTheAcceleratorCanStoreIt) {
  kernel_.y_box_rows = 256;
  GemmArgs args = Args();
  args.weights.n = 1000;
  args.y = reinterpret_cast<void*>(0x3000);
  args.y_type = ElementType::kBFloat16;
  args.y_row_stride = 1008;
  SetYMap(driver_, kernel_, args);
  EXPECT_EQ(args.has_y_map, 1u);
  const uint64_t words[] = {0x3000, 1000, 5, 2016, 64, 256, CU_TENSOR_MAP_DATA_TYPE_UINT16, CU_TENSOR_MAP_SWIZZLE_128B};
  EXPECT_TRUE(std::equal(std::begin(words), std::end(words), args.y_map.words));
  const auto is_mapped = [&](auto change) {
    GemmArgs changed = args;
    GemmKernel kernel = kernel_;
    change(changed, kernel);
    SetYMap(driver_, kernel, changed);
    return changed.has_y_map == 1;
  };
  EXPECT_FALSE(is_mapped([](GemmArgs& a, GemmKernel&) { a.y = reinterpret_cast<void*>(0x3002); }));
  EXPECT_FALSE(is_mapped([](GemmArgs& a, GemmKernel&) { a.y_row_stride = 1001; }));
  EXPECT_FALSE(is_mapped([](GemmArgs& a, GemmKernel&) { a.y_type = ElementType::kFloat32; }));
  EXPECT_FALSE(is_mapped([](GemmArgs&, GemmKernel& k) { k.y_box_rows = 0; }));
  for (const int n : {1001, 1004, 1007}) {
    EXPECT_FALSE(is_mapped([n](GemmArgs& a, GemmKernel&) { a.weights.n = n; })) << "it would write behind N";
  }
  EXPECT_TRUE(is_mapped([](GemmArgs& a, GemmKernel&) { a.weights.n = 1008; }));
  EXPECT_TRUE(is_mapped([](GemmArgs& a, GemmKernel&) { a.m = 1; a.y_row_stride = 1001; })) << "one row has no next";
  encode_result = CUDA_ERROR_INVALID_VALUE;
  EXPECT_FALSE(is_mapped([](GemmArgs& a, GemmKernel&) { a.y = reinterpret_cast<void*>(0x7000); }));
}

TEST_F(MapCacheTest, TheSameMemoryAndShapeIsEncodedOnce) {
  InNewThread([this] {
    EXPECT_EQ(Encodings(Args()), 2);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(Encodings(Args()), 0);
  });
}

TEST_F(MapCacheTest, EverythingThatAMapIsMadeOfCounts) {
  InNewThread([this] {
    GemmArgs base = Args();
    base.group_scale = nullptr;
    EXPECT_EQ(Encodings(base), 1);
    GemmArgs args = base;
    args.x = At<void>(0x1010);
    EXPECT_EQ(Encodings(args), 1) << "address";
    args = base;
    args.m = 6;
    EXPECT_EQ(Encodings(args), 1) << "rows";
    args = base;
    args.x_row_stride = 1024;
    EXPECT_EQ(Encodings(args), 1) << "stride";
    args = base;
    args.weights.k = 999;
    EXPECT_EQ(Encodings(args), 1) << "columns";
    args = base;
    args.x_type = ElementType::kBFloat16;
    EXPECT_EQ(Encodings(args), 1) << "type";
    args.x_type = ElementType::kFloat16;
    EXPECT_EQ(Encodings(args), 1) << "type of the same width";
    kernel_.x_box_rows = 32;
    EXPECT_EQ(Encodings(base), 1) << "box";
    args = Args();
    EXPECT_EQ(Encodings(args), 1) << "of the scales only";
    args.group_scale_stride = 12;
    EXPECT_EQ(Encodings(args), 1) << "stride of the scales";
  });
}

TEST_F(MapCacheTest, MapsThatWantTheSamePlaceTakeTurns) {
  const auto recipe = [](uintptr_t address) {
    return MapRecipe{At<void>(address), 5, 1000, 1008, 128, 64, CU_TENSOR_MAP_DATA_TYPE_UINT8,
                     CU_TENSOR_MAP_SWIZZLE_128B};
  };
  uintptr_t other = 0x2000;
  while (MapCache::PlaceOf(recipe(other)) != MapCache::PlaceOf(recipe(0x1000))) other += 16;
  MapCache cache;
  for (int i = 0; i < 3; ++i) {
    for (const uintptr_t address : {uintptr_t{0x1000}, other}) {
      const int before = encoded;
      EXPECT_EQ(cache.Get(driver_, recipe(address))->words[0], address);
      EXPECT_EQ(cache.Get(driver_, recipe(address))->words[0], address);
      EXPECT_EQ(encoded - before, 1);
    }
  }
}

// A model's activations: a few buffers, each at a few M.
TEST_F(MapCacheTest, SpreadsNeighboursOverTheTable) {
  std::vector<int> at(MapCache::kEntries);
  for (uintptr_t buffer = 0; buffer < 4; ++buffer) {
    for (const int64_t m : {1, 8, 16, 64}) {
      ++at[MapCache::PlaceOf({At<void>(0x7f0000000000 + (buffer << 21)), m, 4096, 8192, 64, 64,
                              CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_128B})];
    }
  }
  EXPECT_GE(std::count_if(at.begin(), at.end(), [](int count) { return count > 0; }), 12);
}

TEST_F(MapCacheTest, AMapThatTheDriverRefusesIsAskedForAgain) {
  InNewThread([this] {
    encode_result = CUDA_ERROR_INVALID_VALUE;
    GemmArgs args = Args();
    SetXMap(driver_, kernel_, args);
    EXPECT_EQ(args.has_x_map, 0u);
    encode_result = CUDA_SUCCESS;
    EXPECT_EQ(Encodings(Args()), 2);
  });
}

TEST_F(MapCacheTest, ThreadsHaveTheirOwn) {
  constexpr int kThreads = 8;
  const int before = encoded;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 200; ++i) {
        GemmArgs args = Args();
        args.m = 5 + t % 2;
        SetXMap(driver_, kernel_, args);
        EXPECT_EQ(args.x_map.words[2], static_cast<uint64_t>(args.m));
        EXPECT_EQ(args.has_x_map, 1u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(encoded - before, 2 * kThreads);
}

}  // namespace
}  // namespace gemmd

#include "kernels/launch/map_cache.h"

#include <cstring>

namespace gemmd {
namespace {

bool Encode(const cuda::DriverTable& driver, const MapRecipe& recipe, TensorMap& to) {
  CUtensorMap map;
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(recipe.columns),
                                static_cast<cuuint64_t>(recipe.rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(recipe.row_bytes)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(recipe.box_columns),
                            static_cast<cuuint32_t>(recipe.box_rows)};
  const cuuint32_t every[] = {1, 1};
  const CUresult result = driver.cuTensorMapEncodeTiled(
      &map, recipe.type, 2, const_cast<void*>(recipe.matrix), extents, strides, box, every,
      CU_TENSOR_MAP_INTERLEAVE_NONE, recipe.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return false;
  static_assert(sizeof(map) == sizeof(to));
  std::memcpy(&to, &map, sizeof(map));
  return true;
}

// Spreads all bits of `value` over those of the result.
uint64_t Mix(uint64_t hash, int64_t value) {
  hash = (hash ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

}  // namespace

MapCache& MapCache::OfThread() {
  static thread_local constinit MapCache cache;
  return cache;
}

size_t MapCache::PlaceOf(const MapRecipe& recipe) {
  uint64_t hash = Mix(0, static_cast<int64_t>(reinterpret_cast<uintptr_t>(recipe.matrix)));
  hash = Mix(hash, recipe.rows);
  hash = Mix(hash, recipe.columns);
  hash = Mix(hash, recipe.row_bytes);
  hash = Mix(hash, (int64_t{recipe.box_rows} << 32) ^ (recipe.box_columns << 16) ^
                       (recipe.type << 8) ^ recipe.swizzle);
  return hash % kEntries;
}

const TensorMap* MapCache::Get(const cuda::DriverTable& driver, const MapRecipe& recipe) {
  Entry& entry = entries_[PlaceOf(recipe)];
  if (entry.recipe == recipe) return &entry.map;
  if (!Encode(driver, recipe, entry.map)) return nullptr;
  entry.recipe = recipe;
  return &entry.map;
}

}  // namespace gemmd

// What    Tensor maps that the thread has encoded, so that launches on the same memory encode them once.
// Keys    Everything that a map is encoded from. It holds an address and extents, nothing that the driver
//         knows of the memory there, so it stays right when the memory is freed and made anew.
// Memory  A table of fixed size for each thread that launches; what two recipes want to have the same place
//         holds the later one.
// Errors  Null: the driver does not encode such a map; that is not remembered.
// Threads Each has its own table: no lock, no allocation.
#ifndef GEMMD_KERNELS_LAUNCH_MAP_CACHE_H_
#define GEMMD_KERNELS_LAUNCH_MAP_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/contract/gemm_args.h"
#include "kernels/cuda/driver.h"

namespace gemmd {

// Boxes of `box_columns` columns by `box_rows` rows of [rows][columns]; what lies outside reads as zeros.
struct MapRecipe {
  const void* matrix;
  int64_t rows;
  int64_t columns;
  int64_t row_bytes;
  int32_t box_columns;
  int32_t box_rows;
  CUtensorMapDataType type;
  CUtensorMapSwizzle swizzle;

  bool operator==(const MapRecipe&) const = default;
};

class MapCache {
 public:
  static constexpr size_t kEntries = 128;  // activations of a model: few addresses, a few M and boxes each

  // The calling thread's.
  static MapCache& OfThread();

  // Valid until the next call.
  const TensorMap* Get(const cuda::DriverTable& driver, const MapRecipe& recipe);

  // Where a recipe's map is kept.
  static size_t PlaceOf(const MapRecipe& recipe);

 private:
  struct Entry {
    MapRecipe recipe;  // of no columns: empty
    TensorMap map;
  };
  std::array<Entry, kEntries> entries_{};
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_LAUNCH_MAP_CACHE_H_

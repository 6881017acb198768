// What    RowRange: numbers of rows of x that requests may have.
#ifndef GEMMD_KERNELS_ROW_RANGE_H_
#define GEMMD_KERNELS_ROW_RANGE_H_

#include <cstdint>
#include <limits>

namespace gemmd {

// Both ends included.
struct RowRange {
  int64_t first = 0;
  int64_t last = std::numeric_limits<int64_t>::max();
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_ROW_RANGE_H_

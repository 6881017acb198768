// What    GemmPlan: which kernel serves a layer at which M, and how it is launched.
// Keys    A pure value: what an attached client will receive, apart from the loaded kernel itself.
// Threads Immutable once built.
#ifndef GEMMD_KERNELS_LAUNCH_GEMM_PLAN_H_
#define GEMMD_KERNELS_LAUNCH_GEMM_PLAN_H_

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/contract/row_mapping.h"
#include "kernels/cuda/driver.h"

namespace gemmd {

// What the blocks of a grid stand for.
enum class GridRule : uint8_t {
  kRowTilesFirst,     // x: tiles of rows of x; y: tiles of N, as many as a grid takes
  kWeightTilesFirst,  // x: clusters for the tiles of N; y: tiles of rows of x
  kAllTiles,          // x: clusters for all tiles, or resident_clusters of them that walk over all
};

struct GemmKernel {
  CUkernel kernel = nullptr;
  std::string name;
  std::string architecture;
  uint64_t numerics = 0;  // kernels/numerics.h; 0 until it is loaded
  RowMapping row_mapping = RowMapping::kDense;
  int block_m = 0;
  int block_n = 0;
  int threads = 0;
  GridRule grid_rule = GridRule::kRowTilesFirst;
  int cluster = 1;            // blocks
  int tiles_per_cluster = 1;      // neighbouring tiles of N
  int row_tiles_per_cluster = 1;  // of M
  int resident_clusters = 0;  // 0 = one for every tile
  int x_box_rows = 0;         // rows of GemmArgs::x_map's box; 0 = the kernel takes no map
  bool needs_x_map = false;   // x must be as HasXMap says
  int y_box_rows = 0;         // rows of GemmArgs::y_map's box; 0 = the kernel takes none
  int dynamic_shared_bytes = 0;
  bool overlaps_previous = false;  // as cuda::LaunchGrid: the kernel waits for the one in front by itself
  bool half_sums = false;          // it sums in float16
  std::vector<std::pair<std::string, std::string>> config;  // for explain
};

struct GemmPlan {
  struct Range {
    int64_t largest_m = std::numeric_limits<int64_t>::max();
    GemmKernel kernel;
  };
  std::vector<Range> ranges;  // ascending largest_m; the last one has no bound

  const GemmKernel& KernelFor(int64_t m) const {
    size_t i = 0;
    while (i + 1 < ranges.size() && m > ranges[i].largest_m) ++i;
    return ranges[i].kernel;
  }
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_LAUNCH_GEMM_PLAN_H_

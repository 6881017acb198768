#include "kernels/launch/gemm_launch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/launch/tensor_maps.h"

namespace gemmd {
namespace {

constexpr int64_t kLargestGridX = (int64_t{1} << 31) - 1;
constexpr int64_t kLargestGridY = 65535;

int64_t MostRowTiles(const GemmKernel& kernel) {
  return kernel.grid_rule == GridRule::kWeightTilesFirst ? kLargestGridY : kLargestGridX;
}

template <typename Pointer>
Pointer* Advance(Pointer* base, int64_t bytes) {
  if (base == nullptr) return nullptr;
  return reinterpret_cast<Pointer*>(reinterpret_cast<uintptr_t>(base) +
                                    static_cast<uintptr_t>(bytes));
}

absl::Status Launch(const cuda::DriverTable& driver, const GemmKernel& kernel, const GemmArgs& args,
                    int64_t row_tiles, CUstream stream) {
  if (row_tiles == 0) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(const cuda::LaunchGrid grid, GemmGrid(kernel, row_tiles, args.weights.n));
  GemmArgs copy = args;
  SetXMap(driver, kernel, copy);
  SetYMap(driver, kernel, copy);
  if (kernel.needs_x_map && copy.has_x_map == 0) {
    return Error(absl::StatusCode::kInternal, "INTERNAL",
                 absl::StrCat(kernel.name, " takes no x whose rows are not aligned"));
  }
  void* params[] = {&copy};
  return cuda::LaunchKernel(driver, kernel.kernel, grid, stream, params);
}

}  // namespace

absl::StatusOr<cuda::LaunchGrid> GemmGrid(const GemmKernel& kernel, int64_t row_tiles, int64_t n) {
  const bool rows_first = kernel.grid_rule == GridRule::kRowTilesFirst;
  const int64_t limit = MostRowTiles(kernel);
  if (row_tiles > limit) {
    return Error(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH",
                 absl::StrCat("x has ", row_tiles, " tiles of ", kernel.block_m,
                              " rows, a launch takes ", limit));
  }
  const int64_t n_tiles = (n + kernel.block_n - 1) / kernel.block_n;
  cuda::LaunchGrid grid;
  grid.block.x = static_cast<unsigned>(kernel.threads);
  grid.dynamic_shared_bytes = static_cast<unsigned>(kernel.dynamic_shared_bytes);
  grid.overlaps_previous = kernel.overlaps_previous;
  if (rows_first) {
    grid.grid.x = static_cast<unsigned>(row_tiles);
    grid.grid.y = static_cast<unsigned>(std::min(n_tiles, kLargestGridY));
  } else {
    const int64_t clusters = (n_tiles + kernel.tiles_per_cluster - 1) / kernel.tiles_per_cluster;
    const int64_t row_clusters = (row_tiles + kernel.row_tiles_per_cluster - 1) / kernel.row_tiles_per_cluster;
    const bool all_along_x = kernel.grid_rule == GridRule::kAllTiles;
    const int64_t most =
        kernel.resident_clusters > 0 ? kernel.resident_clusters : kLargestGridX / kernel.cluster;
    const int64_t along_x = all_along_x ? std::min(clusters * row_clusters, most) : clusters;
    grid.grid.x = static_cast<unsigned>(along_x * kernel.cluster);
    grid.grid.y = static_cast<unsigned>(all_along_x ? 1 : row_tiles);
    grid.cluster.x = static_cast<unsigned>(kernel.cluster);
  }
  return grid;
}

GemmArgs RowsOf(const GemmArgs& args, int64_t first, int64_t rows) {
  GemmArgs part = args;
  part.m = rows;
  if (first == 0) return part;
  part.x = Advance(args.x, first * args.x_row_stride * ElementBytes(args.x_type));
  part.y = Advance(args.y, first * args.y_row_stride * ElementBytes(args.y_type));
  constexpr int64_t kFloat = sizeof(float);
  part.row_scale = Advance(args.row_scale, first * args.row_scale_stride * kFloat);
  part.group_scale = Advance(args.group_scale, first * args.group_scale_stride * kFloat);
  return part;
}

absl::Status LaunchDense(const cuda::DriverTable& driver, const GemmKernel& kernel,
                         const GemmArgs& args, CUstream stream) {
  const int64_t most = MostRowTiles(kernel) * kernel.block_m;
  for (int64_t first = 0; first < args.m; first += most) {
    const int64_t rows = std::min(most, args.m - first);
    GEMMD_RETURN_IF_ERROR(Launch(driver, kernel, RowsOf(args, first, rows),
                                 (rows + kernel.block_m - 1) / kernel.block_m, stream));
  }
  return absl::OkStatus();
}

absl::Status LaunchIndexed(const cuda::DriverTable& driver, const GemmKernel& kernel,
                           const GemmArgs& args, int64_t slots, CUstream stream) {
  return Launch(driver, kernel, args, LargestRowTiles(slots, args.weights.experts, kernel.block_m),
                stream);
}

}  // namespace gemmd

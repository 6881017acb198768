#include "kernels/launch/gemm_launch.h"

#include <gtest/gtest.h>

#include "kernels/base/status.h"
#include "kernels/launch/moe_launch.h"

namespace gemmd {
namespace {

GemmKernel Kernel() {
  GemmKernel kernel;
  kernel.block_m = 64;
  kernel.block_n = 64;
  kernel.threads = 128;
  return kernel;
}

TEST(GemmGridTest, CoversEveryTileOfRowsAndColumns) {
  const absl::StatusOr<cuda::LaunchGrid> grid = GemmGrid(Kernel(), 3, 130);
  ASSERT_TRUE(grid.ok());
  EXPECT_EQ(grid->grid.x, 3u);
  EXPECT_EQ(grid->grid.y, 3u);
  EXPECT_EQ(grid->grid.z, 1u);
  EXPECT_EQ(grid->block.x, 128u);
}

TEST(GemmGridTest, LeavesTheRestOfAHugeNToTheKernel) {
  const absl::StatusOr<cuda::LaunchGrid> grid = GemmGrid(Kernel(), 1, (int64_t{1} << 31) - 4096);
  ASSERT_TRUE(grid.ok());
  EXPECT_EQ(grid->grid.y, 65535u);
}

TEST(GemmGridTest, RefusesMoreRowTilesThanAGridHas) {
  EXPECT_TRUE(GemmGrid(Kernel(), (int64_t{1} << 31) - 1, 1).ok());
  const absl::StatusOr<cuda::LaunchGrid> grid = GemmGrid(Kernel(), int64_t{1} << 31, 1);
  EXPECT_EQ(ReasonOf(grid.status()), "SHAPE_MISMATCH");
}

// The bound must hold for the worst spread of slots over experts.
TEST(LargestRowTilesTest, BoundsEverySpreadOfSlots) {
  for (int64_t slots = 0; slots <= 200; ++slots) {
    for (int64_t experts = 1; experts <= 6; ++experts) {
      // Worst: as many experts as possible with one slot beyond a full tile.
      int64_t left = slots;
      int64_t tiles = 0;
      for (int64_t e = 0; e < experts && left > 0; ++e) {
        const int64_t rows = e + 1 == experts ? left : 1;
        tiles += (rows + 7) / 8;
        left -= rows;
      }
      EXPECT_GE(LargestRowTiles(slots, experts, 8), tiles) << slots << " slots, " << experts;
    }
  }
  EXPECT_EQ(LargestRowTiles(0, 8, 64), 0);
  EXPECT_EQ(LargestRowTiles(1, 1000, 64), 1);
}

TEST(GemmGridTest, WeightTilesComeFirstAndFillClusters) {
  GemmKernel kernel;
  kernel.block_m = 16;
  kernel.block_n = 128;
  kernel.threads = 640;
  kernel.grid_rule = GridRule::kWeightTilesFirst;
  kernel.cluster = 2;
  kernel.dynamic_shared_bytes = 100000;
  const absl::StatusOr<cuda::LaunchGrid> grid = GemmGrid(kernel, 3, 300);
  ASSERT_TRUE(grid.ok());
  EXPECT_EQ(grid->grid.x, 6u);
  EXPECT_EQ(grid->grid.y, 3u);
  EXPECT_EQ(grid->cluster.x, 2u);
  EXPECT_EQ(grid->dynamic_shared_bytes, 100000u);
  EXPECT_EQ(ReasonOf(GemmGrid(kernel, 65536, 300).status()), "SHAPE_MISMATCH");
}

TEST(GemmGridTest, ClustersThatShareTilesAreCountedWhole) {
  GemmKernel kernel;
  kernel.block_m = 256;
  kernel.block_n = 128;
  kernel.threads = 384;
  kernel.grid_rule = GridRule::kAllTiles;
  kernel.cluster = 2;
  kernel.resident_clusters = 66;
  kernel.row_tiles_per_cluster = 2;  // of three, one has no neighbour
  EXPECT_EQ(GemmGrid(kernel, 3, 300)->grid.x, 2u * 2 * 3);
  EXPECT_EQ(GemmGrid(kernel, 1, 300)->grid.x, 2u * 1 * 3);
  EXPECT_EQ(GemmGrid(kernel, 64, 8192)->grid.x, 2u * 66);
  EXPECT_EQ(GemmGrid(kernel, 3, 300)->grid.y, 1u);
}

TEST(RowsOfTest, MovesEveryPointerThatGoesWithTheRows) {
  const auto at = [](uintptr_t address) { return reinterpret_cast<float*>(address); };
  GemmArgs args{};
  args.x = at(1000);
  args.x_type = ElementType::kBFloat16;
  args.x_row_stride = 100;
  args.y = at(2000);
  args.y_type = ElementType::kFloat32;
  args.y_row_stride = 50;
  args.row_scale = at(3000);
  args.row_scale_stride = 1;
  args.m = 70;
  const GemmArgs part = RowsOf(args, 64, 6);
  EXPECT_EQ(part.m, 6);
  EXPECT_EQ(part.x, at(1000 + 64 * 100 * 2));
  EXPECT_EQ(part.y, at(2000 + 64 * 50 * 4));
  EXPECT_EQ(part.row_scale, at(3000 + 64 * 4));
  EXPECT_EQ(part.group_scale, nullptr);
  args.group_scale = at(4000);
  args.group_scale_stride = 3;
  EXPECT_EQ(RowsOf(args, 64, 6).group_scale, at(4000 + 64 * 3 * 4));
}

TEST(GemmPlanTest, PicksTheFirstRangeThatHoldsM) {
  GemmPlan plan;
  plan.ranges.resize(3);
  plan.ranges[0].largest_m = 16;
  plan.ranges[0].kernel.name = "small";
  plan.ranges[1].largest_m = 256;
  plan.ranges[1].kernel.name = "middle";
  plan.ranges[2].kernel.name = "large";
  EXPECT_EQ(plan.KernelFor(0).name, "small");
  EXPECT_EQ(plan.KernelFor(16).name, "small");
  EXPECT_EQ(plan.KernelFor(17).name, "middle");
  EXPECT_EQ(plan.KernelFor(int64_t{1} << 40).name, "large");
}

MoeShape Shape() {
  MoeShape shape;
  shape.tokens = 100;
  shape.top_k = 8;
  shape.experts = 256;
  shape.gate_up_columns = 4096;
  shape.hidden_columns = 2048;
  shape.out_columns = 7168;
  shape.hidden_type = ElementType::kBFloat16;
  shape.routes = true;
  return shape;
}

TEST(MoeWorkspaceTest, PartsFollowEachOtherWithoutOverlap) {
  const MoeWorkspace parts = LayoutMoeWorkspace(Shape());
  const uint64_t slots = 800;
  const std::pair<uint64_t, uint64_t> extents[] = {
      {parts.topk_ids, slots * 4},       {parts.topk_weights, slots * 4},
      {parts.counts, 256 * 8},           {parts.row_offsets, 257 * 8},
      {parts.tile_offsets, 257 * 8},     {parts.sorted_slots, slots * 4},
      {parts.gate_up, slots * 4096 * 4}, {parts.hidden, slots * 2048 * 2},
      {parts.out, slots * 7168 * 4},
  };
  uint64_t end = 0;
  for (const auto& [start, bytes] : extents) {
    EXPECT_GE(start, end);
    EXPECT_EQ(start % 256, 0u);
    end = start + bytes;
  }
  EXPECT_GE(parts.bytes, end);
}

TEST(MoeWorkspaceTest, ProductsWithAnInputScaleHaveRowsOf16Bytes) {
  MoeShape shape = Shape();
  const uint64_t without = LayoutMoeWorkspace(shape).bytes;
  shape.scaled_token_columns = 7161;
  shape.scaled_slot_columns = 2041;
  const MoeWorkspace parts = LayoutMoeWorkspace(shape);
  EXPECT_EQ(parts.scaled_tokens, without);
  EXPECT_EQ(parts.scaled_slots - parts.scaled_tokens, 100u * 7168 * 2);
  EXPECT_EQ(parts.bytes - parts.scaled_slots, 800u * 2048 * 2);
}

TEST(MoeWorkspaceTest, ChunksStayNearTheBudget) {
  MoeShape shape = Shape();
  shape.tokens = 1 << 20;
  const uint64_t budget = uint64_t{512} << 20;
  const int64_t step = MoeTokensAtATime(shape, budget);
  EXPECT_GT(step, 100);
  shape.tokens = step;
  EXPECT_LE(LayoutMoeWorkspace(shape).bytes, budget + (uint64_t{1} << 16));
  EXPECT_EQ(MoeTokensAtATime(shape, 1), 1);
  shape.tokens = 0;
  EXPECT_EQ(MoeTokensAtATime(shape, budget), 1);
  shape.tokens = 1 << 20;
  shape.scaled_token_columns = 7168;
  shape.scaled_slot_columns = 7168;
  shape.tokens = MoeTokensAtATime(shape, budget);
  EXPECT_LT(shape.tokens, step);
  EXPECT_LE(LayoutMoeWorkspace(shape).bytes, budget + (uint64_t{1} << 16));
  shape.tokens = int64_t{1} << 40;
  EXPECT_EQ(MoeTokensAtATime(shape, ~uint64_t{0}), ((int64_t{1} << 31) - 1) / 8) << "a block for each slot";
}

}  // namespace
}  // namespace gemmd

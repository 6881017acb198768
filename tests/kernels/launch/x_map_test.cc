#include "kernels/launch/x_map.h"

#include <cstdint>

#include "gtest/gtest.h"

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

}  // namespace
}  // namespace gemmd

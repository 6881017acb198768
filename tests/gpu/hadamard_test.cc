// Requests with hadamard_block on a GPU against the double-precision product of what the reference makes of x.
// `*Small*` is the part for compute-sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/gpu/gpu_fixture.h"
#include "tests/kernels/hadamard_runner.h"

namespace gemmd::testing {
namespace {

// Accuracy of sums, as in Tolerance: with e4m3 codes the matrix unit keeps fewer bits; where x has 16 bits kernels may
// round weight times scale to its type from 64 rows on, 2^-9 of each product with bfloat16 x.
constexpr int kInt8SumBits = 19;
constexpr int kE4M3SumBits = 11;
constexpr int kWeightSumBits = 9;

class HadamardGemmTest : public GpuTest {
 protected:
  StandardTensor Tensor(const NumberFormat& weight, const NumberFormat& activation, const LayerShape& shape,
                        int64_t group = 0) {
    QuantSpec spec;
    spec.weight = weight;
    spec.scale = kFloat32;
    spec.activation = activation;
    spec.activation_scale =
        group > 0 ? ActivationScaleKind::kDynamicGroup : ActivationScaleKind::kDynamicToken;
    spec.activation_group = group;
    spec.scale_block_n = group > 0 ? group : 1;
    spec.scale_block_k = group;
    return RandomTensor(spec, shape, random_);
  }

  // Odd and even M, every type of x, fast and batch-invariant kernels.
  void RunAll(const StandardTensor& tensor, const std::vector<int64_t>& blocks, const std::vector<int64_t>& rows,
              int sum_bits) {
    const auto layer = runner().Load(tensor);
    ASSERT_NE(layer, nullptr);
    const NumberFormat types[] = {kBFloat16, kFloat16, kFloat32};
    int64_t index = 0;
    for (const int64_t block : blocks) {
      for (const int64_t m : rows) {
        for (const bool batch_invariant : {false, true}) {
          const GemmCase c = CaseAt(index, m, types[index % 3], batch_invariant, sum_bits);
          ++index;
          const GemmRun run = RunHadamardCase(runner(), tensor, layer, c, block, random_);
          ASSERT_FALSE(HasFailure()) << run.report.kernel << ", M " << m << ", block " << block << ", x of "
                                     << int{c.x_type.bits} << " bits, batch-invariant " << batch_invariant;
        }
      }
    }
  }
};

TEST_F(HadamardGemmTest, SmallRequestsThatAreQuantizedBehindTheTransform) {
  for (const auto& [weight, activation] :
       {std::pair(kFloat8E4M3, kFloat8E4M3), std::pair(IntegerFormat(8), kInt8)}) {
    const StandardTensor tensor = Tensor(weight, activation, {1, 130, 640});
    RunAll(tensor, {16, 128}, {0, 1, 3, 17, 77, 131}, activation == kInt8 ? kInt8SumBits : kE4M3SumBits);
  }
}

TEST_F(HadamardGemmTest, SmallRequestsWithScalesPerGroup) {
  RunAll(Tensor(kFloat8E4M3, kFloat8E4M3, {1, 130, 768}, 128), {32, 256}, {1, 17, 131}, kE4M3SumBits);
}

TEST_F(HadamardGemmTest, SmallRequestsThatAreNotQuantized) {
  QuantSpec spec;
  spec.weight = IntegerFormat(4);
  spec.scale = kFloat16;
  spec.scale_block_k = 64;
  RunAll(RandomTensor(spec, {1, 130, 640}, random_), {2, 64}, {0, 1, 17, 131}, kWeightSumBits);
}

TEST_F(HadamardGemmTest, SmallRequestsOnALayerWithAnInputScale) {
  RunAll(WithInputScale(Tensor(kFloat8E4M3, kFloat8E4M3, {1, 130, 640}), random_), {128}, {1, 17, 131},
         kE4M3SumBits);
}

TEST_F(HadamardGemmTest, TheLargestBlockAndLongRows) {
  RunAll(Tensor(kFloat8E4M3, kFloat8E4M3, {1, 1024, 9216}), {512, 1024}, {1, 33, 515}, kE4M3SumBits);
  RunAll(Tensor(IntegerFormat(8), kInt8, {1, 256, 40960}), {1024}, {5}, kInt8SumBits);
}

TEST_F(HadamardGemmTest, SmallBatchInvariantRowsDoNotDependOnM) {
  const StandardTensor tensor = Tensor(kFloat8E4M3, kFloat8E4M3, {1, 130, 640});
  const auto layer = runner().Load(tensor);
  ASSERT_NE(layer, nullptr);
  const HostMatrix x = RandomMatrix(kBFloat16, 77, 640, random_);
  const DeviceMatrix device_x = runner().Upload(x);
  GemmCall call;
  call.layer = layer;
  call.batch_invariant = true;
  call.hadamard_block = 128;
  std::vector<HostMatrix> results;
  for (const int64_t m : {77, 1, 33}) {
    HostMatrix y = PoisonedMatrix(kFloat32, m, 130);
    const DeviceMatrix device_y = runner().Upload(y);
    call.x = device_x.view;
    call.x.rows = m;
    call.y = device_y.view;
    const auto report = RunWhenCompiled(runner(), call);
    ASSERT_TRUE(report.ok()) << report.status();
    runner().Download(device_y, y);
    results.push_back(std::move(y));
  }
  for (const HostMatrix& few : results) {
    for (int64_t row = 0; row < few.rows; ++row) {
      for (int64_t n = 0; n < 130; ++n) {
        ASSERT_EQ(few.bits_at(row, n), results[0].bits_at(row, n)) << few.rows << " rows: " << row << ", " << n;
      }
    }
  }
}

}  // namespace
}  // namespace gemmd::testing

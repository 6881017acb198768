// The problem that kernels are tested with must be right itself: its expected products are those of
// the exact reference, and small enough to be exact whatever the order of a kernel's sums.
#include "kernels/self_test_problem.h"

#include <gtest/gtest.h>

#include "kernels/base/status.h"
#include "kernels/layer_programs.h"
#include "kernels/select/sm90_config.h"
#include "kernels/weight_args.h"
#include "tests/kernels/random_layer.h"

namespace gemmd::testing {
namespace {

NumberFormat FormatOf(ElementType type) {
  for (const NumberFormat& format : {kFloat32, kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2}) {
    if (*ElementTypeOf(format, false) == type) return format;
  }
  return kInt8;
}

Buffer Copy(const SelfTestProblem::Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

StandardTensor TensorOf(const SelfTestProblem& problem) {
  StandardTensor tensor;
  tensor.spec = problem.spec;
  tensor.shape = problem.shape;
  tensor.scale_columns = problem.scale_columns;
  tensor.codes = Copy(problem.codes);
  tensor.scales = Copy(problem.scales);
  tensor.zero_points = Copy(problem.zero_points);
  tensor.secondary_scales = Copy(problem.secondary_scales);
  tensor.group_index = Copy(problem.group_index);
  tensor.bias = Copy(problem.bias);
  return tensor;
}

// Rows of x, with their scales.
std::vector<std::vector<double>> XRows(const SelfTestProblem& problem,
                                       const std::vector<int64_t>& rows) {
  const NumberFormat format = FormatOf(problem.x_type);
  const HostMatrix x{format,          format == kInt8, problem.rows,
                     problem.shape.k, problem.shape.k, Copy(problem.x)};
  const int64_t columns = problem.group_scale_columns;
  std::vector<std::vector<double>> values;
  for (const int64_t row : rows) {
    values.push_back(MatrixRow(x, row));
    for (int64_t k = 0; columns > 0 && k < problem.shape.k; ++k) {
      const int64_t groups = (problem.shape.k + columns - 1) / columns;
      float scale = 0;
      std::memcpy(&scale, problem.group_scales.data() + (row * groups + k / columns) * 4, 4);
      values.back()[static_cast<size_t>(k)] *= scale;
    }
  }
  return values;
}

// The largest sum of |terms| over any 512 columns of K.
double LargestPart(const std::vector<double>& x, const std::vector<double>& w) {
  double largest = 0;
  for (size_t first = 0; first < x.size(); first += 512) {
    double part = 0;
    for (size_t k = first; k < std::min(first + 512, x.size()); ++k) part += std::abs(x[k] * w[k]);
    largest = std::max(largest, part);
  }
  return largest;
}

// Compares some rows and columns with the reference. `most`: bound of LargestPart.
void ExpectRight(const SelfTestProblem& problem, double most) {
  const StandardTensor tensor = TensorOf(problem);
  ASSERT_TRUE(Validate(tensor).ok()) << Validate(tensor);
  std::vector<int64_t> rows;
  for (int64_t m = 0; m < problem.rows; m += m < 3 ? 1 : 17) rows.push_back(m);
  const std::vector<std::vector<double>> x = XRows(problem, rows);
  std::set<float> values;
  for (int64_t n = 0; n < problem.shape.n; n += n % 11 + 1) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t expert = rows[i] % problem.shape.experts;
      const std::vector<double> w = WeightRow(tensor, expert, n);
      const ExactSum sum = ExactDot(x[i], w);
      ASSERT_EQ(problem.Expected(rows[i], n), sum.value + Bias(tensor, expert, n))
          << rows[i] << ", " << n;
      ASSERT_LT(sum.magnitude, 1 << 22) << "float32 sums are exact in any order";
      ASSERT_LT(LargestPart(x[i], w), most) << "in the matrix unit";
      values.insert(problem.Expected(rows[i], n));
    }
  }
  EXPECT_GT(values.size(), 20u) << "elements tell each other apart";
}

// Sums over neighbouring columns, from any to any, are integers of float16's 11 bits.
void ExpectSmallSums(const SelfTestProblem& problem) {
  const StandardTensor tensor = TensorOf(problem);
  const std::vector<std::vector<double>> x = XRows(problem, {0, 1, 2, 3, 4});
  for (int64_t n = 0; n < problem.shape.n; n += n % 7 + 1) {
    const std::vector<double> w = WeightRow(tensor, 0, n);
    for (const std::vector<double>& row : x) {
      double sum = 0, least = 0, most = 0;
      for (size_t k = 0; k < w.size(); ++k) {
        sum += row[k] * w[k];
        least = std::min(least, sum);
        most = std::max(most, sum);
      }
      ASSERT_LE(most - least, 2048) << n;
    }
  }
}

std::vector<QuantSpec> GenericSpecs() {
  std::vector<QuantSpec> specs;
  for (int bits = 1; bits <= 8; ++bits) {
    specs.push_back(Spec(IntegerFormat(bits), bits % 2 == 0 ? kFloat16 : kFloat8E8M0, 1, 100));
    specs.back().zero_point = static_cast<ZeroPointKind>(bits % 3);
    specs.back().secondary_scale = static_cast<SecondaryScaleKind>(bits / 2 % 3);
    specs.back().bias = bits % 2 == 0 ? kBFloat16 : kFloat16;
  }
  for (const NumberFormat& format :
       {kFloat4E2M1, FloatFormat(0, 3), FloatFormat(3, 2), FloatFormat(2, 3), FloatFormat(0, 7),
        kFloat8E4M3, kFloat8E5M2, FloatFormat(3, 4), kFloat16, kBFloat16, kFloat32}) {
    specs.push_back(Spec(format, specs.size() % 2 == 0 ? kFloat8E4M3 : kFloat32, 128, 128));
  }
  specs.push_back(Spec(IntegerFormat(4), kFloat16, 1, 32));
  specs.back().has_group_index = true;
  specs.push_back(Spec(kFloat8E5M2, kNoFormat, 1, 0));
  specs.push_back(Spec(IntegerFormat(8), kFloat32, 0, 0));
  specs.back().bias = kFloat32;
  return specs;
}

TEST(SelfTestProblemTest, GenericKernelsGetTheReferencesProducts) {
  for (const QuantSpec& spec : GenericSpecs()) {
    for (const int64_t experts : {1, 8}) {
      const LayerShape shape = {experts, 512, experts == 1 ? 2048 : 300};
      const auto programs = ProgramsOf(spec, shape, "sm_80");
      ASSERT_TRUE(programs.ok()) << programs.status();
      const GemmKernel& kernel = experts == 1 ? programs->dense->launch : programs->indexed.launch;
      const auto problem = MakeSelfTestProblem(kernel, {.spec = spec, .shape = shape});
      ASSERT_TRUE(problem.ok()) << problem.status();
      EXPECT_EQ(problem->shape.experts, experts == 1 ? 1 : 2);
      ExpectRight(*problem, 1 << 17);
      ASSERT_FALSE(HasFatalFailure()) << int{spec.weight.bits} << " bits, " << experts;
    }
  }
}

TEST(SelfTestProblemTest, SlotsAreSortedByExpertAndEveryOneIsThereOnce) {
  const QuantSpec spec = Spec(IntegerFormat(4), kFloat16, 1, 32);
  const auto programs = ProgramsOf(spec, {4, 64, 64}, "sm_80");
  const auto problem =
      MakeSelfTestProblem(programs->indexed.launch, {.spec = spec, .shape = {4, 64, 64}});
  ASSERT_TRUE(problem.ok());
  ASSERT_EQ(problem->row_offsets.size(), 3u);
  EXPECT_EQ(problem->row_offsets.back(), problem->rows);
  std::vector<uint32_t> slots = problem->sorted_slots;
  for (int64_t i = 0; i < problem->rows; ++i) {
    EXPECT_EQ(slots[static_cast<size_t>(i)] % 2, i < problem->row_offsets[1] ? 0u : 1u);
  }
  std::sort(slots.begin(), slots.end());
  for (size_t i = 0; i < slots.size(); ++i) EXPECT_EQ(slots[i], i);
  EXPECT_EQ(problem->tile_offsets, (std::vector<int64_t>{0, 1, 2}));
}

std::vector<QuantSpec> PackedSpecs() {
  std::vector<QuantSpec> specs = {
      Spec(IntegerFormat(4), kFloat16, 1, 128),  Spec(IntegerFormat(4), kBFloat16, 1, 32),
      Spec(IntegerFormat(4), kFloat16, 1, 0),    Spec(IntegerFormat(4), kFloat16, 1, 48),
      Spec(IntegerFormat(4), kFloat16, 1, 4096), Spec(IntegerFormat(4), kFloat32, 96, 1024),
      Spec(kFloat8E4M3, kFloat32, 128, 128),     Spec(kFloat4E2M1, kFloat8E8M0, 1, 32),
      Spec(IntegerFormat(8), kBFloat16, 1, 0),   Spec(IntegerFormat(3), kFloat16, 1, 64),
  };
  specs[0].zero_point = ZeroPointKind::kInteger;
  specs[1].secondary_scale = SecondaryScaleKind::kChannel;
  specs.push_back(Spec(kFloat8E4M3, kFloat32, 128, 128));
  specs.back().activation = kFloat8E4M3;
  specs.back().activation_scale = ActivationScaleKind::kDynamicGroup;
  specs.back().activation_group = 128;
  specs.push_back(Spec(IntegerFormat(8), kFloat32, 1, 0));
  specs.back().activation = kInt8;
  specs.push_back(Spec(IntegerFormat(4), kFloat32, 1, 128));
  specs.back().activation = kFloat8E4M3;
  return specs;
}

// The generic kernel of a layer with packed weights, dense and indexed.
TEST(SelfTestProblemTest, GenericKernelsOfPackedWeightsGetTheReferencesProducts) {
  for (const QuantSpec& spec : PackedSpecs()) {
    const LayerShape shape = {1, 200, 652};
    const auto programs = ProgramsOf(spec, shape, "sm_90a");
    ASSERT_TRUE(programs.ok()) << programs.status();
    for (const GemmProgram* program : {&*programs->dense, &programs->indexed}) {
      const auto problem = MakeSelfTestProblem(
          program->launch, {.spec = spec, .shape = shape, .has_packed_codes = true});
      ASSERT_TRUE(problem.ok()) << problem.status();
      EXPECT_EQ(problem->shape.experts, 1) << "packed weights have one";
      EXPECT_FALSE(problem->packed.units.empty());
      ExpectRight(*problem, 1 << 17);
      ASSERT_FALSE(HasFatalFailure()) << program->launch.name;
    }
  }
}

// Kernels of every range, for layers whose K is short, odd, and long.
TEST(SelfTestProblemTest, PackedKernelsGetTheReferencesProducts) {
  int tested = 0;
  for (const QuantSpec& spec : PackedSpecs()) {
    for (const LayerShape& shape : {LayerShape{1, 200, 652}, {1, 4096, 8192}, {1, 128, 128}}) {
      const auto programs = ProgramsOf(spec, shape, "sm_90a");
      ASSERT_TRUE(programs.ok()) << programs.status();
      for (const PackedProgram& packed : programs->packed) {
        const SelfTestSubject subject{.spec = spec,
                                      .shape = shape,
                                      .is_packed = true,
                                      .takes_group_scales = programs->packed_takes_group_scales,
                                      .x_type = packed.x_type,
                                      .half_sums = packed.half_sums};
        const auto problem = MakeSelfTestProblem(packed.program.launch, subject);
        ASSERT_TRUE(problem.ok()) << problem.status() << " K " << shape.k << " group "
                                  << spec.scale_block_k;
        EXPECT_FALSE(problem->packed.units.empty());
        EXPECT_LE(problem->rows, packed.largest_m);
        EXPECT_LE(problem->shape.k, shape.k);
        const bool is_float8 =
            packed.x_type == ElementType::kFloat8E4M3 || packed.x_type == ElementType::kFloat8E5M2;
        ExpectRight(*problem, is_float8 ? 1 << 13 : 1 << 18);
        if (packed.half_sums) ExpectSmallSums(*problem);
        ASSERT_FALSE(HasFatalFailure()) << packed.program.launch.name;
        ++tested;
      }
    }
  }
  EXPECT_GT(tested, 100);
}

}  // namespace
}  // namespace gemmd::testing

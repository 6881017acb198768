// Batch-invariant GEMMs on a GPU: a row's bits for every M, its place and its neighbours, by the generic
// kernel and by the one that a request may name; and that nothing changes before it does.
// `*Small*` is the part for compute-sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "core/exec/cpu_numbers.h"
#include "tests/gpu/gemm_fixture.h"

namespace gemmd::testing {
namespace {

class InvariantGemmTest : public GemmTest {
 protected:
  struct Result {
    HostMatrix y;
    CallReport report;
  };

  // Rows of `x` that `rows` names, in that order, as one request.
  Result RunRows(const std::shared_ptr<DeviceLayer>& layer, const HostMatrix& x,
                 const std::vector<int64_t>& rows, uint64_t numerics, int64_t shift = 0) {
    const auto count = static_cast<int64_t>(rows.size());
    const size_t row_bytes = x.bytes.size() / static_cast<size_t>(x.rows);
    HostMatrix part = PoisonedMatrix(x.type, count, x.columns);
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(part.bytes.data() + i * row_bytes,
                  x.bytes.data() + static_cast<size_t>(rows[i]) * row_bytes, row_bytes);
    }
    Result result{PoisonedMatrix(kFloat32, count, layer->shape().n), {}};
    const DeviceMatrix device_x = runner().Upload(part, shift);
    const DeviceMatrix device_y = runner().Upload(result.y);
    GemmCall call;
    call.layer = layer;
    call.x = device_x.view;
    call.y = device_y.view;
    call.batch_invariant = true;
    call.numerics = numerics;
    const absl::StatusOr<CallReport> report = device().RunGemm(runner().stream(), call);
    EXPECT_TRUE(report.ok()) << report.status();
    result.report = report.value_or(CallReport());
    runner().Download(device_y, result.y);
    return result;
  }

  static bool SameRow(const HostMatrix& a, int64_t row_a, const HostMatrix& b, int64_t row_b) {
    const size_t bytes = static_cast<size_t>(a.columns) * sizeof(float);
    return std::memcmp(a.bytes.data() + static_cast<size_t>(row_a) * bytes,
                       b.bytes.data() + static_cast<size_t>(row_b) * bytes, bytes) == 0;
  }

  static std::vector<int64_t> FirstRows(int64_t count) {
    std::vector<int64_t> rows(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) rows[static_cast<size_t>(i)] = i;
    return rows;
  }

  // Every number of rows in `sizes` gives the rows of one request with all of them; so do rows in another
  // order and x whose rows lie crookedly.
  void ExpectInvariant(const std::shared_ptr<DeviceLayer>& layer, const NumberFormat& x_type,
                       const std::vector<int64_t>& sizes, uint64_t numerics) {
    const int64_t most = *std::max_element(sizes.begin(), sizes.end());
    const HostMatrix x = RandomMatrix(x_type, most, layer->shape().k, random_);
    const Result all = RunRows(layer, x, FirstRows(most), numerics);
    EXPECT_TRUE(numerics == 0 || all.report.numerics == numerics) << all.report.kernel;
    const auto compare = [&](const Result& got, const std::vector<int64_t>& rows, const char* what) {
      EXPECT_EQ(got.report.numerics, all.report.numerics);
      EXPECT_EQ(got.report.kernel, all.report.kernel);
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_TRUE(SameRow(got.y, static_cast<int64_t>(i), all.y, rows[i]))
            << what << ", M " << rows.size() << ", row " << rows[i] << ", " << got.report.kernel;
      }
    };
    for (const int64_t m : sizes) {
      const std::vector<int64_t> rows = FirstRows(m);
      compare(RunRows(layer, x, rows, numerics), rows, "first rows");
      if (HasFatalFailure()) return;
    }
    std::vector<int64_t> shuffled = FirstRows(most);
    std::shuffle(shuffled.begin(), shuffled.end(), random_);
    compare(RunRows(layer, x, shuffled, numerics), shuffled, "shuffled");
    compare(RunRows(layer, x, shuffled, numerics, /*shift=*/1), shuffled, "without a map of x");
  }

  // The kernel for x of this type beside the generic one; 0: the layer has none.
  static uint64_t ArmedFor(const DeviceLayer& layer, const NumberFormat& x) {
    for (const KernelNumerics& numerics : layer.numerics()) {
      if (numerics.x == x) return numerics.id;
    }
    return 0;
  }

  bool IsHopper() { return device().description().architecture == "sm_90a"; }
};

std::vector<int64_t> SizesTo(int64_t last) {
  std::vector<int64_t> sizes;
  for (int64_t m = 1; m <= last; ++m) sizes.push_back(m);
  return sizes;
}

TEST_F(InvariantGemmTest, RowsHaveTheSameBitsForEveryMFromOneToThreeHundred) {
  const StandardTensor tensor =
      RandomTensor(Spec(IntegerFormat(4), kBFloat16, 1, 128), {1, 2112, 1152}, random_);
  const auto layer = runner().Load(tensor);
  ASSERT_NE(layer, nullptr);
  ExpectInvariant(layer, kBFloat16, SizesTo(300), 0);
  if (HasFatalFailure() || !IsHopper()) return;
  const uint64_t armed = ArmedFor(*layer, kBFloat16);
  ASSERT_NE(armed, 0u);
  ExpectInvariant(layer, kBFloat16, SizesTo(300), armed);
}

// Splits of K over clusters (few tiles of w), none (many), tails of N and K, many rows.
TEST_F(InvariantGemmTest, ShapesWithAndWithoutAClusterAndManyRows) {
  if (!IsHopper()) GTEST_SKIP() << "the other architectures have the generic kernel only";
  const std::vector<LayerShape> shapes = {
      {1, 130, 652}, {1, 576, 7392}, {1, 4096, 4096}, {1, 28672, 512}};
  for (const LayerShape& shape : shapes) {
    const auto layer =
        runner().Load(RandomTensor(Spec(IntegerFormat(4), kFloat16, 1, 128), shape, random_));
    ASSERT_NE(layer, nullptr);
    for (const NumberFormat& x : {kBFloat16, kFloat16}) {
      const uint64_t armed = ArmedFor(*layer, x);
      ASSERT_NE(armed, 0u);
      ExpectInvariant(layer, x, {1, 7, 8, 31, 32, 33, 64, 129, 2049}, armed);
      ASSERT_FALSE(HasFailure()) << shape.n << " x " << shape.k;
    }
  }
}

TEST_F(InvariantGemmTest, SmallLayersOfEveryKindOfFormat) {
  std::vector<QuantSpec> specs = {Spec(IntegerFormat(8), kFloat32, 1, 0),
                                  Spec(IntegerFormat(3), kFloat16, 1, 64),
                                  Spec(kFloat4E2M1, kFloat8E8M0, 1, 32),
                                  Spec(kFloat8E4M3, kBFloat16, 1, 0)};
  specs.push_back(specs[1]);
  specs.back().zero_point = ZeroPointKind::kInteger;
  for (const QuantSpec& spec : specs) {
    const auto layer = runner().Load(RandomTensor(spec, {1, 200, 652}, random_));
    ASSERT_NE(layer, nullptr);
    ExpectInvariant(layer, kBFloat16, {1, 5, 33, 70}, 0);
    const uint64_t armed = ArmedFor(*layer, kBFloat16);
    if (armed != 0) ExpectInvariant(layer, kBFloat16, {1, 5, 33, 70}, armed);
    ASSERT_FALSE(HasFailure()) << FormatName(spec.weight);
  }
}

// x is quantized in front: token by token, so that neighbours do not matter either.
TEST_F(InvariantGemmTest, QuantizedActivations) {
  for (const NumberFormat& activation : {kInt8, kFloat8E4M3}) {
    QuantSpec spec = Spec(IntegerFormat(4), kBFloat16, 1, 128);
    spec.activation = activation;
    spec.activation_scale = ActivationScaleKind::kDynamicToken;
    const auto layer = runner().Load(RandomTensor(spec, {1, 576, 1152}, random_));
    ASSERT_NE(layer, nullptr);
    ExpectInvariant(layer, kBFloat16, {1, 8, 33, 300}, 0);
    if (!IsHopper()) continue;
    const uint64_t armed = ArmedFor(*layer, activation);
    ASSERT_NE(armed, 0u);
    ExpectInvariant(layer, kBFloat16, {1, 8, 33, 300}, armed);
    ASSERT_FALSE(HasFailure()) << FormatName(activation);
  }
}

TEST_F(InvariantGemmTest, BitsChangeWhereTheRequestNamesTheKernelAndNowhereElse) {
  if (!IsHopper()) GTEST_SKIP() << "the other architectures have the generic kernel only";
  // As the daemon does it: served at once, with a cache that holds nothing.
  CudaDeviceOptions options;
  options.serve_first = true;
  auto devices = CreateCudaDevices(options);
  ASSERT_TRUE(devices.ok());
  Device& daemon = *devices->front();
  DeviceRunner daemon_runner(daemon);
  const StandardTensor tensor =
      RandomTensor(Spec(IntegerFormat(4), kFloat32, 1, 128), {1, 1024, 2048}, random_);
  const auto layer = daemon_runner.Load(tensor);
  ASSERT_NE(layer, nullptr);
  const HostMatrix x = RandomMatrix(kBFloat16, 40, 2048, random_);
  const DeviceMatrix device_x = daemon_runner.Upload(x);
  const auto run = [&](uint64_t numerics) {
    HostMatrix y = PoisonedMatrix(kFloat32, 40, 1024);
    const DeviceMatrix device_y = daemon_runner.Upload(y);
    GemmCall call;
    call.layer = layer;
    call.x = device_x.view;
    call.y = device_y.view;
    call.batch_invariant = true;
    call.numerics = numerics;
    const auto report = daemon.RunGemm(daemon_runner.stream(), call);
    EXPECT_TRUE(report.ok()) << report.status();
    daemon_runner.Download(device_y, y);
    return Result{std::move(y), report.value_or(CallReport())};
  };
  const Result first = run(0);
  uint64_t armed = 0;
  for (int i = 0; i < 600 && armed == 0; ++i) {  // while kernels compile, arrive and are tested
    const Result next = run(0);
    ASSERT_EQ(next.y.bytes, first.y.bytes) << "changed without being told, request " << i;
    ASSERT_EQ(next.report.numerics, first.report.numerics);
    armed = next.report.armed_numerics;
    if (armed == 0) absl::SleepFor(absl::Milliseconds(100));
  }
  ASSERT_NE(armed, 0u) << "no kernel in a minute";
  EXPECT_EQ(run(0).y.bytes, first.y.bytes) << "told, not used";
  const Result swapped = run(armed);
  EXPECT_EQ(swapped.report.numerics, armed);
  EXPECT_THAT(swapped.report.kernel, ::testing::HasSubstr("gemm_sm90"));
  EXPECT_NE(swapped.y.bytes, first.y.bytes) << "the test would see no change at all";
  EXPECT_EQ(run(armed).y.bytes, swapped.y.bytes);
  EXPECT_EQ(run(0).y.bytes, first.y.bytes);
}

}  // namespace
}  // namespace gemmd::testing

// Mixture-of-experts requests on a GPU against the double-precision reference. `*Small*` is the part for
// compute-sanitizer.
#include <gtest/gtest.h>

#include "tests/gpu/gpu_fixture.h"
#include "tests/kernels/moe_runner.h"

namespace gemmd::testing {
namespace {

QuantSpec Spec(const NumberFormat& weight, const NumberFormat& scale, int64_t block_n,
               int64_t block_k) {
  QuantSpec spec;
  spec.weight = weight;
  spec.scale = scale;
  spec.scale_block_n = block_n;
  spec.scale_block_k = block_k;
  return spec;
}

struct MoeLayers {
  StandardTensor gate_up;
  StandardTensor down;
  std::shared_ptr<DeviceLayer> gate_up_layer;
  std::shared_ptr<DeviceLayer> down_layer;
};

struct MoeSize {
  int64_t experts;
  int64_t k;
  int64_t hidden;
  int64_t out;
};

class MoeTest : public GpuTest {
 protected:
  MoeLayers Load(const QuantSpec& spec, const MoeSize& size, bool gated = true,
                 bool interleaved = false, bool integers = false) {
    MoeLayers layers;
    const LayerOptions options{.integer_valued = integers};
    const int64_t rows = gated ? 2 * size.hidden : size.hidden;
    layers.gate_up = RandomTensor(spec, {size.experts, rows, size.k}, random_, options);
    layers.gate_up.gate_up_interleaved = interleaved;
    layers.down = RandomTensor(spec, {size.experts, size.out, size.hidden}, random_, options);
    const auto loaded = LoadAll({layers.gate_up, layers.down});
    layers.gate_up_layer = loaded[0];
    layers.down_layer = loaded[1];
    return layers;
  }

  MoeRun Run(const MoeLayers& layers, MoeCase c) {
    // The CPU device refuses invalid ids instead of masking them.
    c.invalid_ids = device().description().kind == DeviceKind::kCuda;
    if (layers.gate_up_layer == nullptr || layers.down_layer == nullptr) return {};
    MoeRun run = RunMoeCase(runner(), layers.gate_up, layers.down, layers.gate_up_layer,
                            layers.down_layer, c, random_);
    EXPECT_FALSE(HasFailure()) << layers.gate_up.shape.experts << " experts, " << c.tokens
                               << " tokens, top " << c.top_k << ", " << run.report.gate_up.kernel;
    return run;
  }
};

TEST_F(MoeTest, SmallRequestsWithAbsentForeignAndInvalidIds) {
  QuantSpec spec = Spec(IntegerFormat(4), kFloat16, 1, 16);
  spec.bias = kBFloat16;
  const MoeLayers layers = Load(spec, {8, 40, 24, 33});
  for (const int64_t tokens : {0, 1, 3, 17, 65}) {
    Run(layers, {.tokens = tokens, .top_k = 2});
    Run(layers, {.tokens = tokens,
                 .top_k = 3,
                 .first_expert = 4,
                 .total_experts = 16,
                 .gap = 5,
                 .shift = 1});
  }
  Run(layers, {.tokens = 1, .top_k = 8, .y_type = kFloat16});
}

TEST_F(MoeTest, SmallRequestsWithoutAnyExpertGiveZeros) {
  const MoeLayers layers = Load(Spec(IntegerFormat(4), kFloat16, 1, 16), {4, 16, 16, 20});
  const MoeRun run = Run(layers, {.tokens = 5, .y_type = kBFloat16, .all_absent = true});
  for (int64_t m = 0; m < 5; ++m) {
    for (int64_t n = 0; n < 20; ++n) EXPECT_EQ(run.y.bits_at(m, n), 0u);
  }
}

TEST_F(MoeTest, SmallIntegerValuesAreExactForAnyNumberOfExperts) {
  for (const int64_t experts : {1, 8, 257, 1025}) {
    const MoeLayers layers =
        Load(Spec(IntegerFormat(2), kFloat32, 1, 8), {experts, 9, 10, 11}, false, false, true);
    MoeCase c{.tokens = 130,
              .x_type = kFloat32,
              .activation = ActivationFunction::kReluSquared,
              .integer_valued = true};
    for (const int64_t top_k : {int64_t{1}, int64_t{10}}) {
      if (top_k > experts) continue;
      c.top_k = top_k;
      Run(layers, c);
    }
  }
}

TEST_F(MoeTest, SmallActivationFunctionsInBothLayouts) {
  for (const bool interleaved : {false, true}) {
    const MoeLayers layers =
        Load(Spec(kFloat4E2M1, kFloat8E8M0, 1, 32), {6, 70, 40, 50}, true, interleaved);
    Run(layers, {.tokens = 9, .x_type = kFloat32});
    Run(layers, {.tokens = 9, .x_type = kFloat32, .limit = 1.5f});
    Run(layers, {.tokens = 9,
                 .x_type = kBFloat16,
                 .activation = ActivationFunction::kSwigluClamped,
                 .limit = 7});
    Run(layers, {.tokens = 9, .activation = ActivationFunction::kSwigluClamped, .limit = 0.75f});
  }
}

TEST_F(MoeTest, SmallRouterWeightsOnTheInput) {
  const MoeLayers layers = Load(Spec(kFloat8E4M3, kFloat32, 32, 32), {5, 64, 32, 40});
  Run(layers,
      {.tokens = 33, .top_k = 1, .x_type = kFloat32, .router_weight_on_input = true, .gap = 3});
}

TEST_F(MoeTest, SmallRouterLogitsChooseWithTiesToTheLowerId) {
  const MoeLayers layers = Load(Spec(IntegerFormat(4), kFloat16, 1, 16), {9, 32, 16, 24});
  for (const NumberFormat& type : {kFloat32, kBFloat16, kFloat16}) {
    Run(layers, {.tokens = 20,
                 .top_k = 3,
                 .x_type = type,
                 .from_logits = true,
                 .total_experts = 9,
                 .gap = 1});
    Run(layers, {.tokens = 20,
                 .top_k = 4,
                 .x_type = type,
                 .from_logits = true,
                 .renormalize = true,
                 .first_expert = 100,
                 .total_experts = 257});
  }
  Run(layers, {.tokens = 3, .top_k = 9, .from_logits = true});
  Run(layers, {.tokens = 3,
               .top_k = 1,
               .x_type = kFloat32,
               .router_weight_on_input = true,
               .from_logits = true});
}

TEST_F(MoeTest, SmallRowsGiveTheSameBitsEveryTimeAndAtEveryM) {
  const MoeLayers layers = Load(Spec(IntegerFormat(4), kFloat16, 1, 16), {8, 48, 32, 40});
  ASSERT_NE(layers.down_layer, nullptr);
  const HostMatrix x = RandomMatrix(kBFloat16, 150, 48, random_);
  HostMatrix ids = PoisonedMatrix(IntegerFormat(32), 150, 2, 0, true);
  const HostMatrix weights = RandomMatrix(kFloat32, 150, 2, random_);
  for (int64_t i = 0; i < 300; ++i) ids.set(i / 2, i % 2, static_cast<double>(random_() % 8));
  const DeviceMatrix device_x = runner().Upload(x);
  const DeviceMatrix device_ids = runner().Upload(ids);
  const DeviceMatrix device_weights = runner().Upload(weights);
  const auto run = [&](int64_t first, int64_t rows) {
    HostMatrix y = PoisonedMatrix(kFloat32, rows, 40);
    const DeviceMatrix device_y = runner().Upload(y);
    const auto rows_of = [&](MatrixView view) {
      view.address += static_cast<uintptr_t>(first * view.row_stride * view.type.bits / 8);
      view.rows = rows;
      return view;
    };
    MoeCall call;
    call.gate_up = layers.gate_up_layer;
    call.down = layers.down_layer;
    call.x = rows_of(device_x.view);
    call.topk_ids = rows_of(device_ids.view);
    call.topk_weights = rows_of(device_weights.view);
    call.y = device_y.view;
    call.total_experts = 8;
    const auto report = device().RunMoe(runner().stream(), call);
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    runner().Download(device_y, y);
    return y;
  };
  const HostMatrix all = run(0, 150);
  EXPECT_EQ(run(0, 150).bytes, all.bytes);
  for (const int64_t row : {0, 77, 149}) {
    const HostMatrix one = run(row, 1);
    for (int64_t n = 0; n < 40; ++n) ASSERT_EQ(one.bits_at(0, n), all.bits_at(row, n)) << row;
  }
}

TEST_F(MoeTest, ManyExpertsAndOddSizes) {
  const MoeLayers many = Load(Spec(IntegerFormat(4), kBFloat16, 1, 32), {1025, 72, 40, 72});
  Run(many, {.tokens = 300, .top_k = 10, .sampled = 30});
  const MoeLayers nvfp4 = [&] {
    QuantSpec spec = Spec(kFloat4E2M1, kFloat8E4M3, 1, 16);
    spec.secondary_scale = SecondaryScaleKind::kTensor;
    return Load(spec, {512, 512, 80, 512});
  }();
  Run(nvfp4, {.tokens = 40, .top_k = 10, .x_type = kBFloat16, .y_type = kBFloat16, .sampled = 4});
  const MoeLayers w640 = Load(Spec(IntegerFormat(4), kFloat16, 1, 128), {8, 2048, 640, 2048});
  for (const int64_t tokens : {1, 17, 64}) {
    Run(w640, {.tokens = tokens, .x_type = kBFloat16, .sampled = 2});
  }
}

TEST_F(MoeTest, GptOssShapesWithBiasAndClamp) {
  QuantSpec spec = Spec(kFloat4E2M1, kFloat8E8M0, 1, 32);
  spec.bias = kBFloat16;
  const MoeLayers layers = Load(spec, {32, 2880, 2880, 2880}, true, true);
  MoeCase c{.top_k = 4,
            .x_type = kBFloat16,
            .y_type = kBFloat16,
            .activation = ActivationFunction::kSwigluClamped,
            .limit = 7,
            .sampled = 2};
  for (const int64_t tokens : {1, 3, 70}) {
    c.tokens = tokens;
    Run(layers, c);
  }
}

TEST_F(MoeTest, ChunkedRequestsMatch) {
  // 40000 slots of 4 * (4096 + 2 * 2048) bytes and more: two chunks of the default workspace.
  const MoeLayers layers = Load(Spec(IntegerFormat(4), kFloat16, 1, 32), {4, 32, 2048, 2048});
  Run(layers, {.tokens = 20000, .top_k = 2, .gap = 1, .sampled = 5});
}

}  // namespace
}  // namespace gemmd::testing

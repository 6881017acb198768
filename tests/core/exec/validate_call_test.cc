#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "tests/support/fake_device.h"
#include "tests/support/tensors.h"

namespace gemmd {
namespace {

using testing::FakeLayer;
using testing::FakeState;
using testing::Int4Spec;

MatrixView View(uintptr_t address, const NumberFormat& type, int64_t rows, int64_t columns,
                int64_t stride = 0) {
  MatrixView view;
  view.address = address;
  view.type = type;
  view.is_signed_int = type.kind == NumberKind::kInteger;
  view.rows = rows;
  view.columns = columns;
  view.row_stride = stride == 0 ? columns : stride;
  return view;
}

std::shared_ptr<DeviceLayer> Layer(const LayerShape& shape, const QuantSpec& spec = Int4Spec()) {
  StandardTensor tensor;
  tensor.spec = spec;
  tensor.shape = shape;
  return std::make_shared<FakeLayer>(std::make_shared<FakeState>(), tensor);
}

class ValidateGemmTest : public ::testing::Test {
 protected:
  void ExpectRefused(absl::string_view reason, absl::string_view mention) {
    const absl::Status status = ValidateCall(call);
    EXPECT_EQ(ReasonOf(status), std::string(reason)) << status;
    EXPECT_NE(status.message().find(mention), absl::string_view::npos) << status;
  }
  // A valid call.
  GemmCall call{Layer({1, 32, 64}), View(0x10000, kFloat16, 4, 64), std::nullopt,
                View(0x20000, kFloat16, 4, 32)};
};

TEST_F(ValidateGemmTest, AcceptsAValidCallAndNoRows) {
  EXPECT_TRUE(ValidateCall(call).ok());
  call.x.rows = call.y.rows = 0;
  EXPECT_TRUE(ValidateCall(call).ok());
}

TEST_F(ValidateGemmTest, NamesTheExtentThatDoesNotMatch) {
  call.x.columns = 63;
  ExpectRefused("SHAPE_MISMATCH", "x has 63 columns, expected 64");
  call.x.columns = 64;
  call.y.columns = 33;
  ExpectRefused("SHAPE_MISMATCH", "y has 33 columns, expected 32");
  call.y.columns = 32;
  call.y.rows = 5;
  ExpectRefused("SHAPE_MISMATCH", "y has 5 rows, expected 4");
}

TEST_F(ValidateGemmTest, RefusesTypesItCannotCompute) {
  call.x.type = IntegerFormat(32);
  ExpectRefused("UNSUPPORTED_DTYPE", "x has type int32");
  call.x.type = kFloat16;
  call.y.type = kFloat8E4M3;
  ExpectRefused("UNSUPPORTED_DTYPE", "y has type e4m3");
}

TEST_F(ValidateGemmTest, RefusesALayerOfExperts) {
  call.layer = Layer({4, 32, 64});
  ExpectRefused("SHAPE_MISMATCH", "layer has 4 experts, expected 1");
}

TEST_F(ValidateGemmTest, RefusesScalesThatDoNotFit) {
  call.x_scale = View(0x30000, kFloat32, 4, 1);
  ExpectRefused("SHAPE_MISMATCH", "8-bit x");
  call.x.type = kFloat8E4M3;
  EXPECT_TRUE(ValidateCall(call).ok());
  call.x_scale->columns = 2;
  ExpectRefused("SHAPE_MISMATCH", "x_scale has 2 columns, expected 1");
  call.x_scale = View(0x30000, kFloat32, 3, 1);
  ExpectRefused("SHAPE_MISMATCH", "x_scale has 3 rows, expected 4");
  call.x_scale = View(0x30000, kFloat16, 4, 1);
  ExpectRefused("UNSUPPORTED_DTYPE", "x_scale has type float16");
}

TEST_F(ValidateGemmTest, HadamardBlocksArePowersOfTwoThatDivideK) {
  for (const int64_t block : {0, 2, 4, 32, 64}) {
    call.hadamard_block = block;
    EXPECT_TRUE(ValidateCall(call).ok()) << block;
  }
  for (const int64_t block : {1, 3, 48, 128, 2048}) {
    call.hadamard_block = block;
    ExpectRefused("OUT_OF_RANGE", absl::StrCat("options.hadamard_block is ", block,
                                               ", expected one of the blocks for K = 64: 2, 4, 8, 16, 32, 64"));
  }
  call.layer = Layer({1, 32, 65});
  call.x = View(0x10000, kFloat16, 4, 65);
  call.hadamard_block = 2;
  ExpectRefused("OUT_OF_RANGE", "for K = 65: none, K is odd");
}

TEST_F(ValidateGemmTest, LargeKTakesHadamardBlocksOfTheKernelOnly) {
  call.layer = Layer({1, 32, 8192});
  call.x = View(0x10000, kFloat16, 1, 8192);
  call.y = View(0x20000, kFloat16, 1, 32);
  call.hadamard_block = 1024;
  EXPECT_TRUE(ValidateCall(call).ok());
  call.hadamard_block = 2048;
  ExpectRefused("OUT_OF_RANGE", "8, 16, 32, 64, 128, 256, 512, 1024");
}

TEST_F(ValidateGemmTest, QuantizedXIsNotTransformed) {
  call.hadamard_block = 16;
  for (const NumberFormat& type : {kFloat8E4M3, kFloat8E5M2, kInt8}) {
    call.x = View(0x10000, type, 4, 64);
    ExpectRefused("SHAPE_MISMATCH", "options.hadamard_block is 16, but x is");
  }
}

TEST_F(ValidateGemmTest, RefusesOutputOverInput) {
  call.y.address = call.x.address + 64;
  ExpectRefused("SHAPE_MISMATCH", "y and x share memory");
  call.y.address = call.x.address + 4 * 64 * 2;
  EXPECT_TRUE(ValidateCall(call).ok());
}

TEST_F(ValidateGemmTest, AcceptsColumnSlicesOfOneBuffer) {
  call.x = View(0x10000, kFloat16, 4, 64, 96);
  call.y = View(0x10000 + 64 * 2, kFloat16, 4, 32, 96);
  EXPECT_TRUE(ValidateCall(call).ok());
  call.y.address -= 2;
  ExpectRefused("SHAPE_MISMATCH", "y and x share memory");
}

class ValidateMoeTest : public ::testing::Test {
 protected:
  ValidateMoeTest() {
    call.gate_up = Layer({8, 80, 64});
    call.down = Layer({8, 64, 40});
    call.x = View(0x10000, kBFloat16, 3, 64);
    call.y = View(0x20000, kBFloat16, 3, 64);
    call.topk_ids = View(0x30000, IntegerFormat(32), 3, 2);
    call.topk_weights = View(0x40000, kFloat32, 3, 2);
    call.total_experts = 8;
  }
  void ExpectRefused(absl::string_view reason, absl::string_view mention) {
    const absl::Status status = ValidateCall(call);
    EXPECT_EQ(ReasonOf(status), std::string(reason)) << status;
    EXPECT_NE(status.message().find(mention), absl::string_view::npos) << status;
  }
  MoeCall call;
};

TEST_F(ValidateMoeTest, AcceptsAValidCall) { EXPECT_TRUE(ValidateCall(call).ok()); }

TEST_F(ValidateMoeTest, ChainsTheTwoLayers) {
  call.down = Layer({8, 64, 41});
  ExpectRefused("SHAPE_MISMATCH", "gate_up has 80 rows, expected 2 * 41");
  call.down = Layer({7, 64, 40});
  ExpectRefused("SHAPE_MISMATCH", "down has 7 experts, expected 8");
  call.down = Layer({8, 64, 80});
  call.activation = ActivationFunction::kReluSquared;
  EXPECT_TRUE(ValidateCall(call).ok());
}

TEST_F(ValidateMoeTest, BoundsTheExpertsOfThisRank) {
  call.first_expert = 1;
  ExpectRefused("EXPERT_OUT_OF_RANGE", "first_expert 1 + 8");
  call.first_expert = -1;
  ExpectRefused("EXPERT_OUT_OF_RANGE", "first_expert is -1, expected 0 or more");
  call.first_expert = INT64_MAX;
  ExpectRefused("EXPERT_OUT_OF_RANGE", "first_expert 9223372036854775807 + 8 experts");
  call.first_expert = 1;
  call.total_experts = -5;
  ExpectRefused("EXPERT_OUT_OF_RANGE", "total_experts -5");
  call.total_experts = int64_t{1} << 31;
  ExpectRefused("EXPERT_OUT_OF_RANGE", "total_experts 2147483648 is beyond");
}

TEST_F(ValidateMoeTest, BoundsTopK) {
  call.topk_ids = View(0x30000, IntegerFormat(32), 3, 9);
  call.topk_weights = View(0x40000, kFloat32, 3, 9);
  ExpectRefused("SHAPE_MISMATCH", "top_k is 9, expected 1 to 8");
  call.topk_ids.reset();
  call.topk_weights.reset();
  call.router_logits = RouterLogits{View(0x50000, kFloat32, 3, 8), 0, false};
  ExpectRefused("SHAPE_MISMATCH", "top_k is 0");
}

TEST_F(ValidateMoeTest, NeedsExactlyOneKindOfRouting) {
  call.router_logits = RouterLogits{View(0x50000, kFloat32, 3, 8), 2, false};
  ExpectRefused("SHAPE_MISMATCH", "routing is either");
  call.topk_ids.reset();
  ExpectRefused("SHAPE_MISMATCH", "routing is either");
  call.topk_weights.reset();
  EXPECT_TRUE(ValidateCall(call).ok());
  call.router_logits->logits.columns = 7;
  ExpectRefused("SHAPE_MISMATCH", "router_logits has 7 columns, expected 8");
}

TEST_F(ValidateMoeTest, WeightOnInputNeedsOneExpertPerToken) {
  call.router_weight_on_input = true;
  ExpectRefused("SHAPE_MISMATCH", "top_k = 1");
}

TEST_F(ValidateMoeTest, TheClampNeedsALimit) {
  call.activation = ActivationFunction::kSwigluClamped;
  ExpectRefused("SHAPE_MISMATCH", "limit is 0");
  call.limit = -1;
  ExpectRefused("SHAPE_MISMATCH", "limit is -1");
}

}  // namespace
}  // namespace gemmd

#include "server/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "absl/time/clock.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

v1::NumberFormat Float(int exponent, int mantissa) {
  v1::NumberFormat format;
  format.set_kind(v1::NUMBER_KIND_FLOAT);
  format.set_bits(1 + exponent + mantissa);
  format.set_exponent_bits(exponent);
  format.set_mantissa_bits(mantissa);
  return format;
}

TEST(ConvertTest, NumberFormatsRoundTrip) {
  for (const NumberFormat& format :
       {IntegerFormat(1), IntegerFormat(8), kFloat32, kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2,
        kFloat4E2M1, kFloat8E8M0, FloatFormat(0, 7), FloatFormat(3, 4, SpecialValues::kNanOnly)}) {
    const auto back = FromProto(ToProto(format), "format");
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, format);
  }
}

TEST(ConvertTest, DefaultsOfANumberFormatAreFilled) {
  v1::NumberFormat e8m0;
  e8m0.set_kind(v1::NUMBER_KIND_EXPONENT);
  e8m0.set_bits(8);
  EXPECT_EQ(*FromProto(e8m0, "f"), kFloat8E8M0);
  EXPECT_EQ(*FromProto(Float(2, 1), "f"), kFloat4E2M1);
}

TEST(ConvertTest, BadNumberFormatsNameTheField) {
  v1::NumberFormat format = Float(4, 3);
  format.set_bits(9);
  EXPECT_EQ(ReasonOf(FromProto(format, "spec.scale").status()), "OUT_OF_RANGE");
  EXPECT_EQ(FromProto(format, "spec.scale").status().message(),
            "spec.scale.bits is 9, must be 1 + exponent_bits + mantissa_bits = 8");
  format = Float(4, 3);
  format.set_exponent_bits(std::numeric_limits<uint32_t>::max());
  EXPECT_FALSE(FromProto(format, "f").ok());
  format = Float(4, 3);
  format.set_special(static_cast<v1::SpecialValues>(8));
  EXPECT_EQ(ReasonOf(FromProto(format, "f").status()), "UNKNOWN_ENUM");
  format.Clear();
  EXPECT_EQ(ReasonOf(FromProto(format, "f").status()), "MISSING_FIELD");
  format.set_kind(v1::NUMBER_KIND_INTEGER);
  format.set_bits(33);
  EXPECT_EQ(ReasonOf(FromProto(format, "f").status()), "OUT_OF_RANGE");
}

TEST(ConvertTest, QuantSpecsRoundTrip) {
  QuantSpec spec;
  spec.weight = IntegerFormat(4);
  spec.scale = kFloat16;
  spec.scale_block_n = 1;
  spec.scale_block_k = 128;
  spec.zero_point = ZeroPointKind::kInteger;
  spec.secondary_scale = SecondaryScaleKind::kChannel;
  spec.has_group_index = true;
  spec.bias = kBFloat16;
  spec.activation = kFloat8E4M3;
  spec.activation_scale = ActivationScaleKind::kDynamicGroup;
  spec.activation_group = 64;
  const auto back = FromProto(ToProto(spec));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, spec);
  QuantSpec plain;
  plain.weight = kFloat8E4M3;
  EXPECT_EQ(*FromProto(ToProto(plain)), plain);
}

TEST(ConvertTest, UnknownEnumsOfASpecAreRefused) {
  v1::QuantSpec spec;
  *spec.mutable_weight() = Float(4, 3);
  const auto reason = [&spec] { return ReasonOf(FromProto(spec).status()); };
  EXPECT_EQ(reason(), "");
  spec.set_zero_point(static_cast<v1::ZeroPointKind>(9));
  EXPECT_EQ(reason(), "UNKNOWN_ENUM");
  spec.set_zero_point(v1::ZERO_POINT_KIND_NONE);
  spec.set_secondary_scale(static_cast<v1::SecondaryScaleKind>(-1));
  EXPECT_EQ(reason(), "UNKNOWN_ENUM");
  spec.set_secondary_scale(v1::SECONDARY_SCALE_KIND_NONE);
  spec.set_activation_scale(static_cast<v1::ActivationScaleKind>(77));
  EXPECT_EQ(reason(), "UNKNOWN_ENUM");
  spec.set_activation_scale(v1::ACTIVATION_SCALE_KIND_NONE);
  spec.set_scale_block_k(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(reason(), "OUT_OF_RANGE");
}

v1::TensorRef Matrix(v1::DataType type) {
  v1::TensorRef tensor;
  tensor.mutable_region()->set_id(7);
  tensor.mutable_region()->set_generation(3);
  tensor.set_byte_offset(64);
  tensor.set_dtype(type);
  tensor.add_shape(5);
  tensor.add_shape(8);
  tensor.set_row_stride(16);
  return tensor;
}

TEST(ConvertTest, TensorsKeepWhatTheySay) {
  const auto tensor = FromProto(Matrix(v1::DATA_TYPE_BFLOAT16), "x");
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(tensor->region.id, 7u);
  EXPECT_EQ(tensor->region.generation, 3u);
  EXPECT_EQ(tensor->byte_offset, 64u);
  EXPECT_EQ(tensor->type, kBFloat16);
  EXPECT_FALSE(tensor->is_signed_int);
  EXPECT_THAT(tensor->shape, ::testing::ElementsAre(5, 8));
  EXPECT_EQ(tensor->row_stride, 16);
  EXPECT_TRUE(FromProto(Matrix(v1::DATA_TYPE_INT8), "x")->is_signed_int);
  EXPECT_EQ(FromProto(Matrix(v1::DATA_TYPE_INT64), "x")->type.bits, 64);
}

TEST(ConvertTest, EveryDataTypeIsKnown) {
  for (int type = v1::DataType_MIN; type <= v1::DataType_MAX; ++type) {
    const auto tensor = FromProto(Matrix(static_cast<v1::DataType>(type)), "x");
    EXPECT_EQ(tensor.ok(), type != v1::DATA_TYPE_UNSPECIFIED) << type;
  }
}

v1::MoeRequest Moe() {
  v1::MoeRequest moe;
  *moe.mutable_x() = Matrix(v1::DATA_TYPE_FLOAT32);
  *moe.mutable_y() = Matrix(v1::DATA_TYPE_FLOAT32);
  *moe.mutable_router_logits()->mutable_logits() = Matrix(v1::DATA_TYPE_FLOAT32);
  moe.mutable_router_logits()->set_top_k(2);
  return moe;
}

TEST(ConvertTest, MoeDefaultsFollowTheWireContract) {
  v1::MoeRequest moe = Moe();
  EXPECT_EQ(FromProto(moe)->activation, ActivationFunction::kSiluAndMul);
  EXPECT_EQ(FromProto(moe)->limit, 0);
  moe.set_activation(v1::ACTIVATION_FUNCTION_SWIGLU_CLAMPED);
  EXPECT_FLOAT_EQ(FromProto(moe)->alpha, 1.702f);
  EXPECT_FLOAT_EQ(FromProto(moe)->limit, 7.0f);
  moe.set_limit(3);
  EXPECT_FLOAT_EQ(FromProto(moe)->limit, 3.0f);
  EXPECT_EQ(FromProto(moe)->top_k, 2);
}

TEST(ConvertTest, BadMoeRequestsAreRefused) {
  v1::MoeRequest moe = Moe();
  moe.mutable_router_logits()->set_top_k(0);
  EXPECT_EQ(ReasonOf(FromProto(moe).status()), "OUT_OF_RANGE");
  moe = Moe();
  moe.clear_routing();
  EXPECT_EQ(ReasonOf(FromProto(moe).status()), "MISSING_FIELD");
  moe = Moe();
  moe.set_activation(static_cast<v1::ActivationFunction>(42));
  EXPECT_EQ(ReasonOf(FromProto(moe).status()), "UNKNOWN_ENUM");
  moe = Moe();
  moe.set_limit(std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(ReasonOf(FromProto(moe).status()), "OUT_OF_RANGE");
  moe = Moe();
  *moe.mutable_top_k()->mutable_ids() = Matrix(v1::DATA_TYPE_INT32);
  EXPECT_EQ(FromProto(moe).status().message(), "top_k.weights is not set");
}

TEST(ConvertTest, RegionsKeepTheirSource) {
  v1::RegisterRegionRequest request;
  EXPECT_EQ(ReasonOf(FromProto(request).status()), "MISSING_FIELD");
  request.set_device("cpu");
  request.mutable_cuda_ipc()->set_handle(std::string(64, '\0'));
  request.mutable_cuda_ipc()->set_offset(1);
  request.mutable_cuda_ipc()->set_size(2);
  request.mutable_cuda_ipc()->set_allocation_size(3);
  request.mutable_cuda_ipc()->set_buffer_id(4);
  const auto ipc = std::get<CudaIpcSource>(FromProto(request)->source);
  EXPECT_EQ(ipc.handle.size(), 64u);
  EXPECT_EQ(ipc.offset + ipc.size * 10 + ipc.allocation_size * 100 + ipc.buffer_id * 1000, 4321u);
  request.mutable_passed()->set_ticket(9);
  EXPECT_EQ(std::get<PassedSource>(FromProto(request)->source).ticket, 9u);
}

TEST(ConvertTest, ResultsCarryKernelTypeAndTimes) {
  GemmResult result;
  result.device = "cpu";
  result.report = {"cpu_reference", kFloat32, "why"};
  result.timing = {absl::Microseconds(3), absl::Milliseconds(2)};
  const v1::ExecutionReport report = ToProto(result).report();
  EXPECT_EQ(report.device(), "cpu");
  EXPECT_EQ(report.kernel(), "cpu_reference");
  EXPECT_EQ(report.reason(), "why");
  EXPECT_EQ(report.activation_used().bits(), 32u);
  EXPECT_DOUBLE_EQ(report.queue_us(), 3);
  EXPECT_DOUBLE_EQ(report.execute_us(), 2000);
}

TEST(ConvertTest, InfosKeepTheirFields) {
  LayerInfo layer;
  layer.layer_id = 5;
  layer.state = LayerState::kPacking;
  layer.specialised = {.total = 14, .ready = 3, .failed = 1};
  layer.shape = {2, 3, 4};
  layer.spec.weight = IntegerFormat(4);
  layer.references = 6;
  const v1::LayerInfo wire = ToProto(layer);
  EXPECT_EQ(wire.specialised_kernels(), 14u);
  EXPECT_EQ(wire.specialised_kernels_ready(), 3u);
  EXPECT_EQ(wire.specialised_kernels_failed(), 1u);
  EXPECT_EQ(wire.layer_id(), 5u);
  EXPECT_EQ(wire.state(), "PACKING");
  EXPECT_EQ(wire.experts() * 100 + wire.n() * 10 + wire.k(), 234);
  EXPECT_EQ(wire.references(), 6u);
  DeviceStatus device;
  device.health = absl::UnavailableError("fell off the bus");
  EXPECT_FALSE(ToProto(device).ready());
  EXPECT_EQ(ToProto(device).not_ready_reason(), "fell off the bus");
  SessionInfo session;
  session.opened_at = absl::Now() + absl::Hours(1);  // the clock was set back
  EXPECT_EQ(ToProto(session).age_seconds(), 0u);
}

}  // namespace
}  // namespace gemmd

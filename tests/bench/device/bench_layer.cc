#include "tests/bench/device/bench_layer.h"

#include "absl/time/clock.h"
#include "core/exec/cpu_numbers.h"
#include "core/exec/cuda_calls.h"
#include "kernels/base/status.h"
#include "kernels/cuda/memory.h"
#include "kernels/launch/gemm_launch.h"
#include "kernels/launch/quantize_launch.h"
#include "tests/bench/host/random_inputs.h"

namespace gemmd::bench {
namespace {

MatrixView View(uintptr_t address, const NumberFormat& type, int64_t rows, int64_t columns) {
  MatrixView view;
  view.address = address;
  view.type = type;
  view.is_signed_int = type == kInt8;
  view.rows = rows;
  view.columns = columns;
  view.row_stride = columns;
  return view;
}

int64_t ViewBytes(const MatrixView& view) { return view.rows * view.columns * view.type.bits / 8; }

constexpr DenseRequest kHalfSums = {.x_type = ElementType::kFloat16, .half_sums = true};

}  // namespace

absl::StatusOr<std::unique_ptr<BenchLayer>> BenchLayer::Load(Device& device,
                                                             const BenchFormat& format, int64_t n,
                                                             int64_t k, uint64_t seed,
                                                             bool checks) {
  const StandardTensor tensor = RandomLayer(format.spec, n, k, seed);
  GEMMD_RETURN_IF_ERROR(Validate(tensor));
  GEMMD_ASSIGN_OR_RETURN(std::shared_ptr<DeviceLayer> owner, device.LoadLayer(tensor));
  const auto* layer = dynamic_cast<const CudaLayer*>(owner.get());
  if (layer == nullptr) return absl::InternalError("the layer is on no GPU");
  auto checker = checks ? std::make_unique<SampleChecker>(format, tensor, seed) : nullptr;
  return std::unique_ptr<BenchLayer>(
      new BenchLayer(format, std::move(owner), layer, tensor.total_bytes(), std::move(checker)));
}

void BenchLayer::WaitForHalfSums() const {
  if (!has_half_sums()) return;
  layer_->kernels().Note(kHalfSums);
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (absl::Now() < deadline && !layer_->plan()->HasAllFor(kHalfSums)) absl::SleepFor(absl::Milliseconds(5));
}

bool BenchLayer::has_half_sums() const {
  return layer_->plan()->HasPackedFor(kHalfSums);
}

absl::StatusOr<GemmCall> BenchLayer::MakeCall(Inputs& inputs, int64_t m, uintptr_t y) const {
  GemmCall call;
  call.layer = owner_;
  GEMMD_ASSIGN_OR_RETURN(const Inputs::Matrix x, inputs.Activations(format_.x, k()));
  call.x = View(x.address, format_.x, m, k());
  call.y = View(y, format_.y, m, n());
  if (const int64_t columns = format_.XScaleColumns(k()); columns > 0) {
    GEMMD_ASSIGN_OR_RETURN(const Inputs::Matrix scales, inputs.Scales(format_.x, columns));
    call.x_scale = View(scales.address, kFloat32, m, columns);
  }
  GEMMD_RETURN_IF_ERROR(ValidateCall(call));
  return call;
}

// As CudaDevice does for a request: choose, fill in the arguments, launch.
Operation BenchLayer::MakeOperation(const GemmCall& call, CUstream stream) const {
  return [this, call, stream]() -> absl::Status {
    GEMMD_ASSIGN_OR_RETURN(const GemmArgs args, MakeGemmArgs(*layer_, call));
    const std::shared_ptr<const LayerPlan> plan = layer_->plan();
    return LaunchDense(layer_->gpu().driver,
                       plan->DenseKernelFor(DenseRequestOf(args, DenseOptionsOf(call))), args, stream);
  };
}

absl::StatusOr<Row> BenchLayer::Describe(const GemmCall& call) const {
  GEMMD_ASSIGN_OR_RETURN(const GemmArgs args, MakeGemmArgs(*layer_, call));
  const std::shared_ptr<const LayerPlan> plan = layer_->plan();
  const GemmKernel& kernel = plan->DenseKernelFor(DenseRequestOf(args, DenseOptionsOf(call)));
  const CallReport report = ReportOf(kernel, format_.spec, format_.x, layer_->why_not_quantized());
  return DescribeRun(call, kernel, report);
}

Row BenchLayer::DescribeRun(const GemmCall& call, const GemmKernel& kernel,
                            const CallReport& report) const {
  Row row;
  row.implementation = "gemmd";
  row.format = format_.name;
  row.n = n();
  row.k = k();
  row.m = call.x.rows;
  row.x_type = FormatName(call.x.type);
  row.y_type = FormatName(format_.y);
  row.activation_used = FormatName(report.activation_used);
  row.reason = report.reason;
  row.kernel = report.kernel;
  row.config = kernel.config;
  row.weight_bytes = weight_bytes_;
  row.activation_bytes = ViewBytes(call.x) + ViewBytes(call.y) +
                         (call.x_scale.has_value() ? ViewBytes(*call.x_scale) : 0);
  return row;
}

// As CudaDevice does, with a workspace for all rows.
absl::StatusOr<BenchLayer::QuantizedPoint> BenchLayer::MakeQuantized(Inputs& inputs, int64_t m,
                                                                     uintptr_t y,
                                                                     CUstream stream) const {
  QuantizedPoint point;
  const QuantizeKernel* const quantizer = layer_->QuantizerFor(ElementType::kBFloat16);
  if (quantizer == nullptr) return point;
  GemmCall call;
  call.layer = owner_;
  GEMMD_ASSIGN_OR_RETURN(const Inputs::Matrix x, inputs.Activations(kBFloat16, k()));
  call.x = View(x.address, kBFloat16, m, k());
  call.y = View(y, format_.y, m, n());
  GEMMD_RETURN_IF_ERROR(ValidateCall(call));
  const cuda::DriverTable& driver = layer_->gpu().driver;
  QuantizedDense launch{quantizer, nullptr, {}, layer_->tensors_of_x(), 0, m};
  GEMMD_ASSIGN_OR_RETURN(launch.args, MakeGemmArgs(*layer_, call));
  GEMMD_ASSIGN_OR_RETURN(
      cuda::DeviceBuffer buffer,
      cuda::DeviceBuffer::Create(driver, LayoutQuantizeWorkspace(*quantizer, m).bytes));
  const auto workspace = std::make_shared<const cuda::DeviceBuffer>(std::move(buffer));
  launch.workspace = workspace->address();
  const DenseRequest request = DenseRequestOf(
      QuantizeInFront(*quantizer, launch.args, launch.tensors, launch.workspace).gemm, {});
  const std::shared_ptr<const LayerPlan> plan = layer_->plan();
  launch.gemm = &plan->DenseKernelFor(request);
  const CallReport report = ReportOf(*launch.gemm, format_.spec, format_.spec.activation, "");
  point.row = DescribeRun(call, *launch.gemm, report);
  point.row.implementation = "gemmd_quantized";
  point.row.config.emplace_back("quantizer", quantizer->name);
  point.operation = [launch, workspace, plan, &driver, stream] {
    return LaunchQuantizedDense(driver, launch, stream);
  };
  return point;
}

}  // namespace gemmd::bench

#include "kernels/launch/moe_launch.h"

#include <algorithm>
#include <limits>

#include "kernels/base/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/launch/gemm_launch.h"

namespace gemmd {
namespace {

constexpr unsigned kThreads = 256;        // of the kernels that stride
constexpr unsigned kRouteThreads = 128;   // kernels/device/moe_route.cuh
constexpr unsigned kPrefixThreads = 256;  // kernels/device/moe_sort.cuh
constexpr int64_t kLargestGrid = (int64_t{1} << 31) - 1;

uint64_t Take(uint64_t& end, uint64_t bytes) {
  const uint64_t start = end;
  end += (bytes + 255) / 256 * 256;
  return start;
}

// Of products with an input scale, which have the type of x: rows start at multiples of 16 bytes.
uint64_t ScaledRowBytes(const MoeShape& shape, int64_t columns) {
  const auto bytes = static_cast<uint64_t>(columns * ElementBytes(shape.hidden_type));
  return (bytes + 15) / 16 * 16;
}

uint64_t BytesPerSlot(const MoeShape& shape) {
  const auto columns = static_cast<uint64_t>(shape.gate_up_columns + shape.out_columns);
  return columns * sizeof(float) +
         static_cast<uint64_t>(shape.hidden_columns * ElementBytes(shape.hidden_type)) +
         ScaledRowBytes(shape, shape.scaled_slot_columns) + 12;
}

template <typename Args>
absl::Status Launch(const cuda::DriverTable& driver, CUkernel kernel, int64_t blocks,
                    unsigned threads, Args args, CUstream stream) {
  cuda::LaunchGrid grid;
  grid.grid.x = static_cast<unsigned>(std::clamp<int64_t>(blocks, 1, kLargestGrid));
  grid.block.x = threads;
  void* params[] = {&args};
  return cuda::LaunchKernel(driver, kernel, grid, stream, params);
}

// Launches of one request, in order.
class Sequence {
 public:
  Sequence(const cuda::DriverTable& driver, const MoeLaunch& launch, CUstream stream)
      : driver_(driver),
        launch_(launch),
        stream_(stream),
        parts_(LayoutMoeWorkspace(launch.shape)),
        slots_(launch.shape.tokens * launch.shape.top_k),
        routing_(launch.routing) {
    if (!launch.shape.routes) return;
    routing_.topk_ids = At<int32_t>(parts_.topk_ids);
    routing_.topk_weights = At<float>(parts_.topk_weights);
    routing_.ids_row_stride = launch.shape.top_k;
    routing_.weights_row_stride = launch.shape.top_k;
  }

  absl::Status Run() const {
    if (launch_.shape.routes) GEMMD_RETURN_IF_ERROR(Route());
    GEMMD_RETURN_IF_ERROR(Sort());
    GEMMD_RETURN_IF_ERROR(GateUp());
    GEMMD_RETURN_IF_ERROR(Activate());
    GEMMD_RETURN_IF_ERROR(Down());
    return Combine();
  }

 private:
  template <typename T>
  T* At(uint64_t offset) const {
    return reinterpret_cast<T*>(launch_.workspace + offset);
  }

  absl::Status Route() const {
    RouteTopKArgs args = launch_.router;
    args.topk_ids = At<int32_t>(parts_.topk_ids);
    args.topk_weights = At<float>(parts_.topk_weights);
    return Launch(driver_, launch_.kernels.route, launch_.shape.tokens, kRouteThreads, args,
                  stream_);
  }

  absl::Status Sort() const {
    const MoeSortArgs args{routing_,
                           At<unsigned long long>(parts_.counts),
                           At<int64_t>(parts_.row_offsets),
                           At<int64_t>(parts_.tile_offsets),
                           At<uint32_t>(parts_.sorted_slots),
                           launch_.gate_up_kernel->block_m};
    GEMMD_CUDA(driver_, cuMemsetD8Async, launch_.workspace + parts_.counts, 0,
               static_cast<size_t>(launch_.shape.experts) * sizeof(uint64_t), stream_);
    const int64_t blocks = (slots_ + kThreads - 1) / kThreads;
    GEMMD_RETURN_IF_ERROR(Launch(driver_, launch_.kernels.count, blocks, kThreads, args, stream_));
    GEMMD_RETURN_IF_ERROR(
        Launch(driver_, launch_.kernels.prefix, 1, kPrefixThreads, args, stream_));
    return Launch(driver_, launch_.kernels.scatter, blocks, kThreads, args, stream_);
  }

  // A GEMM over sorted slots, without its input and output.
  GemmArgs Indexed(const WeightArgs& weights) const {
    GemmArgs args{};
    args.weights = weights;
    args.sorted_slots = At<uint32_t>(parts_.sorted_slots);
    args.row_offsets = At<int64_t>(parts_.row_offsets);
    args.tile_offsets = At<int64_t>(parts_.tile_offsets);
    args.y_type = ElementType::kFloat32;
    args.split_activations = launch_.x_type == ElementType::kFloat32;
    return args;
  }

  // The input of `args`, whose rows are tokens or (slots_per_input_row 1) slots, becomes its products with the
  // factors.
  absl::Status Multiply(const MoeInputScale& scale, GemmArgs& args) const {
    if (scale.kernel == nullptr) return absl::OkStatus();
    QuantizeArgs multiply{};
    multiply.x = args.x;
    multiply.x_row_stride = args.x_row_stride;
    multiply.input_scale = scale.factors;
    const bool by_token = scale.is_shared && args.slots_per_input_row > 1;
    if (by_token) {
      multiply.m = launch_.shape.tokens;
      multiply.codes = At<void>(parts_.scaled_tokens);
    } else {
      multiply.m = slots_;
      multiply.codes = At<void>(parts_.scaled_slots);
      multiply.routing = routing_;
      multiply.slots_per_x_row = static_cast<int32_t>(args.slots_per_input_row);
      multiply.input_scale_row_stride = scale.is_shared ? 0 : scale.kernel->k;
      args.slots_per_input_row = 1;
    }
    multiply.codes_row_stride = LayoutQuantizeWorkspace(*scale.kernel, 1).codes_row_stride;
    args.x = multiply.codes;
    args.x_row_stride = multiply.codes_row_stride;
    return LaunchQuantize(driver_, *scale.kernel, multiply, stream_);
  }

  absl::Status GateUp() const {
    GemmArgs args = Indexed(launch_.gate_up);
    args.x = launch_.x;
    args.x_type = launch_.x_type;
    args.x_row_stride = launch_.x_row_stride;
    args.y = At<void>(parts_.gate_up);
    args.y_row_stride = launch_.shape.gate_up_columns;
    args.slots_per_input_row = static_cast<uint32_t>(launch_.shape.top_k);
    GEMMD_RETURN_IF_ERROR(Multiply(launch_.gate_up_scale, args));
    if (launch_.router_weight_on_input) {  // top_k is 1: a slot is a token
      args.row_scale = routing_.topk_weights;
      args.row_scale_stride = routing_.weights_row_stride;
    }
    return LaunchIndexed(driver_, *launch_.gate_up_kernel, args, slots_, stream_);
  }

  absl::Status Activate() const {
    MoeActivateArgs args = launch_.activation;
    args.routing = routing_;
    args.in = At<float>(parts_.gate_up);
    args.out = At<void>(parts_.hidden);
    args.columns_out = launch_.shape.hidden_columns;
    args.out_type = launch_.shape.hidden_type;
    return Launch(driver_, launch_.kernels.activate, slots_, kThreads, args, stream_);
  }

  absl::Status Down() const {
    GemmArgs args = Indexed(launch_.down);
    args.x = At<void>(parts_.hidden);
    args.x_type = launch_.shape.hidden_type;
    args.x_row_stride = launch_.shape.hidden_columns;
    args.y = At<void>(parts_.out);
    args.y_row_stride = launch_.shape.out_columns;
    args.slots_per_input_row = 1;
    GEMMD_RETURN_IF_ERROR(Multiply(launch_.down_scale, args));
    return LaunchIndexed(driver_, *launch_.down_kernel, args, slots_, stream_);
  }

  absl::Status Combine() const {
    MoeCombineArgs args{};
    args.routing = routing_;
    args.in = At<float>(parts_.out);
    args.y = launch_.y;
    args.y_row_stride = launch_.y_row_stride;
    args.columns = launch_.shape.out_columns;
    args.y_type = launch_.y_type;
    args.weights_applied = launch_.router_weight_on_input;
    return Launch(driver_, launch_.kernels.combine, launch_.shape.tokens, kThreads, args, stream_);
  }

  const cuda::DriverTable& driver_;
  const MoeLaunch& launch_;
  CUstream stream_;
  const MoeWorkspace parts_;
  const int64_t slots_;
  RoutingArgs routing_;
};

}  // namespace

MoeWorkspace LayoutMoeWorkspace(const MoeShape& shape) {
  const auto slots = static_cast<uint64_t>(shape.tokens * shape.top_k);
  const auto experts = static_cast<uint64_t>(shape.experts);
  MoeWorkspace parts;
  uint64_t& end = parts.bytes;
  parts.topk_ids = Take(end, shape.routes ? slots * sizeof(int32_t) : 0);
  parts.topk_weights = Take(end, shape.routes ? slots * sizeof(float) : 0);
  parts.counts = Take(end, experts * sizeof(uint64_t));
  parts.row_offsets = Take(end, (experts + 1) * sizeof(int64_t));
  parts.tile_offsets = Take(end, (experts + 1) * sizeof(int64_t));
  parts.sorted_slots = Take(end, slots * sizeof(uint32_t));
  parts.gate_up = Take(end, slots * static_cast<uint64_t>(shape.gate_up_columns) * sizeof(float));
  parts.hidden = Take(
      end, slots * static_cast<uint64_t>(shape.hidden_columns * ElementBytes(shape.hidden_type)));
  parts.out = Take(end, slots * static_cast<uint64_t>(shape.out_columns) * sizeof(float));
  parts.scaled_tokens = Take(end, static_cast<uint64_t>(shape.tokens) *
                                      ScaledRowBytes(shape, shape.scaled_token_columns));
  parts.scaled_slots = Take(end, slots * ScaledRowBytes(shape, shape.scaled_slot_columns));
  return parts;
}

int64_t MoeTokensAtATime(const MoeShape& shape, uint64_t budget_bytes) {
  const uint64_t per_token = BytesPerSlot(shape) * static_cast<uint64_t>(shape.top_k) +
                             ScaledRowBytes(shape, shape.scaled_token_columns);
  const uint64_t fitting = std::max<uint64_t>(budget_bytes / per_token, 1);
  // The kernel that multiplies has a block for each slot, all others stride.
  const uint64_t slots = shape.scaled_slot_columns > 0 ? uint64_t{kLargestGrid}
                                                       : std::numeric_limits<uint32_t>::max();
  const uint64_t countable = std::max<uint64_t>(slots / static_cast<uint64_t>(shape.top_k), 1);
  return static_cast<int64_t>(
      std::min({fitting, countable, static_cast<uint64_t>(std::max<int64_t>(shape.tokens, 1))}));
}

absl::Status LaunchMoe(const cuda::DriverTable& driver, const MoeLaunch& launch, CUstream stream) {
  if (launch.shape.tokens == 0) return absl::OkStatus();
  if (launch.gate_up_kernel->block_m != launch.down_kernel->block_m) {
    return Error(absl::StatusCode::kInternal, "NO_KERNEL",
                 "gate_up and down kernels sort rows into tiles of different heights");
  }
  return Sequence(driver, launch, stream).Run();
}

}  // namespace gemmd

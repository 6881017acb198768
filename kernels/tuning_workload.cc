#include "kernels/tuning_workload.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "kernels/base/status.h"
#include "kernels/select/sm90_config.h"
#include "kernels/tune/synthetic_layer.h"
#include "kernels/weight_args.h"

namespace gemmd {
namespace {

constexpr uint64_t kSeed = 20261130;
constexpr int64_t kRandomElements = int64_t{1} << 20;  // longer tensors repeat them

// Device memory of one tensor after another.
class Uploader {
 public:
  Uploader(const cuda::DriverTable& driver, std::vector<cuda::DeviceBuffer>& memory)
      : driver_(driver), memory_(memory) {}

  absl::StatusOr<uintptr_t> Add(absl::Span<const std::byte> bytes) {
    return AddRepeated(bytes, bytes.size());
  }

  // `pattern`, again and again, up to `size` bytes.
  absl::StatusOr<uintptr_t> AddRepeated(absl::Span<const std::byte> pattern, uint64_t size) {
    if (size == 0) return uintptr_t{0};
    GEMMD_ASSIGN_OR_RETURN(cuda::DeviceBuffer buffer, cuda::DeviceBuffer::Create(driver_, size));
    const uintptr_t base = buffer.address();
    memory_.push_back(std::move(buffer));
    uint64_t filled = std::min<uint64_t>(pattern.size(), size);
    GEMMD_CUDA(driver_, cuMemcpyHtoD, base, pattern.data(), filled);
    while (filled < size) {
      const uint64_t more = std::min(filled, size - filled);
      GEMMD_CUDA(driver_, cuMemcpyDtoD, base + filled, base, more);
      filled += more;
    }
    return base;
  }

  absl::StatusOr<uintptr_t> AddRandom(ElementType type, int64_t count) {
    const std::vector<std::byte> pattern =
        RandomElements(type, std::min(count, kRandomElements), kSeed + memory_.size());
    return AddRepeated(pattern, static_cast<uint64_t>(count * ElementBytes(type)));
  }

 private:
  const cuda::DriverTable& driver_;
  std::vector<cuda::DeviceBuffer>& memory_;
};

absl::Status AddWeights(Uploader& uploader, const QuantSpec& spec, const LayerShape& shape,
                        GemmArgs& args) {
  GEMMD_ASSIGN_OR_RETURN(const PackedWeights packed, MakeSyntheticWeights(spec, shape, kSeed));
  LayerAddresses addresses;
  GEMMD_ASSIGN_OR_RETURN(addresses.packed, uploader.Add(packed.units));
  GEMMD_ASSIGN_OR_RETURN(addresses.channel_factor, uploader.Add(packed.channel_factor));
  if (spec.bias.present()) {
    GEMMD_ASSIGN_OR_RETURN(const ElementType type, ElementTypeOf(spec.bias, false));
    GEMMD_ASSIGN_OR_RETURN(addresses.bias, uploader.AddRandom(type, shape.n));
  }
  args.weights = MakeWeightArgs(spec, shape, spec.ScaleColumns(shape.k), addresses);
  return absl::OkStatus();
}

absl::Status AddActivationScales(Uploader& uploader, const QuantSpec& spec, const LayerShape& shape,
                                 int64_t rows, GemmArgs& args) {
  const auto add = [&](int64_t count, const float*& to) -> absl::Status {
    GEMMD_ASSIGN_OR_RETURN(const uintptr_t address,
                           uploader.AddRandom(ElementType::kFloat32, count));
    to = reinterpret_cast<const float*>(address);
    return absl::OkStatus();
  };
  if (Sm90TakesXScales(spec, shape)) {
    const int64_t groups = (shape.k + spec.activation_group - 1) / spec.activation_group;
    args.group_scale_stride = groups;
    args.group_scale_columns = static_cast<int32_t>(spec.activation_group);
    args.split_activations = 1;
    return add(rows * groups, args.group_scale);
  }
  if (spec.activation_scale == ActivationScaleKind::kNone) return absl::OkStatus();
  if (spec.activation_scale == ActivationScaleKind::kStaticTensor) {
    return add(1, args.weights.activation_scale);
  }
  args.row_scale_stride = 1;
  return add(rows, args.row_scale);
}

}  // namespace

absl::StatusOr<TuningWorkload> TuningWorkload::Create(const cuda::DriverTable& driver,
                                                      const QuantSpec& spec,
                                                      const LayerShape& shape, ElementType x_type,
                                                      int64_t most_m) {
  TuningWorkload workload;
  Uploader uploader(driver, workload.memory_);
  GemmArgs& args = workload.args_;
  GEMMD_RETURN_IF_ERROR(AddWeights(uploader, spec, shape, args));
  GEMMD_RETURN_IF_ERROR(AddActivationScales(uploader, spec, shape, most_m, args));
  GEMMD_ASSIGN_OR_RETURN(const uintptr_t x, uploader.AddRandom(x_type, most_m * shape.k));
  GEMMD_ASSIGN_OR_RETURN(const uintptr_t y,
                         uploader.AddRandom(ElementType::kBFloat16, most_m * shape.n));
  args.x = reinterpret_cast<const void*>(x);
  args.y = reinterpret_cast<void*>(y);
  args.x_row_stride = shape.k;
  args.y_row_stride = shape.n;
  args.x_type = x_type;
  args.y_type = ElementType::kBFloat16;
  // Copies from pageable memory may return before they are complete; other streams do not wait for them.
  GEMMD_CUDA(driver, cuStreamSynchronize, nullptr);
  return workload;
}

GemmArgs TuningWorkload::Args(int64_t m) const {
  GemmArgs args = args_;
  args.m = m;
  return args;
}

}  // namespace gemmd

#include "kernels/self_test.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "kernels/base/status.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kernels/device/element.cuh"
#include "kernels/launch/gemm_launch.h"
#include "kernels/weight_args.h"

namespace gemmd {
namespace {

constexpr absl::Duration kLimit = absl::Minutes(1);  // other processes may keep the GPU busy
constexpr absl::Duration kPoll = absl::Microseconds(50);
constexpr size_t kAlignment = 256;
constexpr size_t kGuardBytes = 4096;            // on both sides of y
constexpr std::byte kPoison = std::byte{0xff};  // a NaN in every float

absl::Status Failed(absl::string_view why) {
  return Error(absl::StatusCode::kInternal, "SELF_TEST_FAILED", why);
}

// What an error of the launch, or after it, says about the kernel.
absl::Status Verdict(const absl::Status& ran) {
  if (!absl::IsDataLoss(ran)) return Failed(ran.message());
  return Error(absl::StatusCode::kDataLoss, "SELF_TEST_FAILED", ran.message());
}

// Offsets of a problem's tensors in one piece of memory; nothing where there is no such tensor.
struct Places {
  using Place = std::optional<size_t>;
  Place codes, scales, zero_points, secondary_scales, group_index, bias, units, channel_factor;
  Place x, group_scales, sorted_slots, row_offsets, tile_offsets;
  int64_t x_row_stride = 0;
  int64_t y_row_stride = 0;
  size_t guarded_y = 0;  // y between its guards, up to the end
};

size_t Align(std::vector<std::byte>& image) {
  image.resize((image.size() + kAlignment - 1) / kAlignment * kAlignment);
  return image.size();
}

template <typename Tensor>
std::optional<size_t> Put(const Tensor& tensor, std::vector<std::byte>& image) {
  if (tensor.empty()) return std::nullopt;
  const size_t place = Align(image);
  const size_t bytes = tensor.size() * sizeof(typename Tensor::value_type);
  image.resize(place + bytes);
  std::memcpy(image.data() + place, tensor.data(), bytes);
  return place;
}

// The rows of `matrix`, with `gap_bytes` behind each.
std::vector<std::byte> WithGaps(const std::vector<std::byte>& matrix, int64_t rows,
                                size_t gap_bytes) {
  const size_t row_bytes = matrix.size() / static_cast<size_t>(rows);
  std::vector<std::byte> spread(matrix.size() + static_cast<size_t>(rows) * gap_bytes);
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    std::memcpy(spread.data() + row * (row_bytes + gap_bytes), matrix.data() + row * row_bytes,
                row_bytes);
  }
  return spread;
}

// How a problem is put to a kernel.
struct Variant {
  int64_t gap;        // elements between rows of x and y
  int64_t scale_gap;  // between rows of group scales
  ElementType y_type;
};

int64_t GroupsOf(const SelfTestProblem& problem) {
  const int64_t columns = problem.group_scale_columns;
  return columns == 0 ? 0 : (problem.shape.k + columns - 1) / columns;
}

// The gap with which a tensor map can address every row of `columns` elements.
int64_t GapToAlignment(int64_t columns, int64_t element_bytes) {
  constexpr int64_t kRowAlignment = 16;  // bytes
  const int64_t elements = kRowAlignment / element_bytes;
  return (elements - columns % elements) % elements;
}

Places LayOut(const SelfTestProblem& problem, const Variant& variant,
              std::vector<std::byte>& image) {
  const int64_t gap = variant.gap;
  Places places;
  places.x_row_stride = problem.shape.k + gap;
  places.y_row_stride = problem.shape.n + gap;
  if (problem.packed.units.empty()) places.codes = Put(problem.codes, image);
  places.scales = Put(problem.scales, image);
  places.zero_points = Put(problem.zero_points, image);
  places.secondary_scales = Put(problem.secondary_scales, image);
  places.group_index = Put(problem.group_index, image);
  places.bias = Put(problem.bias, image);
  places.units = Put(problem.packed.units, image);
  places.channel_factor = Put(problem.packed.channel_factor, image);
  const auto gap_bytes = static_cast<size_t>(gap * ElementBytes(problem.x_type));
  places.x = Put(WithGaps(problem.x, problem.rows, gap_bytes), image);
  places.group_scales = Put(
      WithGaps(problem.group_scales, problem.rows,
               problem.group_scales.empty() ? 0 : static_cast<size_t>(variant.scale_gap) * sizeof(float)),
      image);
  places.sorted_slots = Put(problem.sorted_slots, image);
  places.row_offsets = Put(problem.row_offsets, image);
  places.tile_offsets = Put(problem.tile_offsets, image);
  places.guarded_y = Align(image);
  const auto y_bytes =
      static_cast<size_t>(problem.rows * places.y_row_stride * ElementBytes(variant.y_type));
  image.resize(image.size() + 2 * kGuardBytes + y_bytes, kPoison);
  return places;
}

GemmArgs MakeArgs(const SelfTestProblem& problem, const Variant& variant, const Places& places,
                  uintptr_t base) {
  const auto address = [base](const Places::Place& place) {
    return place.has_value() ? base + *place : 0;
  };
  GemmArgs args{};
  args.weights =
      MakeWeightArgs(problem.spec, problem.shape, problem.scale_columns,
                     {address(places.codes), address(places.scales), address(places.zero_points),
                      address(places.secondary_scales), address(places.group_index),
                      address(places.bias), address(places.units), address(places.channel_factor)});
  args.x = reinterpret_cast<const void*>(address(places.x));
  args.y = reinterpret_cast<void*>(base + places.guarded_y + kGuardBytes);
  args.x_row_stride = places.x_row_stride;
  args.y_row_stride = places.y_row_stride;
  args.m = problem.rows;
  args.x_type = problem.x_type;
  args.y_type = variant.y_type;
  if (const int64_t columns = problem.group_scale_columns; columns > 0) {
    args.group_scale = reinterpret_cast<const float*>(address(places.group_scales));
    args.group_scale_stride = GroupsOf(problem) + variant.scale_gap;
    args.group_scale_columns = static_cast<int32_t>(columns);
    args.split_activations = 1;
  }
  args.sorted_slots = reinterpret_cast<const uint32_t*>(address(places.sorted_slots));
  args.row_offsets = reinterpret_cast<const int64_t*>(address(places.row_offsets));
  args.tile_offsets = reinterpret_cast<const int64_t*>(address(places.tile_offsets));
  args.slots_per_input_row = 1;
  return args;
}

// `value` as an element of `type` has it.
float Rounded(ElementType type, float value) {
  float element = 0;
  device::StoreElement(type, &element, 0, value);
  return device::LoadElement(type, &element, 0);
}

// `guarded`: y between its guards, as it came back.
absl::Status Compare(const SelfTestProblem& problem, const Variant& variant, const Places& places,
                     absl::Span<const std::byte> guarded) {
  const std::byte* const y = guarded.data() + kGuardBytes;
  const int64_t element_bytes = ElementBytes(variant.y_type);
  const auto is_poison = [](std::byte byte) { return byte == kPoison; };
  const auto is_untouched = [&](const std::byte* from, const std::byte* to) {
    return std::all_of(from, to, is_poison);
  };
  int64_t wrong = 0;
  std::string first;
  const std::byte* gap = guarded.data();  // what no element of y lies in, up to the next row
  bool is_clean = true;
  for (int64_t row = 0; row < problem.rows; ++row) {
    const std::byte* const line = y + row * places.y_row_stride * element_bytes;
    is_clean = is_clean && is_untouched(gap, line);
    gap = line + problem.shape.n * element_bytes;
    for (int64_t column = 0; column < problem.shape.n; ++column) {
      const float expected = Rounded(variant.y_type, problem.Expected(row, column));
      const float got = device::LoadElement(variant.y_type, line, column);
      if (got == expected) continue;
      if (wrong++ > 0) continue;
      first = absl::StrCat("y[", row, ", ", column, "] is ", got, ", expected ", expected);
    }
  }
  if (wrong > 0) {
    return Failed(absl::StrCat(first, "; ", wrong, " of ", problem.rows * problem.shape.n,
                               " elements are wrong"));
  }
  is_clean = is_clean && is_untouched(gap, guarded.data() + guarded.size());
  return is_clean ? absl::OkStatus() : Failed("it wrote outside of y");
}

class OnDevice : public SelfTester {
 public:
  OnDevice(const cuda::DriverTable& driver, absl::Duration limit)
      : driver_(driver), limit_(limit) {}

  absl::Status Test(const GemmKernel& kernel, const SelfTestSubject& subject) override {
    GEMMD_ASSIGN_OR_RETURN(const SelfTestProblem problem, MakeSelfTestProblem(kernel, subject));
    Variant variant = {0, 0, ElementType::kFloat32};
    if (kernel.needs_x_map) {
      variant.gap = GapToAlignment(problem.shape.k, ElementBytes(problem.x_type));
      variant.scale_gap = GapToAlignment(GroupsOf(problem), sizeof(float));
    }
    GEMMD_RETURN_IF_ERROR(Run(kernel, problem, variant));
    if (kernel.x_box_rows == 0) return absl::OkStatus();
    variant.y_type = ElementType::kBFloat16;
    GEMMD_RETURN_IF_ERROR(Run(kernel, problem, variant));
    // Rows at odd addresses cannot be copied by tensor map: the other path of kernels that use one.
    return kernel.needs_x_map
               ? absl::OkStatus()
               : Run(kernel, problem, {/*gap=*/1, /*scale_gap=*/0, ElementType::kFloat32});
  }

 private:
  absl::Status Run(const GemmKernel& kernel, const SelfTestProblem& problem,
                   const Variant& variant) {
    std::vector<std::byte> image;
    const Places places = LayOut(problem, variant, image);
    GEMMD_RETURN_IF_ERROR(Upload(image));
    GEMMD_ASSIGN_OR_RETURN(const cuda::Stream stream, cuda::Stream::Create(driver_));
    const GemmArgs args = MakeArgs(problem, variant, places, memory_->address());
    absl::Status ran = kernel.row_mapping == RowMapping::kIndexed
                           ? LaunchIndexed(driver_, kernel, args, problem.rows, stream.get())
                           : LaunchDense(driver_, kernel, args, stream.get());
    if (ran.ok()) ran = Await(stream);
    if (!ran.ok()) return Verdict(ran);
    std::vector<std::byte> guarded(image.size() - places.guarded_y);
    GEMMD_CUDA(driver_, cuMemcpyDtoH, guarded.data(), memory_->address() + places.guarded_y,
               guarded.size());
    return Compare(problem, variant, places, guarded);
  }

  absl::Status Upload(const std::vector<std::byte>& bytes) {
    if (!memory_.has_value() || memory_->size() < bytes.size()) {
      memory_.reset();
      GEMMD_ASSIGN_OR_RETURN(memory_, cuda::DeviceBuffer::Create(driver_, bytes.size()));
    }
    GEMMD_CUDA(driver_, cuMemcpyHtoD, memory_->address(), bytes.data(), bytes.size());
    // A copy from pageable memory may return before it is complete.
    GEMMD_CUDA(driver_, cuStreamSynchronize, nullptr);
    return absl::OkStatus();
  }

  absl::Status Await(const cuda::Stream& stream) const {
    const absl::Time limit = absl::Now() + limit_;
    while (true) {
      GEMMD_ASSIGN_OR_RETURN(const bool is_idle, stream.IsIdle());
      if (is_idle) return absl::OkStatus();
      if (absl::Now() > limit) {
        return Error(absl::StatusCode::kDataLoss, "CONTEXT_LOST",
                     absl::StrCat("the kernel did not end within ", absl::FormatDuration(limit_)));
      }
      absl::SleepFor(kPoll);
    }
  }

  const cuda::DriverTable& driver_;
  const absl::Duration limit_;
  std::optional<cuda::DeviceBuffer> memory_;
};

}  // namespace

std::unique_ptr<SelfTester> DeviceSelfTester(const cuda::DriverTable& driver) {
  return DeviceSelfTester(driver, kLimit);
}

std::unique_ptr<SelfTester> DeviceSelfTester(const cuda::DriverTable& driver,
                                             absl::Duration limit) {
  return std::make_unique<OnDevice>(driver, limit);
}

}  // namespace gemmd

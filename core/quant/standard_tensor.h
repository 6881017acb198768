// What    StandardTensor: the tensors of one layer in the standard representation.
// Shapes  kernels/contract/quant_spec.h. An absent tensor is an empty buffer.
// Errors  Validate: InvalidArgument with reason SHAPE_MISMATCH or BAD_SPEC, naming tensor, expected
//         and got.
#ifndef GEMMD_CORE_QUANT_STANDARD_TENSOR_H_
#define GEMMD_CORE_QUANT_STANDARD_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/base/host_buffer.h"
#include "kernels/contract/quant_spec.h"

namespace gemmd {

using Buffer = HostBuffer;

// How a checkpoint wants activations quantized where the fields of QuantSpec do not say it all: README.md,
// "Activations". Absent (kNoFormat) where they do.
struct ActivationEncoding {
  NumberFormat format;
  ActivationScaleKind scale = ActivationScaleKind::kNone;
  int64_t group = 0;         // columns per scale with kDynamicGroup
  bool zero_points = false;  // integers: as many as scales
  NumberFormat group_scale;  // of dynamic groups, if not float32: e8m0, or e4m3 below a global scale

  friend constexpr bool operator==(const ActivationEncoding&, const ActivationEncoding&) = default;
  constexpr bool present() const { return format.present(); }
};

struct StandardTensor {
  QuantSpec spec;
  LayerShape shape;
  int64_t scale_columns = 1;  // SK; with a group index it may differ from spec.ScaleColumns(k)
  Buffer codes;
  Buffer scales;
  Buffer zero_points;
  Buffer secondary_scales;
  Buffer group_index;
  Buffer bias;
  Buffer activation_scale;           // float32 [E], with a static activation scale only
  bool gate_up_interleaved = false;  // rows alternate gate, up
  bool has_input_scale = false;
  Buffer input_scale;  // float32 [E, K]: x[m,k] of 16 and more bits is multiplied by it first
  ActivationEncoding encoding;
  Buffer activation_zero_point;    // int16 [E], two's complement; with static zero points only
  Buffer activation_global_scale;  // float32 [E], a divisor; with e4m3 group scales only

  int64_t total_bytes() const;
};

// What one tensor of a layer must have.
struct TensorSize {
  const char* name = "";
  Buffer StandardTensor::*buffer = nullptr;
  int64_t bytes = 0;  // 0 = absent, -1 = does not fit 63 bits

  absl::Status Check(uint64_t got) const;  // SHAPE_MISMATCH unless `got` is `bytes`
};

// Every tensor's size by spec, shape and scale_columns, which are checked first; the buffers are not
// looked at.
absl::StatusOr<std::vector<TensorSize>> TensorSizes(const StandardTensor& tensor);

// Whether every buffer has the size its spec and shape give, every group index is in range, integer zero
// points are representable and the spec itself is one we know.
absl::Status Validate(const StandardTensor& tensor);

// Whether the spec alone is one we know.
absl::Status Validate(const QuantSpec& spec);

// Whether numbers can be quantized to `format`: it is not one of 0 and NaN alone (2 bits with a NaN). `what` names it.
absl::Status CheckHoldsNumbers(absl::string_view what, const NumberFormat& format);

// SHA-256 over spec, shape and tensors, lower-case hex. The same content gives the same digest on every
// host and version; the byte stream hashed is described in core/quant/README.md.
std::string Digest(const StandardTensor& tensor);

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_STANDARD_TENSOR_H_

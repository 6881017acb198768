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
#include "kernels/contract/quant_spec.h"

namespace gemmd {

using Buffer = std::vector<std::byte>;

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

// SHA-256 over spec, shape and tensors, lower-case hex. The same content gives the same digest on every
// host and version; the byte stream hashed is described in core/quant/README.md.
std::string Digest(const StandardTensor& tensor);

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_STANDARD_TENSOR_H_

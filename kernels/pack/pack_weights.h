// What    Standard representation of one layer's weights -> kernels/contract/packed_weights.h.
// Errors  Unimplemented NO_KERNEL: weights or zero points that only the generic kernel takes.
// Keys    Deterministic: the same tensors give the same bytes. Scales keep their values exactly.
// Threads Pure function.
#ifndef GEMMD_KERNELS_PACK_PACK_WEIGHTS_H_
#define GEMMD_KERNELS_PACK_PACK_WEIGHTS_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/host_buffer.h"
#include "kernels/contract/quant_spec.h"

namespace gemmd {

// Tensors of contract/quant_spec.h; empty where the layer has none.
struct WeightTensors {
  absl::Span<const std::byte> codes;
  absl::Span<const std::byte> scales;
  absl::Span<const std::byte> zero_points;
  absl::Span<const std::byte> secondary_scales;
};

struct PackedWeights {
  HostBuffer units;
  std::vector<std::byte> channel_factor;  // float32 [N]; empty = all 1
};

// The layer passes SupportsSm90.
absl::StatusOr<PackedWeights> PackWeights(const QuantSpec& spec, const LayerShape& shape,
                                          const WeightTensors& tensors);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_PACK_PACK_WEIGHTS_H_

// What    Weights of one layer in the order that kernels/contract/packed_weights.h describes. The codes, which
//         are nearly all of it, are packed on the GPU (device/pack_codes.cuh); here are their scales and
//         zero points, and the whole on the host for small layers: self-tests and tuning.
// Errors  Unimplemented NO_KERNEL: weights, scales or zero points that only the generic kernel takes.
// Keys    Deterministic: the same tensors give the same bytes. Scales keep their values exactly.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_PACK_PACK_WEIGHTS_H_
#define GEMMD_KERNELS_PACK_PACK_WEIGHTS_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/host_buffer.h"
#include "kernels/contract/pack_args.h"
#include "kernels/contract/quant_spec.h"

namespace gemmd {

// Tensors of contract/quant_spec.h; empty where the layer has none.
struct WeightTensors {
  absl::Span<const std::byte> codes;
  absl::Span<const std::byte> scales;
  absl::Span<const std::byte> zero_points;
  absl::Span<const std::byte> secondary_scales;
};

// All of packed weights but their codes.
struct PackedScales {
  std::vector<std::byte> units;           // PackArgs::scales, of all units
  std::vector<std::byte> channel_factor;  // float32 [N]; empty = all 1
};

struct PackedWeights {
  HostBuffer units;
  std::vector<std::byte> channel_factor;
};

// All below: the layer passes SupportsSm90.

// Looks at the codes too: once it is OK, the layer can be packed.
absl::StatusOr<PackedScales> PackScales(const QuantSpec& spec, const LayerShape& shape,
                                        const WeightTensors& tensors);
// Without addresses; from the first unit on.
PackArgs PackArgsOf(const QuantSpec& spec, const LayerShape& shape);
// What device::PackCodes does, in memory of the host: `units` units from args.first_unit on.
void PackOnHost(const PackArgs& args, int64_t units);

absl::StatusOr<PackedWeights> PackWeights(const QuantSpec& spec, const LayerShape& shape,
                                          const WeightTensors& tensors);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_PACK_PACK_WEIGHTS_H_

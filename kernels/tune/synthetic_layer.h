// What    Weights and activations to measure kernels with: random, packed as a real layer's are, so that
//         every kernel reads, decodes and multiplies what it would in service. N of them repeat a block
//         of some hundred rows: packing millions of weights would take longer than measuring.
// Errors  As PackWeights.
// Threads Pure functions; the same seed gives the same bytes.
#ifndef GEMMD_KERNELS_TUNE_SYNTHETIC_LAYER_H_
#define GEMMD_KERNELS_TUNE_SYNTHETIC_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/contract/element_type.h"
#include "kernels/contract/packed_weights.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/pack/pack_weights.h"

namespace gemmd {

// The layer passes SupportsSm90.
absl::StatusOr<PackedWeights> MakeSyntheticWeights(const QuantSpec& spec, const LayerShape& shape,
                                                   uint64_t seed);

// Rows of w without their packing, for tests: what MakeSyntheticWeights packs.
struct SyntheticTensors {
  std::vector<std::byte> codes, scales, zero_points, secondary_scales;
  WeightTensors view() const { return {codes, scales, zero_points, secondary_scales}; }
};
SyntheticTensors MakeSyntheticTensors(const QuantSpec& spec, const LayerShape& shape, uint64_t seed);

// Packed weights of `shape`, row n of which is row n % rows of `packed`, which has `rows` rows. `rows`
// is a multiple of a unit's.
PackedWeights RepeatRows(const PackedWeights& packed, const PackedLayout& layout, int64_t rows,
                         const LayerShape& shape);

// Finite elements, about as large as activations are.
std::vector<std::byte> RandomElements(ElementType type, int64_t count, uint64_t seed);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_TUNE_SYNTHETIC_LAYER_H_

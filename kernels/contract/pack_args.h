// What    PackArgs: the parameter of device/pack_codes.cuh, passed by value; which piece of a layer a block
//         of its grid packs.
// Shapes  A block packs one unit of one chunk (packed_weights.h): the chunks of `first_unit`, then those of
//         the next unit.
#ifndef GEMMD_KERNELS_CONTRACT_PACK_ARGS_H_
#define GEMMD_KERNELS_CONTRACT_PACK_ARGS_H_

#include <cstdint>

#include "kernels/contract/code_map.h"
#include "kernels/contract/packed_weights.h"

namespace gemmd {

struct PackArgs {
  static constexpr int kThreads = 256;  // of a block

  const uint32_t* codes;  // rows of quant_spec.h, from the first row of `first_unit` on
  const void* scales;     // [blocks][scale_unit_bytes()]; unused when that is 0
  void* units;            // of the whole layer
  int64_t row_words;      // words of 32 bits per row of codes
  int64_t n;              // of the layer
  int64_t k;
  int64_t first_unit;
  PackedLayout layout;
  CodeMap map;

  // Scales and zero points of a unit.
  constexpr int64_t scale_unit_bytes() const {
    return static_cast<int64_t>(layout.sets()) * layout.set_bytes();
  }
  constexpr int64_t ScaleBytes(int64_t units) const { return Blocks(units) * scale_unit_bytes(); }
  constexpr int64_t Blocks(int64_t units) const { return units * layout.Chunks(k); }
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_PACK_ARGS_H_

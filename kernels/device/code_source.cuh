// What    One code of the weights, wherever the layer has it: in dense rows, or in the units of packed weights,
//         its parts collected (contract/code_parts.h).
// Shapes  Config::kCodes says which. Packed weights have one expert.
// Sync    None: Load reads one to three words of the layer's codes.
#ifndef GEMMD_KERNELS_DEVICE_CODE_SOURCE_CUH_
#define GEMMD_KERNELS_DEVICE_CODE_SOURCE_CUH_

#include "kernels/contract/code_map.h"
#include "kernels/contract/code_order.h"
#include "kernels/contract/code_parts.h"
#include "kernels/contract/gemm_args.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/device/extract_code.cuh"

namespace gemmd::device {

template <class Config, CodeOrder kOrder = Config::kCodes>
struct CodeSource {
  static constexpr Sm90Operand Operand() { return OperandOf(kOrder, Config::kWeight); }
  // Knows no scales: how many a unit has depends on the layer's groups.
  static constexpr PackedLayout Layout() { return CodeLayoutOf(Operand()); }
  static constexpr int kParts = CodePartCount(Layout());
  static constexpr CodeMap kMap =
      CodeMapOf(Operand(), Config::kZeroPoint != ZeroPointKind::kNone);

  __host__ __device__ static uint32_t Load(const WeightArgs& args, int32_t, int32_t n, int32_t k) {
    constexpr PackedLayout kLayout = Layout();
    const uint32_t* const slab = Slab(args, n / PackedLayout::kUnitRows, k);
    uint32_t code = 0;
    GEMMD_UNROLL
    for (int i = 0; i < kParts; ++i) {
      const CodePart part =
          CodePartOf(kLayout, i, n % PackedLayout::kUnitRows, k % kLayout.slab_columns());
      code |= part.From(slab[part.word]);
    }
    return UnmapCode(kMap, Config::kWeight.bits, code);
  }

 private:
  __host__ __device__ static const uint32_t* Slab(const WeightArgs& args, int64_t unit, int32_t k) {
    constexpr PackedLayout kLayout = Layout();
    const int64_t chunk = k / kLayout.chunk_columns();
    const int64_t units_before = chunk * PackedLayout::Units(args.n) + unit;
    const int64_t offset =
        kLayout.UnitOffset(chunk, unit, args.n, args.k) +
        (units_before + 1) * args.packed_scale_bytes +
        k % kLayout.chunk_columns() / kLayout.slab_columns() * kLayout.slab_bytes();
    return reinterpret_cast<const uint32_t*>(static_cast<const char*>(args.packed) + offset);
  }
};

template <class Config>
struct CodeSource<Config, CodeOrder::kRows> {
  __host__ __device__ static uint32_t Load(const WeightArgs& args, int32_t expert, int32_t n,
                                           int32_t k) {
    const int64_t row = static_cast<int64_t>(expert) * args.n + n;
    return CodeReader<Config::kWeight.bits>::Load(args.codes + row * args.row_words, k);
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_CODE_SOURCE_CUH_

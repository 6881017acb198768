#include "core/quant/not_finite.h"

#include <cstring>
#include <vector>

#include "core/quant/bit_row.h"

namespace gemmd {
namespace {

// The least code without its sign that is not finite.
uint32_t FirstNotFinite(const NumberFormat& format) {
  const uint32_t all_ones = (uint32_t{1} << (format.bits - 1)) - 1;
  return format.special == SpecialValues::kNanOnly
             ? all_ones
             : all_ones >> format.mantissa_bits << format.mantissa_bits;
}

// Of `count` codes of type T.
template <typename T>
int64_t CountFrom(uint32_t first, T magnitude, const std::byte* row, int64_t count) {
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    T code;
    std::memcpy(&code, row + i * sizeof(T), sizeof(T));
    found += (code & magnitude) >= first ? 1 : 0;
  }
  return found;
}

}  // namespace

int64_t CountNotFinite(const StandardTensor& tensor) {
  const NumberFormat& format = tensor.spec.weight;
  if (format.kind != NumberKind::kFloat || format.special == SpecialValues::kNone) return 0;
  const auto [experts, n, k] = tensor.shape;
  const uint32_t first = FirstNotFinite(format);
  const uint32_t magnitude = (uint32_t{1} << (format.bits - 1)) - 1;
  const int64_t row_bytes = BitRowBytes(k, format.bits);
  std::vector<uint8_t> codes(format.bits <= 8 ? static_cast<size_t>(k) : 0);
  int64_t found = 0;
  for (int64_t row = 0; row < experts * n; ++row) {
    const std::byte* const at = tensor.codes.data() + row * row_bytes;
    if (format.bits == 32) {
      found += CountFrom<uint32_t>(first, magnitude, at, k);
    } else if (format.bits == 16) {
      found += CountFrom<uint16_t>(first, static_cast<uint16_t>(magnitude), at, k);
    } else {
      UnpackBitRow(at, format.bits, absl::MakeSpan(codes));
      const auto* const bytes = reinterpret_cast<const std::byte*>(codes.data());
      found += CountFrom<uint8_t>(first, static_cast<uint8_t>(magnitude), bytes, k);
    }
  }
  return found;
}

}  // namespace gemmd

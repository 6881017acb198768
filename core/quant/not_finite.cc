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

// Codes that are at least `first` without their sign.
template <typename T>
int64_t CountAtLeast(T first, T without_sign, const T* codes, size_t count) {
  int64_t found = 0;
  for (size_t i = 0; i < count; ++i) found += (codes[i] & without_sign) >= first ? 1 : 0;
  return found;
}

// Of codes of type T, one after the other. Nearly always there is none: then the largest of a block says so, and that
// takes the processor's vectors a fraction of what counting takes.
template <typename T>
int64_t CountFrom(const NumberFormat& format, const std::byte* codes, size_t size) {
  constexpr size_t kBlock = 128;
  const auto without_sign = static_cast<T>((uint32_t{1} << (format.bits - 1)) - 1);
  const auto first = static_cast<T>(FirstNotFinite(format));
  int64_t found = 0;
  T block[kBlock];
  for (; size >= sizeof(block); size -= sizeof(block), codes += sizeof(block)) {
    std::memcpy(block, codes, sizeof(block));
    T largest = 0;
    for (const T code : block) {
      const T magnitude = code & without_sign;
      largest = magnitude > largest ? magnitude : largest;
    }
    if (largest >= first) found += CountAtLeast(first, without_sign, block, kBlock);
  }
  std::memcpy(block, codes, size);
  return found + CountAtLeast(first, without_sign, block, size / sizeof(T));
}

bool HasNotFinite(const NumberFormat& format) {
  return format.kind == NumberKind::kFloat && format.special != SpecialValues::kNone;
}

}  // namespace

int64_t CountNotFiniteCodes(const NumberFormat& format, const std::byte* codes, size_t size) {
  if (!HasNotFinite(format)) return 0;
  switch (format.bits) {
    case 32:
      return CountFrom<int32_t>(format, codes, size);
    case 16:
      return CountFrom<int16_t>(format, codes, size);
    default:
      return CountFrom<int8_t>(format, codes, size);
  }
}

int64_t CountNotFinite(const StandardTensor& tensor) {
  const NumberFormat& format = tensor.spec.weight;
  // The zeros behind each row are finite.
  if (format.bits % 8 == 0) {
    return CountNotFiniteCodes(format, tensor.codes.data(), tensor.codes.size());
  }
  if (!HasNotFinite(format)) return 0;
  const auto [experts, n, k] = tensor.shape;
  std::vector<uint8_t> codes(static_cast<size_t>(k));
  int64_t found = 0;
  for (int64_t row = 0; row < experts * n; ++row) {
    UnpackBitRow(tensor.codes.data() + row * BitRowBytes(k, format.bits), format.bits,
                 absl::MakeSpan(codes));
    found +=
        CountFrom<int8_t>(format, reinterpret_cast<const std::byte*>(codes.data()), codes.size());
  }
  return found;
}

}  // namespace gemmd

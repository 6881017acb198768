#include "kernels/pack/special_codes.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/device/portable.cuh"

namespace gemmd {
namespace {

// The smallest magnitude, as a code without its sign, that is infinite or no number.
uint32_t FirstSpecial(const NumberFormat& weight) {
  return weight.special == SpecialValues::kIeee
             ? device::LowBits(weight.exponent_bits) << weight.mantissa_bits
             : device::LowBits(weight.bits - 1);
}

// A magnitude plus special_from has the lane's top bit set where it is special: lanes of 8 or 16 bits, eight
// bytes at a time.
class LaneScan {
 public:
  LaneScan(const NumberFormat& weight, int lane_bits) {
    const uint64_t lanes = lane_bits == 16 ? 0x0001000100010001u : 0x0101010101010101u;
    const uint32_t top = 1u << (lane_bits - 1);
    magnitude_ = device::LowBits(weight.bits - 1) * lanes;
    special_from_ = (top - FirstSpecial(weight)) * lanes;
    special_bits_ = top * lanes;
  }

  bool Finds(const std::byte* bytes, size_t size) const {
    uint64_t found = 0;
    size_t at = 0;
    for (; at + sizeof(uint64_t) <= size; at += sizeof(uint64_t)) {
      uint64_t eight;
      std::memcpy(&eight, bytes + at, sizeof(eight));
      found |= (eight & magnitude_) + special_from_;
    }
    uint64_t rest = 0;
    std::memcpy(&rest, bytes + at, size - at);
    found |= (rest & magnitude_) + special_from_;
    return (found & special_bits_) != 0;
  }

 private:
  uint64_t magnitude_;
  uint64_t special_from_;
  uint64_t special_bits_;
};

bool FindsInRow(const NumberFormat& weight, const std::byte* row, int64_t k) {
  const uint32_t first = FirstSpecial(weight);
  for (int64_t i = 0; i < k; ++i) {
    const int64_t bit = i * weight.bits;
    uint32_t window = 0;
    std::memcpy(&window, row + bit / 8, static_cast<size_t>((bit % 8 + weight.bits + 7) / 8));
    if ((window >> bit % 8 & device::LowBits(weight.bits - 1)) >= first) return true;
  }
  return false;
}

}  // namespace

bool HasSpecialCode(const NumberFormat& weight, const LayerShape& shape,
                    absl::Span<const std::byte> codes) {
  if (weight.special == SpecialValues::kNone) return false;
  const bool has_lanes = weight.bits == 8 || weight.bits == 16;
  const LaneScan scan(weight, weight.bits);
  const int64_t row_bytes = (shape.k * weight.bits + 31) / 32 * 4;
  const auto row_codes = static_cast<size_t>(shape.k * weight.bits / 8);
  for (int64_t row = 0; row < shape.experts * shape.n; ++row) {
    const std::byte* const bits = codes.data() + row * row_bytes;
    if (has_lanes ? scan.Finds(bits, row_codes) : FindsInRow(weight, bits, shape.k)) return true;
  }
  return false;
}

}  // namespace gemmd

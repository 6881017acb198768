#include "core/quant/code_encoder.h"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <tuple>

#include "core/quant/reference.h"
#include "kernels/base/mutex.h"

namespace gemmd {
namespace {

// A number and its rounding boundaries have at most 7 mantissa bits in every float of 8 bits: which side of a
// boundary a float32 lies on is told by its upper half, and whether its lower half is 0.
uint32_t IndexOf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return bits >> 16 << 1 | ((bits & 0xffff) != 0 ? 1 : 0);
}

std::vector<uint8_t> MakeTable(const NumberFormat& format) {
  std::vector<uint8_t> table(1 << 17);
  for (uint32_t index = 0; index < table.size(); ++index) {
    const float value = std::bit_cast<float>(index >> 1 << 16 | (index & 1) << 15);
    table[index] = static_cast<uint8_t>(EncodeNumber(format, value));
  }
  return table;
}

// By IndexOf. Made once for each format: there are a few dozens.
const std::vector<uint8_t>* TableOf(const NumberFormat& format) {
  using Key = std::tuple<uint8_t, uint8_t, SpecialValues>;
  static Mutex* const mutex = new Mutex;
  static auto* const tables = new std::map<Key, std::unique_ptr<const std::vector<uint8_t>>>;
  MutexLock lock(*mutex);
  auto& table = (*tables)[{format.exponent_bits, format.mantissa_bits, format.special}];
  if (table == nullptr) table = std::make_unique<const std::vector<uint8_t>>(MakeTable(format));
  return table.get();
}

// `value` of at most 2^22 in magnitude, to the nearest integer, ties to even: the sum has no bits for less.
int32_t Round(float value) {
  constexpr float kShift = 0x1.8p23f;
  return std::bit_cast<int32_t>(value + kShift) - std::bit_cast<int32_t>(kShift);
}

}  // namespace

CodeEncoder::CodeEncoder(const NumberFormat& weight, ScaleRule rule, bool asymmetric)
    : asymmetric_(asymmetric) {
  const int codes = 1 << weight.bits;
  const bool integer = weight.kind == NumberKind::kInteger;
  if (!integer) {
    table_ = TableOf(weight);
    high_ = static_cast<float>(LargestValue(weight));
    low_ = -high_;
  } else if (asymmetric) {
    high_ = static_cast<float>(codes - 1);
  } else {
    middle_ = codes / 2;
    // QuantizeSymmetric is the rule; it saturates at these.
    low_ = static_cast<float>(QuantizeSymmetric(-0x1p20f, 1, weight.bits, rule));
    high_ = static_cast<float>(middle_ - 1);
  }
  for (int code = 0; code < codes; ++code) {
    values_[code] = DecodeNumber(weight, static_cast<uint32_t>(code)) - middle_;
  }
}

void CodeEncoder::Encode(absl::Span<const float> values, float factor, float zero_point,
                         uint8_t* codes) const {
  const float low = low_;
  const float high = high_;
  if (table_ != nullptr) {
    const uint8_t* const table = table_->data();
    for (const float value : values) *codes++ = table[IndexOf(std::clamp(value / factor, low, high))];
    return;
  }
  const int32_t middle = middle_;
  if (asymmetric_ && zero_point > high) {  // a sum in float32 would lose the codes
    for (const float value : values) {
      const double sum = double{value} / factor + zero_point;
      *codes++ = static_cast<uint8_t>(Round(static_cast<float>(std::clamp<double>(sum, low, high))));
    }
    return;
  }
  if (asymmetric_) {
    for (const float value : values) {
      *codes++ = static_cast<uint8_t>(Round(std::clamp(value / factor + zero_point, low, high)));
    }
    return;
  }
  for (const float value : values) {
    *codes++ = static_cast<uint8_t>(Round(std::clamp(value / factor, low, high)) + middle);
  }
}

}  // namespace gemmd

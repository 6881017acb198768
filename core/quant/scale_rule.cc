#include "core/quant/scale_rule.h"

#include <algorithm>
#include <cmath>

#include "core/quant/reference.h"

namespace gemmd {
namespace {

float AbsMax(const ValueRange& range) {
  return std::isnan(range.high) ? range.high : std::max(-range.low, range.high);
}

double LargestFloat(const NumberFormat& format) {
  constexpr double kBeyondEverything = 1e300;
  const uint32_t code = EncodeNumber(format, kBeyondEverything);
  const double value = DecodeNumber(format, code);
  return std::isfinite(value) ? value : DecodeNumber(format, code - 1);  // 16 and 32 bits
}

// Whether the code is finite and not 0.
bool IsUsable(const NumberFormat& format, uint32_t code) {
  const double value = DecodeNumber(format, code);
  return std::isfinite(value) && value > 0;
}

}  // namespace

void Include(float value, ValueRange& range) {
  if (std::isnan(value) || std::isnan(range.high)) {
    range.low = range.high = std::nanf("");
    return;
  }
  range.low = std::min(range.low, value);
  range.high = std::max(range.high, value);
}

ValueRange RangeOf(absl::Span<const float> values) {
  ValueRange range;
  for (const float value : values) Include(value, range);
  return range;
}

double LargestValue(const NumberFormat& format) {
  if (format.kind == NumberKind::kInteger) return std::max(1, (1 << (format.bits - 1)) - 1);
  // Asked for every block: a thread computes it when it changes formats.
  thread_local NumberFormat cached_format;
  thread_local double cached = 0;
  if (!(cached_format == format)) {
    cached_format = format;
    cached = LargestFloat(format);
  }
  return cached;
}

float IdealScale(const ValueRange& range, const NumberFormat& element, ScaleRule rule,
                 bool asymmetric) {
  if (element.kind == NumberKind::kInteger) {
    const auto codes = static_cast<float>((1 << element.bits) - 1);
    if (asymmetric) {
      const float span = range.high - range.low;
      return std::isinf(span) ? range.high / codes - range.low / codes : span / codes;
    }
    if (rule == ScaleRule::kFullRange) return AbsMax(range) / (codes / 2);
  }
  return AbsMax(range) / static_cast<float>(LargestValue(element));
}

double RoundUpToPower(double value) {
  const double floor = std::ldexp(1.0, std::ilogb(value));
  return floor < value ? 2 * floor : floor;
}

double PowerScale(const ValueRange& range, const NumberFormat& element, ScaleRule rule) {
  const double absmax = AbsMax(range);
  if (absmax == 0 || !std::isfinite(absmax)) return absmax;
  const double largest = LargestValue(element);
  if (rule == ScaleRule::kLargest || rule == ScaleRule::kFullRange) {
    return RoundUpToPower(absmax / largest);
  }
  const int exponent = std::ilogb(absmax) - std::ilogb(largest);
  const bool up =
      rule == ScaleRule::kNearestPower && std::ldexp(absmax, -std::ilogb(absmax)) >= 1.75;
  return std::ldexp(1.0, exponent + up);
}

uint32_t EncodeScale(const NumberFormat& format, double scale) {
  uint32_t code = EncodeNumber(format, scale);
  if (!(scale > 0)) return code;
  const double stored = DecodeNumber(format, code);
  const double precision = std::ldexp(scale, -format.mantissa_bits);
  if (format.kind == NumberKind::kFloat && scale - stored > precision) ++code;
  if (IsUsable(format, code)) return code;
  return IsUsable(format, code - 1) ? code - 1 : code + 1;  // infinity, or 0
}

double QuantizeSymmetric(float value, float scale, int bits, ScaleRule rule) {
  const int half = 1 << (bits - 1);
  const bool full = rule == ScaleRule::kFullRange || bits == 1;
  const double low = full ? -half : 1 - half;
  const double quotient = std::nearbyint(value / scale);
  return std::clamp<double>(quotient, low, half - 1);
}

}  // namespace gemmd

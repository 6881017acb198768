// What    Which scale a group of numbers gets, and the quantized value of a number under a scale.
//         One set of rules for weights (quantize.h) and activations (activations.h). Rounding 
//         Quotients are float32, as exporters compute them, then nearest, ties to even; values
//         beyond the largest of the type saturate.
// Threads Pure functions.
// Source  OCP Microscaling Formats (MX) 1.0, 6.3 (kOcp); https://github.com/vllm-project/
//         compressed-tensors (kFullRange, kNearestPower).
#ifndef GEMMD_CORE_QUANT_SCALE_RULE_H_
#define GEMMD_CORE_QUANT_SCALE_RULE_H_

#include "absl/types/span.h"
#include "kernels/contract/number_format.h"

namespace gemmd {

enum class ScaleRule : uint8_t {
  kLargest,       // absmax / largest value of the type; as a power of two rounded up
  kFullRange,     // integers: absmax / ((2^bits - 1) / 2), and -2^(bits-1) is used too
  kOcp,           // powers of two: floor(log2(absmax)) - floor(log2(largest)); the top saturates
  kNearestPower,  // as kOcp, one more when the significand of absmax is 1.75 or more
};

// Smallest and largest of a group, 0 included.
struct ValueRange {
  float low = 0;
  float high = 0;
};

// NaN if a value is.
ValueRange RangeOf(absl::Span<const float> values);
void Include(float value, ValueRange& range);

// Largest finite value: 2^(bits-1) - 1 of integers (at least 1), 448 of e4m3, 6 of e2m1.
double LargestValue(const NumberFormat& format);

// The scale before it is rounded to its type, with powers of two as they are. `asymmetric`:
// (high - low) / (2^bits - 1). 0 for a group of zeros.
float IdealScale(const ValueRange& range, const NumberFormat& element, ScaleRule rule,
                 bool asymmetric);
// The smallest power of two of at least `value`, which is positive and finite.
double RoundUpToPower(double value);
// The power of two for e8m0; 0 for a group of zeros.
double PowerScale(const ValueRange& range, const NumberFormat& element, ScaleRule rule);

// `scale` in `format`: the nearest code, but the next larger one when the nearest is smaller by more
// than the precision of the format (subnormals), and neither 0 nor infinite.
uint32_t EncodeScale(const NumberFormat& format, double scale);

// The integer nearest to value / scale within the range of symmetric integers of `bits`.
double QuantizeSymmetric(float value, float scale, int bits, ScaleRule rule);

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_SCALE_RULE_H_

// What    Codes of weights that share a scale and a zero point, many at a time.
// Rules   README.md, "Scale rules": the value nearest to the float32 quotient, ties to even,
//         saturating. The codes are those of EncodeNumber and QuantizeSymmetric, bit for bit.
// Threads Const methods: any thread.
#ifndef GEMMD_CORE_QUANT_CODE_ENCODER_H_
#define GEMMD_CORE_QUANT_CODE_ENCODER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/quant/scale_rule.h"
#include "kernels/contract/number_format.h"

namespace gemmd {

class CodeEncoder {
 public:
  // `weight` has at most 8 bits. `asymmetric`: integers with a zero point.
  CodeEncoder(const NumberFormat& weight, ScaleRule rule, bool asymmetric);

  // values[i] / factor + zero_point as codes[i]. The values are finite, the factor is positive and finite;
  // without `asymmetric` the zero point is not looked at.
  void Encode(absl::Span<const float> values, float factor, float zero_point,
              uint8_t* codes) const;

  // What the code stands for, before the zero point of `asymmetric` is taken off.
  double Value(uint8_t code) const { return values_[code]; }

 private:
  const std::vector<uint8_t>* table_ = nullptr;  // of floats
  float low_ = 0;                                // of the rounded quotient
  float high_ = 0;
  int32_t middle_ = 0;  // code of the quotient 0
  bool asymmetric_ = false;
  std::array<double, 256> values_ = {};
};

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_CODE_ENCODER_H_

// What    Matrices that try every rule of activation quantization.
#ifndef GEMMD_TESTS_KERNELS_QUANTIZE_INPUTS_H_
#define GEMMD_TESTS_KERNELS_QUANTIZE_INPUTS_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/kernels/random_layer.h"

namespace gemmd::testing {

// Rows of ordinary numbers; one each of zeros, with a NaN, with an infinity, of the smallest numbers, and
// one of very different magnitudes.
inline HostMatrix RowsOfEveryKind(const NumberFormat& type, int64_t rows, int64_t columns,
                                  int64_t gap, Random& random) {
  HostMatrix x = RandomMatrix(type, rows, columns, random, false, columns + gap);
  const double smallest = std::ldexp(1.0, 1 - type.bias() - type.mantissa_bits);
  for (int64_t k = 0; k < columns; ++k) {
    if (rows > 1) x.set(1, k, k % 2 == 0 ? 0.0 : -0.0);
    if (rows > 4) x.set(4, k, smallest * static_cast<double>(random() % 9));
    if (rows > 5) {
      x.set(5, k, std::ldexp(Uniform(random, -1, 1), static_cast<int>(random() % 30) - 15));
    }
  }
  if (rows > 2) x.set(2, columns / 2, std::nan(""));
  if (rows > 3) x.set(3, columns - 1, -std::numeric_limits<double>::infinity());
  return x;
}

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_KERNELS_QUANTIZE_INPUTS_H_

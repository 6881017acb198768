// What    Random weights, activations and their scales, made fast: a layer of 100 million codes
//         takes a fraction of a second.
// Keys    The same seed gives the same values.
// Shapes  kernels/contract/quant_spec.h. Codes are random bits without NaN and infinity;
//         activations are normal values, spread over the range that quantization per token uses.
// Threads Pure functions.
#ifndef GEMMD_TESTS_BENCH_HOST_RANDOM_INPUTS_H_
#define GEMMD_TESTS_BENCH_HOST_RANDOM_INPUTS_H_

#include <cstdint>
#include <vector>

#include "core/quant/standard_tensor.h"

namespace gemmd::bench {

// Mixes a counter (the finaliser of SplitMix64).
class FastRandom {
 public:
  explicit FastRandom(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [low, high).
  double Uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(Next() >> 11) * 0x1p-53;
  }

 private:
  uint64_t state_;
};

// A dense layer that passes Validate.
StandardTensor RandomLayer(const QuantSpec& spec, int64_t n, int64_t k, uint64_t seed);

// `count` normal values of `type` (16-bit floats, 8-bit floats, int8), as elements in memory.
Buffer RandomActivations(const NumberFormat& type, int64_t count, uint64_t seed);

// Positive float32 factors that bring 8-bit activations back to about unit variance.
std::vector<float> RandomActivationScales(const NumberFormat& type, int64_t count, uint64_t seed);

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_HOST_RANDOM_INPUTS_H_

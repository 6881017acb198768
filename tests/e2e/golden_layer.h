// What    Layers of the golden checkpoints with the weights that the exporters' own code reads: tests/data/README.md.
#ifndef GEMMD_TESTS_E2E_GOLDEN_LAYER_H_
#define GEMMD_TESTS_E2E_GOLDEN_LAYER_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace gemmd::e2e {

struct GoldenLayer {
  std::string checkpoint;  // name of the case
  std::string module;
  int64_t experts = 1;
  int64_t k = 0;
  int64_t first_row = 0;  // of large weights only some rows are kept
  int64_t rows = 0;
  std::vector<double> weights;      // [E, rows, K]
  std::vector<double> bias;         // [E, N], as stored; empty = none
  std::vector<double> input_scale;  // [K], as stored; empty = none
  // exact; UNSUPPORTED_FORMAT: refused; word rule: read, and not as its writer's own code reads it.
  std::string outcome;

  // Whether a weight of the expert is none of float32, which a GPU's are: it is infinite there
  // (kernels/device/README.md).
  bool IsBeyondFloat32(int64_t expert) const {
    for (int64_t i = expert * rows * k; i < (expert + 1) * rows * k; ++i) {
      if (std::abs(weights[static_cast<size_t>(i)]) > std::numeric_limits<float>::max()) return true;
    }
    return false;
  }

  double Weight(int64_t expert, int64_t row, int64_t column) const {
    return weights[static_cast<size_t>((expert * rows + row) * k + column)];
  }
};

// Of every case in cases.json, by name.
std::vector<GoldenLayer> GoldenLayers();

}  // namespace gemmd::e2e

#endif  // GEMMD_TESTS_E2E_GOLDEN_LAYER_H_

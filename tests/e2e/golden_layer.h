// What    Layers of the golden checkpoints with the weights that the exporters' own code reads: tests/data/README.md.
#ifndef GEMMD_TESTS_E2E_GOLDEN_LAYER_H_
#define GEMMD_TESTS_E2E_GOLDEN_LAYER_H_

#include <cstdint>
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

  double Weight(int64_t expert, int64_t row, int64_t column) const {
    return weights[static_cast<size_t>((expert * rows + row) * k + column)];
  }
};

// Of every case in cases.json, by name.
std::vector<GoldenLayer> GoldenLayers();

}  // namespace gemmd::e2e

#endif  // GEMMD_TESTS_E2E_GOLDEN_LAYER_H_

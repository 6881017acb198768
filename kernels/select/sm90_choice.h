// What    Which SM90 kernel serves a layer at which M.
// Source  Times on an H200: tests/bench/results.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_SELECT_SM90_CHOICE_H_
#define GEMMD_KERNELS_SELECT_SM90_CHOICE_H_

#include <cstdint>
#include <vector>

#include "kernels/select/sm90_config.h"

namespace gemmd {

struct Sm90Choice {
  int64_t largest_m = 0;
  Sm90Config config;
  int cluster = 0;   // blocks: config.sharers tiles times the parts of K
  int resident = 0;  // clusters that walk over all tiles; 0: one for each
  double model_cycles = 0;  // what the model (sm90_pace.h) expects for `largest_m` rows
};

// The most rows that a grid of the choice's tiles can count.
int64_t LargestSm90M(const Sm90Choice& choice);

// Ascending in M. The last bound is what a grid can count; above it the generic kernel serves.
// `x_type` is one of Sm90XTypes. Needs SupportsSm90.
std::vector<Sm90Choice> ChooseSm90(const QuantSpec& spec, const LayerShape& shape,
                                   ElementType x_type);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_SELECT_SM90_CHOICE_H_

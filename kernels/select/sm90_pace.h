// What    How fast the blocks of an SM90 kernel work, for the choice by M (sm90_choice.h).
// Units   Cycles of a multiprocessor at an H200's highest clock, 1.98 GHz.
// Source  Least squares over times on an H200 on 2026-12-01: 72 000 times of 1348 points, 30 formats on 1 to 21 layers
//         each, N and K from 1024 to 36864, M from 1 to 4096. What the chosen kernels lose: tests/bench/README.md.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_SELECT_SM90_PACE_H_
#define GEMMD_KERNELS_SELECT_SM90_PACE_H_

#include "kernels/select/sm90_config.h"

namespace gemmd {

struct Sm90Pace {
  double slab;      // of a tile, of those that one warpgroup works on
  double tile;      // before and after its slabs
  double exchange;  // of the sums of two parts of K
};

Sm90Pace Sm90PaceOf(const Sm90Config& config);

// What does not depend on the blocks. A launch takes `start`, and then work and memory together: the root of
// work^power + memory^power.
struct Sm90Memory {
  double start;
  double bytes_per_cycle;       // of weights, x and y, each once, through global memory
  double tile_bytes_per_cycle;  // of all that tiles read, through L2; 0: not counted, the paces have it
  double power;
  double part;  // what each part of K after the second adds to the exchange
};

Sm90Memory Sm90MemoryFor(const Sm90Config& config);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_SELECT_SM90_PACE_H_

// What    How fast the blocks of an SM90 kernel work, for the choice by M (sm90_choice.h).
// Units   Cycles of a multiprocessor at 1.75 GHz.
// Source  Least squares over times on an H200 on 2026-11-30: 8192 x 8192, 6144 x 4096 and 7168 x 2048, M from
//         64 to 4096, formats of tests/bench/suite.json; the fit is off by 2 to 8 percent.
// Threads Pure function.
#ifndef GEMMD_KERNELS_SELECT_SM90_PACE_H_
#define GEMMD_KERNELS_SELECT_SM90_PACE_H_

#include "kernels/select/sm90_config.h"

namespace gemmd {

struct Sm90Pace {
  double slab;      // of a tile, of those that one warpgroup works on
  double tile;      // before and after its slabs
  double exchange;  // of the sums of the parts of K
};

// For 64 tokens or more.
Sm90Pace Sm90PaceOf(const Sm90Config& config);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_SELECT_SM90_PACE_H_

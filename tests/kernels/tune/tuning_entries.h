// What    Tuning entries for tests.
#ifndef GEMMD_TESTS_KERNELS_TUNE_TUNING_ENTRIES_H_
#define GEMMD_TESTS_KERNELS_TUNE_TUNING_ENTRIES_H_

#include <string>

#include "kernels/select/tuning_table.h"

namespace gemmd {

inline MeasuredPoint MakePoint(int64_t m, double ns) {
  MeasuredPoint point;
  point.m = m;
  point.tiling = {8, 4, 1, 2, 4, 1, 2, 0};
  point.ns = ns;
  point.fastest_ns = ns - 0.5;
  point.slowest_ns = ns + 100;
  point.samples = 15;
  point.candidates = 6;
  point.model_choice_ns = ns * 1.25;
  point.model_ns = 0;
  return point;
}

inline TuningEntry MakeEntry(int64_t n, const std::string& kernels,
                             const std::vector<MeasuredPoint>& points) {
  TuningEntry entry;
  entry.key = {{"Fake GPU", 132, 1980}, "int4, scale bf16 per 1x128", n, 4096, "bfloat16"};
  entry.conditions = {"0.1.0", kernels,           "13.0", "2026-11-30T05:34:13Z",
                      "cold",  int64_t{512} << 20, 2660.5};
  entry.points = points;
  return entry;
}

}  // namespace gemmd

#endif  // GEMMD_TESTS_KERNELS_TUNE_TUNING_ENTRIES_H_

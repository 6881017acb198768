// What    What was measured about the kernels of one layer on one kind of GPU, and how it decides which
//         kernel serves which M: the measured one in the ranges that were measured, the model's elsewhere.
// Units   Nanoseconds.
// Keys    A layer is named by SpecText, N, K and the type of x. A bias does not count.
// Threads Pure values and functions.
#ifndef GEMMD_KERNELS_SELECT_TUNING_TABLE_H_
#define GEMMD_KERNELS_SELECT_TUNING_TABLE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/select/sm90_candidates.h"

namespace gemmd {

// GPUs whose times are comparable.
struct DeviceClass {
  std::string name;  // "NVIDIA H200"
  int multiprocessors = 0;
  int clock_mhz = 0;  // the highest
  friend auto operator<=>(const DeviceClass&, const DeviceClass&) = default;
};

struct TuningKey {
  DeviceClass device;
  std::string spec;  // SpecText
  int64_t n = 0;
  int64_t k = 0;
  std::string x_type;  // ElementTypeName
  friend auto operator<=>(const TuningKey&, const TuningKey&) = default;
};

// Everything of a spec that decides which kernels serve a layer:
// "int4, scale bf16 per 1x128, zero points none, secondary none, activation none".
std::string SpecText(const QuantSpec& spec);

TuningKey TuningKeyOf(const DeviceClass& device, const QuantSpec& spec, const LayerShape& shape,
                      ElementType x_type);

// How entries were measured. Times from different kernels do not compare.
struct TuningConditions {
  std::string gemmd;     // version
  std::string kernels;   // digest of the sources, kernels/tune/kernel_digest.h
  std::string driver;    // cuDriverGetVersion, "13.0"
  std::string date;      // UTC, "2026-11-30T05:34:13Z"
  std::string protocol;  // kernels/tune/cold_timer.h
  int64_t flush_bytes = 0;
  double empty_kernel_ns = 0;  // event to event; taken off all times
  friend bool operator==(const TuningConditions&, const TuningConditions&) = default;
};

// The winner at one M.
struct MeasuredPoint {
  int64_t m = 0;
  Sm90Tiling tiling;
  double ns = 0;  // median
  double fastest_ns = 0;
  double slowest_ns = 0;
  int samples = 0;
  int candidates = 0;          // that were measured
  double model_choice_ns = 0;  // median of the kernel that the model takes
  double model_ns = 0;         // what the model expects of the winner; 0: it does not say
  friend bool operator==(const MeasuredPoint&, const MeasuredPoint&) = default;
};

struct TuningEntry {
  TuningKey key;
  TuningConditions conditions;
  std::vector<MeasuredPoint> points;  // ascending in M, distinct
  friend bool operator==(const TuningEntry&, const TuningEntry&) = default;
};

// The numbers of rows that tuning measures unless told otherwise, ascending.
const std::vector<int64_t>& DefaultTuningRows();

// The rows that points[i] speaks for end at its M. They begin behind the point before it, or behind the
// largest of DefaultTuningRows below it, whichever is later.
int64_t FirstRowOf(const std::vector<MeasuredPoint>& points, size_t i);

// A choice and where it comes from.
struct TunedChoice {
  Sm90Choice choice;
  std::optional<MeasuredPoint> measured;  // nothing: the model's
};

// Ascending in M, without gaps. The last point also speaks for more rows when it has at least as many as
// the last of DefaultTuningRows. A point whose kernel is no candidate (any more) is left out.
std::vector<TunedChoice> ChooseTuned(const QuantSpec& spec, const LayerShape& shape,
                                     ElementType x_type, const std::vector<MeasuredPoint>& points);

// What is known about the kernels of one layer on the GPU at hand.
struct Measurements {
  // The points for x of that type; null: nothing was measured.
  std::function<std::vector<MeasuredPoint>(ElementType x_type)> points = nullptr;
  int clock_mhz = 0;  // what the model's cycles take; 0: unknown
};

// "measured 12.34 us at M = 64 (the model's kernel: 13.10 us)".
std::string Describe(const MeasuredPoint& point);
// The same, or what the model says.
std::string ChosenBy(const TunedChoice& tuned, int clock_mhz);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_SELECT_TUNING_TABLE_H_

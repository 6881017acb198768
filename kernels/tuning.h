// What    Tuning: measuring which kernels serve a layer best on the GPU at hand, and keeping what was
//         found. GpuKernels::Tune (kernels/gemm.h) measures, a TuningStore keeps.
//           auto store = TuningStore::Open({.directory = directory});   // one per node
//           GpuKernels kernels(driver, {.tuning = store, ...});         // plans follow it
//           kernels.Tune(layers, settings, control, progress);
// Units   Nanoseconds, rows of x.
#ifndef GEMMD_KERNELS_TUNING_H_
#define GEMMD_KERNELS_TUNING_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/select/tuning_table.h"
#include "kernels/tune/race.h"
#include "kernels/tune/tuning_store.h"

namespace gemmd {

struct TuneLayer {
  QuantSpec spec;
  LayerShape shape;
};

struct TuneSettings {
  std::vector<int64_t> rows = {};  // ascending, at least 1; empty = DefaultTuningRows
  int candidates = 6;              // measured at each M, the model's best
  int samples = 15;
  // Every type of x that has kernels, not only the first: bfloat16 for layers without activation types.
  bool all_x_types = false;
  absl::Time deadline = absl::InfiniteFuture();
  uint64_t flush_bytes = 0;  // 0 = 512 MiB, or twice the L2 if that is more
};

enum class TuneOutcome : uint8_t {
  kMeasured,   // the point is stored
  kNoKernel,   // a layer without kernels to choose from; see message
  kFailed,     // see message
  kOutOfTime,  // the deadline came first
};

// One point that is done, or one layer that has none.
struct TuneStep {
  int done = 0;  // points, of `total`
  int total = 0;
  LayerShape shape = {};
  std::string spec = {};    // SpecText
  std::string x_type = {};  // empty: of a whole layer
  TuneOutcome outcome = TuneOutcome::kMeasured;
  MeasuredPoint point = {};       // kMeasured; else its m, 0 for a whole layer
  std::string kernel = {};        // the winner
  std::string model_kernel = {};  // what the model takes; empty: it did not run
  std::string message = {};       // also of candidates that fell out, and of a store that keeps nothing
};

// Returns false to cancel.
using TuneProgress = std::function<bool(const TuneStep&)>;

}  // namespace gemmd

#endif  // GEMMD_KERNELS_TUNING_H_

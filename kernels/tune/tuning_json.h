// What    Tuning entries as JSON text: what a tuning directory keeps, what ships with gemmd, what is
//         exported and imported.
//           {"schema": 2, "entries": [{"device": {...}, "layer": {...}, "conditions": {...},
//             "points": [{"m": 64, "tiling": {...}, "ns": 12340.0, ...}, ...]}, ...]}
// Errors  ParseTuning: DataLoss TUNING_DAMAGED: no JSON, no such schema, or a field that is missing, of
//         another type or out of bounds; nothing of the text is taken.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_TUNE_TUNING_JSON_H_
#define GEMMD_KERNELS_TUNE_TUNING_JSON_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/select/tuning_table.h"

namespace gemmd {

// Raised when a field changes its meaning.
inline constexpr int kTuningSchema = 2;

std::string RenderTuning(const std::vector<TuningEntry>& entries);
absl::StatusOr<std::vector<TuningEntry>> ParseTuning(absl::string_view text);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_TUNE_TUNING_JSON_H_

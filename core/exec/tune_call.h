// What    One run of tuning on a device (Device::Tune).
#ifndef GEMMD_CORE_EXEC_TUNE_CALL_H_
#define GEMMD_CORE_EXEC_TUNE_CALL_H_

#include <vector>

#include "kernels/tuning.h"

namespace gemmd {

struct TuneCall {
  std::vector<TuneLayer> layers;
  TuneSettings settings;
  TuningControl control;
  TuneProgress progress;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_TUNE_CALL_H_

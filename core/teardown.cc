#include "core/teardown.h"

#include "kernels/cuda/handles.h"

namespace gemmd {

void ReportTeardownTo(void (*report)(const std::string& message)) {
  cuda::SetTeardownReporter(report);
}

}  // namespace gemmd

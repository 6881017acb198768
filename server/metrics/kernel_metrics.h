// What    Counters and gauges of the kernel cache and of compilation, read at the scrape.
// Threads Collect may run on several threads at once.
#ifndef GEMMD_SERVER_METRICS_KERNEL_METRICS_H_
#define GEMMD_SERVER_METRICS_KERNEL_METRICS_H_

#include <prometheus/collectable.h>

#include <memory>
#include <vector>

#include "core/prewarm.h"

namespace gemmd {

class KernelMetrics : public prometheus::Collectable {
 public:
  explicit KernelMetrics(std::shared_ptr<const KernelStore> kernels)
      : kernels_(std::move(kernels)) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::shared_ptr<const KernelStore> kernels_;
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_METRICS_KERNEL_METRICS_H_

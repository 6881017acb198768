// What    Gauges that a scrape computes: the node's state, the log's counters, the process.
// Errors  None: a value that cannot be read gives no sample, never a sentinel.
// Threads Collect may run on several threads at once.
#ifndef GEMMD_SERVER_METRICS_SNAPSHOT_H_
#define GEMMD_SERVER_METRICS_SNAPSHOT_H_

#include <prometheus/collectable.h>

#include <functional>
#include <string>
#include <vector>

#include "core/node.h"

namespace gemmd {

struct LogCounts {
  std::vector<std::pair<std::string, uint64_t>> messages;  // by level
  uint64_t dropped = 0;
};

class Snapshot : public prometheus::Collectable {
 public:
  // Both outlive the snapshot.
  Snapshot(const Node* node, std::function<LogCounts()> log_counts)
      : node_(node), log_counts_(std::move(log_counts)) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Node* node_;
  const std::function<LogCounts()> log_counts_;
};

// process_* of this process, from /proc.
std::vector<prometheus::MetricFamily> ProcessFamilies();

}  // namespace gemmd

#endif  // GEMMD_SERVER_METRICS_SNAPSHOT_H_

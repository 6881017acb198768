#include "server/metrics/kernel_metrics.h"

#include "absl/time/time.h"
#include "server/metrics/family.h"

namespace gemmd {

std::vector<prometheus::MetricFamily> KernelMetrics::Collect() const {
  const KernelStoreStats stats = kernels_->stats();
  const auto count = [](uint64_t value) { return static_cast<double>(value); };
  FamilyBuilder compilations = Counter("gemmd_compile_total", "Kernels compiled, by result.");
  compilations.Add(count(stats.compilations), {{"result", "ok"}});
  compilations.Add(count(stats.failed_compilations), {{"result", "failed"}});
  FamilyBuilder hits = Counter("gemmd_cache_hits_total", "Kernels found, by tier.");
  hits.Add(count(stats.memory_hits), {{"tier", "memory"}});
  hits.Add(count(stats.disk_hits), {{"tier", "disk"}});
  std::vector<prometheus::MetricFamily> out;
  out.push_back(compilations.Build());
  out.push_back(hits.Build());
  out.push_back(Counter("gemmd_compile_helper_deaths_total",
                        "Compile helpers that died, or took too long and were ended; their kernels "
                        "count as failed.")
                    .Add(count(stats.compiler_deaths))
                    .Build());
  out.push_back(
      Counter("gemmd_compile_seconds_total", "Time spent compiling, all workers together.")
          .Add(absl::ToDoubleSeconds(stats.compile_time))
          .Build());
  out.push_back(Gauge("gemmd_compile_queue_depth", "Kernels waiting for a worker.")
                    .Add(count(stats.queued))
                    .Build());
  out.push_back(
      Gauge("gemmd_cache_bytes", "Compiled kernels on disk.").Add(count(stats.disk_bytes)).Build());
  out.push_back(Counter("gemmd_cache_evicted_total", "Kernels removed to keep the size limit.")
                    .Add(count(stats.evicted_entries))
                    .Build());
  out.push_back(Counter("gemmd_cache_integrity_failures_total",
                        "Entries dropped, by what was wrong: damaged, stale (of another schema) or "
                        "foreign (of another "
                        "architecture or compiler).")
                    .Add(count(stats.damaged_entries), {{"kind", "damaged"}})
                    .Add(count(stats.stale_entries), {{"kind", "stale"}})
                    .Add(count(stats.foreign_entries), {{"kind", "foreign"}})
                    .Build());
  out.push_back(Counter("gemmd_cache_write_failures_total", "Kernels that did not reach the disk.")
                    .Add(count(stats.write_failures))
                    .Build());
  return out;
}

}  // namespace gemmd

// What    The inside of Node, shared by node_*.cc: one file per group of operations.
// Order   Members are destroyed bottom up: sessions and layers first, then the reapers with what
//         they were given, the devices last.
#ifndef GEMMD_CORE_NODE_IMPL_H_
#define GEMMD_CORE_NODE_IMPL_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/activity.h"
#include "core/exec/executor.h"
#include "core/exec/thread_pool.h"
#include "core/layer/checkpoint_cache.h"
#include "core/layer/layer_registry.h"
#include "core/node.h"
#include "core/session/reaper.h"
#include "core/session/region_table.h"
#include "core/session/session.h"
#include "core/session/shared_mapping.h"

namespace gemmd {

class Node::Impl {
 public:
  Impl(NodeOptions options, std::vector<std::unique_ptr<Device>> devices, NodeObserver* observer);
  ~Impl();

  // A device and the thread that releases its objects.
  struct Place {
    std::unique_ptr<Device> device;
    std::unique_ptr<Reaper> reaper;
  };

  // FailedPrecondition WRONG_DEVICE: no such device. An empty id is the best device.
  absl::StatusOr<const Place*> FindPlace(const std::string& device_id) const;
  const Place& PlaceOf(const Device& device) const;

  std::vector<std::shared_ptr<Session>> sessions() const;
  bool EndSession(const std::shared_ptr<Session>& session, absl::string_view why);
  // ResourceExhausted QUOTA, or OK: there is room for one more session of that kind.
  absl::Status CheckRoom(bool stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Memory of one argument, held until the request is done.
  struct Argument {
    std::shared_ptr<Memory> memory;
    Device* device = nullptr;
    Extent extent;
  };
  absl::StatusOr<Argument> Acquire(const Session& session, const RegionRef& ref) const;

  // Calls `observer` if there is one.
  template <typename Call>
  void Observe(Call&& call) const {
    if (observer != nullptr) call(*observer);
  }

  // How a request that chooses `zero_points`, or nothing, has files read.
  ReadingOptions ReadingOf(const std::optional<GptqZeroPoints>& zero_points) const;

  // Threads for quantizing weights, started when they are first needed; a core each, to 16.
  ThreadPool& quantizers() const;

  // Ends stream sessions that nobody keeps, as long as the node lives.
  void WatchStreams();
  // One pass; returns when the next one is due.
  absl::Time EndExpired(absl::Time now);

  const NodeOptions options;
  NodeObserver* const observer;
  const uint64_t boot_id;
  std::vector<Place> places;
  Activity activity;
  std::atomic<uint64_t> requests_total{0};
  const std::shared_ptr<std::atomic<int>> tickets_in_use = std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<ThreadTracker> tracker = std::make_shared<ThreadTracker>();
  RegionTable regions;
  MappingTable mappings;
  const std::unique_ptr<CheckpointCache> checkpoints;  // outlives the loads of `layers`
  mutable std::once_flag quantizers_started;
  mutable std::unique_ptr<ThreadPool> quantizer_pool;  // so does this
  std::unique_ptr<LayerRegistry> layers;

  mutable Mutex mutex;
  CondVar changed;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  uint64_t opened ABSL_GUARDED_BY(mutex) = 0;  // sessions since the start
  std::map<std::string, std::shared_ptr<Session>> by_token ABSL_GUARDED_BY(mutex);
  std::set<uint64_t> unkept ABSL_GUARDED_BY(mutex);  // stream sessions that no stream kept yet
  std::thread watcher;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_NODE_IMPL_H_

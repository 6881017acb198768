// What    Quantized layers on devices, by content: the same tensors registered by any number of
//         sessions are one copy per device, and are loaded once.
// Errors  AlreadyExists LAYER_CONFLICT: the session uses the name for other content on that device.
//         ResourceExhausted QUOTA. NotFound LAYER_NOT_FOUND, PermissionDenied NOT_OWNER. Aborted
//         SESSION_ENDED. Cancelled. Else what the source or the device says.
// Threads Thread-safe; no lock is held while files are read, a device works or a callback runs.
// Source  How a registration proceeds: core/layer/README.md.
#ifndef GEMMD_CORE_LAYER_LAYER_REGISTRY_H_
#define GEMMD_CORE_LAYER_LAYER_REGISTRY_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/checkpoint/checkpoint.h"
#include "core/exec/device.h"
#include "core/quant/digest.h"
#include "core/quant/quantize_layer.h"
#include "core/types.h"
#include "kernels/base/mutex.h"

namespace gemmd {

// How a source had the weights that the layer holds. Sources of one content may differ in it, so it is kept for
// each: whoever registers a layer is told of the source that they named.
struct SourceFacts {
  std::string format;
  std::optional<QuantizedHere> quantized;
  std::vector<std::string> notes;  // about its tensors (core/checkpoint/reading_notes.h)
};

// One client's wish for a layer.
struct LayerRegistration {
  uint64_t session_id = 0;
  std::string name;                                     // empty: no label
  std::function<bool(const LayerProgress&)> progress;   // false cancels; may be null
  std::function<void(absl::StatusOr<LayerInfo>)> done;  // exactly once
};

// What reading it tells, in turns where it is made of parts.
struct ReadProgress {
  ProgressFunction reading;
  ProgressFunction quantizing;  // of weights that are quantized here
};

// Where its tensors come from and go to.
struct LayerOrigin {
  Device* device = nullptr;
  // Gives what the device loaded an owner that releases it off every lock and RPC.
  std::function<std::shared_ptr<DeviceLayer>(std::shared_ptr<DeviceLayer>)> guard;
  // Equal identities promise equal tensors; empty = unknown.
  std::string identity;
  uint64_t bytes = 0;  // of host memory that loading takes, as far as known before
  // Finds out `bytes` where files must be looked at for that. May be null.
  std::function<uint64_t()> measure;
  std::function<absl::StatusOr<CheckpointLayer>(const ReadProgress&)> read;
};

class LayerRegistry {
 public:
  struct Options {
    int loader_threads = 2;  // loads at the same time
    int layers_per_session = 65536;
    // Called after each load with its format ("" when the source failed); may be null.
    std::function<void(const std::string&, const absl::Status&, absl::Duration)> loaded;
    // LayerOrigin::bytes of the loads at a time; a larger load waits until it is the only one. With what
    // HostBuffer keeps it makes 1 GiB.
    uint64_t loading_bytes = uint64_t{768} << 20;
    // Without a load for so long, buffers that were kept for the next one are given back.
    absl::Duration keep_buffers = absl::Seconds(2);
  };

  explicit LayerRegistry(Options options);
  ~LayerRegistry();  // cancels what waits, finishes what the device is loading

  void AddSession(uint64_t session_id);
  // Gives up the session's references and ends its registrations with SESSION_ENDED.
  void RemoveSession(uint64_t session_id);

  // Returns at once; `done` may be called before. A second registration of an identity or content
  // that is being loaded joins that load.
  void Register(LayerRegistration registration, LayerOrigin origin);
  // An id that the session does not hold is no error.
  absl::Status Release(uint64_t session_id, uint64_t layer_id);

  struct Use {
    Device* device = nullptr;
    std::shared_ptr<DeviceLayer> layer;
  };
  absl::StatusOr<Use> Find(uint64_t session_id, uint64_t layer_id) const;
  // Name and source of the session's registrations: of the last name in the alphabet.
  absl::StatusOr<LayerInfo> Info(uint64_t session_id, uint64_t layer_id) const;
  std::vector<LayerInfo> List(uint64_t session_id) const;
  // Layers, then loads in progress (layer_id 0). A layer that was registered from several sources has all their
  // formats, separated by ", ", and is quantized where one of them was.
  std::vector<LayerInfo> ListAll() const;

  struct Totals {
    int layers = 0;
    int references = 0;
  };
  Totals totals() const;
  int LayersOf(uint64_t session_id) const;

 private:
  struct Layer;
  struct Load;
  // What a session calls a layer, "" included, each with the source it was registered from last.
  using Names = std::map<std::string, SourceFacts>;
  struct Holder {
    std::map<std::pair<std::string, std::string>, uint64_t> names;  // (device, name) -> layer
    std::map<uint64_t, Names> layers;
  };
  struct Waiting {
    std::shared_ptr<LayerRegistration> registration;
    std::optional<SourceFacts> source;  // of another source than the load's
  };
  using Registrations = std::vector<Waiting>;
  // What a registration gets once the lock is released.
  using Answers = std::vector<std::function<void()>>;

  // What a loader does next.
  enum class Step : uint8_t { kWait, kMeasure, kRun, kStop };
  void Work();
  // Of the oldest waiting load.
  Step NextStep() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Step WaitForStep(std::shared_ptr<Load>& load);
  void MeasureLoad(const std::shared_ptr<Load>& load);
  void RunLoad(const std::shared_ptr<Load>& load);
  absl::StatusOr<CheckpointLayer> Read(const std::shared_ptr<Load>& load);
  absl::Status ReadAndPlace(const std::shared_ptr<Load>& load, std::string& format);
  bool ClaimContent(const std::shared_ptr<Load>& load, const std::string& content, const SourceFacts& source);
  absl::Status LoadOnDevice(const std::shared_ptr<Load>& load, CheckpointLayer source,
                            LayerContent read, const std::string& content);
  bool Report(const std::shared_ptr<Load>& load, const LayerProgress& progress);
  void FailLoad(const std::shared_ptr<Load>& load, const absl::Status& status);

  void ForgetLoad(const Load& load) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `source` of those that have none of their own.
  void AttachAll(const std::shared_ptr<Layer>& layer, Registrations registrations, const SourceFacts& source,
                 Answers& answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<LayerInfo> Attach(const std::shared_ptr<Layer>& layer, const LayerRegistration& registration,
                                   const SourceFacts& source) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(const std::shared_ptr<Layer>& layer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<Layer>> FindHeld(uint64_t session_id, uint64_t layer_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  LayerInfo InfoFor(const Layer& layer, uint64_t session_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  LayerInfo InfoOfAll(const Layer& layer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::shared_ptr<Load>> queue_ ABSL_GUARDED_BY(mutex_);
  int loading_ ABSL_GUARDED_BY(mutex_) = 0;  // loads that run, and their known bytes
  uint64_t loading_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<std::shared_ptr<Load>> loads_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Load>> load_by_identity_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Load>> load_by_content_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<Layer>> layers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> layer_by_identity_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> layer_by_content_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Holder> holders_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> loaders_;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_LAYER_LAYER_REGISTRY_H_

// What    Registers the modules of a model one after the other, a few at a time, as layers of one session.
//         A file of the checkpoint that cannot be read and may hold more modules fails like one (keep_going).
// States  PLANNED -> LOADING -> DONE. A failure stops it, unless the request keeps going; then the modules
//         under way are waited for, and the layers that it registered are released again. Layers that the
//         session held before stay.
// Errors  Of the first module that failed, with names and messages of all, a fault of the config once; Cancelled when `progress` asks
//         for it. The end of the session, a drain and a quota stop it also when it keeps going.
// Threads Driven by the answers of Node::RegisterLayer; calls of `progress` are serialised.
#ifndef GEMMD_CORE_MODEL_REGISTRATION_H_
#define GEMMD_CORE_MODEL_REGISTRATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/model_plan.h"
#include "core/types.h"
#include "kernels/base/mutex.h"

namespace gemmd {

class Node;
class Session;

struct ModelRequest {
  std::string device;       // empty = best
  std::string path;         // the checkpoint's directory
  std::string name_prefix;  // layers are named by it and their module
  ModelSelection selection;
  bool keep_going = false;
  std::optional<QuantizeTarget> quantize;  // of every module; those that are quantized fail
  std::optional<GptqZeroPoints> gptq_zero_points;  // nullopt: as the node is set
};

// After the plan (without a module) one for each change of a module.
struct ModelProgress {
  std::vector<std::string> unmatched_exclude;  // of the plan
  std::vector<std::string> notes;              // of the plan
  int modules_total = 0;
  int modules_done = 0;  // registered or failed
  uint64_t bytes_total = 0;
  uint64_t bytes_done = 0;  // of the files
  std::string module;
  SliceRequest slice;
  LayerState state = LayerState::kLoading;  // kLoading, kQuantizing, kPacking, kReady, kFailed
  uint64_t module_bytes_total = 0;
  uint64_t module_bytes_done = 0;
  std::optional<LayerInfo> layer;  // with kReady
  absl::Status failure;            // with kFailed
};

struct ModelResult {
  int registered = 0;
  int failed = 0;                 // only when it keeps going
  std::vector<uint64_t> added;  // layers that the session did not hold before
};

class ModelRegistration : public std::enable_shared_from_this<ModelRegistration> {
 public:
  using Progress = std::function<bool(const ModelProgress&)>;  // false cancels
  using Done = std::function<void(absl::StatusOr<ModelResult>)>;

  // `node` outlives it.
  ModelRegistration(Node& node, std::shared_ptr<Session> session, ModelRequest request,
                    ModelPlan plan, int window, Progress progress, Done done);

  void Start();

 private:
  struct Failure {
    std::string module;  // or a file that may hold more of them
    absl::Status status;
  };
  struct Fault {
    const Failure* first;
    size_t modules;  // that it is told of
  };

  void Pump();
  std::optional<size_t> ClaimNext();
  void Submit(size_t index);
  bool OnProgress(size_t index, const LayerProgress& progress);
  void OnDone(size_t index, absl::StatusOr<LayerInfo> layer);
  void Report(ModelProgress progress) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ModelProgress About(size_t index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishIfDone();
  void Release(const std::set<uint64_t>& layers);
  void ReportPlan() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ModelProgress Totals() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static std::vector<Fault> FaultsOf(const std::vector<Failure>& failures);
  absl::Status Failed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Node& node_;
  const std::shared_ptr<Session> session_;
  const ModelRequest request_;
  const std::vector<PlannedModule> plan_;
  const std::vector<HiddenFile> hidden_files_;
  const int modules_total_;  // each hidden file counts as one
  const std::vector<std::string> unmatched_exclude_;
  const std::vector<std::string> notes_;
  const int window_;  // modules under way
  const Progress progress_;
  const Done done_;
  const std::set<uint64_t> held_before_;

  Mutex mutex_;
  std::vector<uint64_t> bytes_done_ ABSL_GUARDED_BY(mutex_);  // of each module
  uint64_t bytes_total_ = 0;
  std::set<uint64_t> registered_ ABSL_GUARDED_BY(mutex_);  // layers
  std::vector<Failure> failures_ ABSL_GUARDED_BY(mutex_);
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  int modules_done_ ABSL_GUARDED_BY(mutex_) = 0;
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;    // one thread submits
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;    // nothing more is submitted
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;  // by `progress`
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_MODEL_REGISTRATION_H_

// What    Measures the candidates (select/sm90_candidates.h) of layers at some numbers of rows on one GPU:
//         each is compiled behind everything else, loaded, self-tested, and raced against the others with
//         a cold L2 (tune/race.h). Winners go into the store one by one: what an interrupted run has
//         measured stays.
// Memory  A layer's weights, x and y for the most rows, the flush buffer; kernels stay loaded while their
//         layer is measured.
// Errors  DataLoss CONTEXT_LOST: a candidate took the GPU's context along; it is quarantined. Cancelled, and
//         what `control` says. ResourceExhausted GPU_OOM, NVRTC_MISSING: nothing can be measured. What a
//         single layer or point meets is no error: its step says so.
// Threads One thread, with the context current.
#ifndef GEMMD_KERNELS_LAYER_TUNER_H_
#define GEMMD_KERNELS_LAYER_TUNER_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/library.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/launch/gemm_plan.h"
#include "kernels/self_test.h"
#include "kernels/tune/cold_timer.h"
#include "kernels/tuning.h"
#include "kernels/tuning_workload.h"

namespace gemmd {

class LayerTuner {
 public:
  struct Parts {
    const cuda::DriverTable* driver = nullptr;
    std::shared_ptr<jit::KernelCache> cache;
    std::shared_ptr<TuningStore> store;
    std::unique_ptr<SelfTester> tester;  // null: candidates are not tested
    std::string architecture;
    DeviceClass device;
    uint64_t l2_bytes = 0;
  };
  LayerTuner(Parts parts, TuneSettings settings, const TuningControl& control);
  ~LayerTuner();  // compilations that were asked for ahead are forgotten
  LayerTuner(const LayerTuner&) = delete;
  LayerTuner& operator=(const LayerTuner&) = delete;

  absl::Status Tune(const std::vector<TuneLayer>& layers, const TuneProgress& progress);

 private:
  struct Subject {
    QuantSpec spec;
    LayerShape shape;
    ElementType x_type;
  };
  struct Lane {
    Sm90Choice choice;
    GemmKernel launch;
    bool is_model = false;  // what the model takes
  };
  struct LoadedCandidate {
    cuda::LoadedLibrary library;
    CUkernel kernel;
  };

  std::vector<Sm90Choice> CandidatesOf(const Subject& subject, int64_t m) const;
  std::vector<Subject> SubjectsOf(const TuneLayer& layer) const;
  void CompileAhead(const Subject& subject);
  absl::Status StartTimer();
  absl::Status TuneSubject(const Subject& subject);
  absl::Status TunePoint(const Subject& subject, const TuningWorkload& workload, int64_t m);
  // The candidates that can run, the model's first. What keeps others out is added to `message`.
  absl::StatusOr<std::vector<Lane>> Load(const Subject& subject, int64_t m, std::string& message);
  MeasuredPoint PointOf(int64_t m, const std::vector<Lane>& lanes,
                        const std::vector<LaneTimes>& times, size_t winner) const;
  absl::StatusOr<jit::SharedKernel> Compile(const jit::KernelSource& source) const;
  absl::StatusOr<GemmKernel> LoadOne(const Subject& subject, const Sm90Choice& choice);
  absl::StatusOr<CUkernel> LoadKernel(const jit::CompiledKernel& compiled, int shared_bytes);
  absl::Status Test(const Subject& subject, const jit::CompiledKernel& compiled,
                    const GemmKernel& launch);
  TuningEntry EntryOf(const Subject& subject, const MeasuredPoint& point) const;
  // Counts what is done and tells it. Cancelled.
  absl::Status Tell(TuneStep step, int points);
  absl::Status TellOutOfTime(const Subject& subject);
  absl::Status TellFailure(const Subject& subject, int64_t m, const absl::Status& why, int points);
  absl::Status GoOn() const;  // DeadlineExceeded TIME_LIMIT, or what the control says

  Parts parts_;
  TuneSettings settings_;
  const TuningControl control_;  // the caller's, and the deadline
  int driver_version_ = 0;
  TuneProgress progress_;
  int done_ = 0;
  int total_ = 0;
  bool cancelled_ = false;
  std::optional<ColdTimer> timer_;
  std::vector<uint64_t> wishes_;
  std::map<std::string, LoadedCandidate> loaded_;       // by key, of the layer being measured
  std::set<std::tuple<std::string, int, int>> tested_;  // key, cluster, resident clusters
};

// A kernel that does nothing: what a launch costs by itself.
jit::KernelSource EmptyKernel(const std::string& architecture);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_LAYER_TUNER_H_

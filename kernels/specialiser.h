// What    One GPU's specialised kernels: compiled behind the layers that want them, loaded, tested, and
//         put into the layers' plans. Layers with the same program share its kernel.
//
//   IDLE ──wanted──▶ COMPILING ──▶ LOADING ──▶ READY
//    │ ▲                │              ▲ └────▶ FAILED
//    │ └──wanted no more┘              │          │ another layer comes:
//    └──cached, when a layer comes─────┘          └──▶ LOADING, or IDLE when not cached
//
// Order   Kernels for one x type come in order of M: decoding first. The type is the one of the GPU's
//         latest request with a new type, bfloat16 before there was any; the layer's first request
//         corrects the guess, and each further type is compiled when it comes.
// Armed   The kernel for batch-invariant requests is put into plans like the others, and serves those
//         requests only that name its numerics (kernels/launch/layer_plan.h). The observer hears of it.
// Threads Every method is thread-safe. A thread of its own asks for, loads and tests kernels, and gives up what
//         nobody wants; no lock is held meanwhile. Only it takes a program into COMPILING and out of it.
#ifndef GEMMD_KERNELS_SPECIALISER_H_
#define GEMMD_KERNELS_SPECIALISER_H_

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/jit/wishes.h"
#include "kernels/job_queue.h"
#include "kernels/kernel_event.h"
#include "kernels/layer_kernels.h"
#include "kernels/layer_programs.h"
#include "kernels/loaded_kernels.h"

namespace gemmd {

// One program on one GPU. Guarded by the specialiser's mutex but for the constants.
struct SpecialisedProgram {
  enum class State : uint8_t { kIdle, kCompiling, kLoading, kReady, kFailed };

  const GemmProgram program;
  const SelfTestSubject subject;  // the layer that came first

  State state = State::kIdle;
  CUkernel kernel = nullptr;             // READY
  std::string key;                       // READY: of the kernel (jit/kernel_key.h)
  absl::Status why;                      // FAILED
  uint64_t wish = 0;                     // COMPILING: KernelCache::Ask's
  std::set<LayerKernels*> layers;        // whose plans have a place for it
  std::set<const LayerKernels*> wanted;  // who waits for it, or got it
};

class Specialiser {
 public:
  struct Options {
    CUcontext context = nullptr;
    std::shared_ptr<jit::KernelCache> cache;
    // True: layers are served meanwhile, so clients' compilations go first, and kernels for an x type
    // are compiled when requests bring it. False: somebody waits for all of them.
    bool serves_meanwhile = true;
    KernelObserver observer = nullptr;
  };
  // `kernels` outlives the object.
  Specialiser(const cuda::DriverTable& driver, LoadedKernels* kernels, Options options);
  ~Specialiser();  // after the last LayerKernels
  Specialiser(const Specialiser&) = delete;
  Specialiser& operator=(const Specialiser&) = delete;

  SpecialisedProgram* Intern(GemmProgram program, const SelfTestSubject& subject);
  // Into the cache when nothing more urgent is to be done; not loaded.
  void CompileAhead(std::vector<jit::KernelSource> sources);
  void AddTo(KernelCounts& counts) const;

  // Other kernels for requests that are not batch-invariant: one program for each range, in order.
  struct Choice {
    std::vector<LayerPlan::Packed> packed;
    std::vector<SpecialisedProgram*> programs;
  };
  // What a layer with these kernels will want first is compiled while it still waits for others.
  std::shared_ptr<jit::Wishes> CompileBeside(const Choice& choice) const;
  bool HasLayer(const QuantSpec& spec, const LayerShape& shape) const;
  // Puts them into the plans of all layers of that format and shape. Those that are compiled already serve
  // when it returns, others follow. The GPU's context is current.
  void Rechoose(const QuantSpec& spec, const LayerShape& shape, const Choice& choice);

  // LayerKernels' side.
  void Add(LayerKernels* layer);
  void Start(LayerKernels* layer);
  void Note(LayerKernels* layer, const KernelUse& use);
  void Remove(LayerKernels* layer);
  KernelProgress ProgressOf(const LayerKernels& layer) const;
  bool WaitUntilSettled(const LayerKernels& layer, absl::Time deadline) const;

 private:
  using State = SpecialisedProgram::State;

  void LoadCached(SpecialisedProgram& program);
  void Compile(SpecialisedProgram& program);
  void StopIfUnwanted(SpecialisedProgram& program);
  void Arrived(SpecialisedProgram& program, const absl::StatusOr<jit::SharedKernel>& compiled);
  absl::StatusOr<CUkernel> Load(const SpecialisedProgram& program,
                                const jit::CompiledKernel& compiled);
  // `key`: of the kernel; empty when it was not compiled.
  void Finish(SpecialisedProgram& program, const std::string& key,
              const absl::StatusOr<CUkernel>& kernel);
  void TakeNote(uint64_t layer_id, const KernelUse& use);

  void Want(LayerKernels* layer, const KernelUse& use)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unwant(const LayerKernels* layer, SpecialisedProgram& program)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Exchange(LayerKernels* layer, const Choice& choice) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the numerics that batch-invariant requests may name from now on.
  std::set<uint64_t> PutIntoPlans(const SpecialisedProgram& program)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PutReadyInto(LayerKernels* layer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ElementType FirstType(const std::vector<LayerPlan::Packed>& packed) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  KernelProgress Count(const LayerKernels& layer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const cuda::DriverTable& driver_;
  LoadedKernels& kernels_;
  const Options options_;
  std::atomic<uint64_t> ready_{0};
  std::atomic<uint64_t> failed_{0};

  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::map<std::string, std::unique_ptr<SpecialisedProgram>> programs_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, LayerKernels*> layers_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  ElementType preferred_ ABSL_GUARDED_BY(mutex_) = ElementType::kBFloat16;

  // Shared with answers of the cache, which may come late.
  const std::shared_ptr<JobQueue> jobs_ = std::make_shared<JobQueue>();
  std::thread thread_;
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_SPECIALISER_H_

// What    The kernels of one layer while it lives: the plan that serves now, and how far its
//         specialised kernels are. The generic kernels are there from the start; the others come one
//         by one, each with a new plan.
// Threads Thread-safe. plan() holds a lock for as long as a shared pointer takes to copy; the rest of a
//         request's path takes none, but for the first request with an x type.
//         The GpuKernels that made it outlives it, and every kernel of its plans.
#ifndef GEMMD_KERNELS_LAYER_KERNELS_H_
#define GEMMD_KERNELS_LAYER_KERNELS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kernels/base/mutex.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/launch/layer_plan.h"

namespace gemmd {

namespace jit {
class Wishes;
}
class Specialiser;
struct SpecialisedProgram;

// Of a layer's specialised kernels; those that sum in float16 count once a request has permitted it.
struct KernelProgress {
  int total = 0;
  int ready = 0;
  int pending = 0;    // being compiled or loaded
  int failed = 0;     // not to be had
  int waiting = 0;    // for the first request with their x type
  std::string error;  // of one that failed
};

class LayerKernels {
 public:
  // The programs of a plan's specialised kernels. GpuKernels::PlanLayer makes them.
  struct Programs {
    std::vector<SpecialisedProgram*> packed;     // one for each range of plan.packed, in order
    std::vector<SpecialisedProgram*> invariant;  // as plan.invariant
    std::shared_ptr<jit::Wishes> beside;         // kept until Specialise has asked for them; may be null
  };
  LayerKernels(Specialiser* specialiser, const QuantSpec& spec, const LayerShape& shape, LayerPlan plan,
               Programs programs);
  ~LayerKernels();  // compilations that nobody else waits for are stopped
  LayerKernels(const LayerKernels&) = delete;
  LayerKernels& operator=(const LayerKernels&) = delete;

  std::shared_ptr<const LayerPlan> plan() const;

  // Begins: specialised kernels that are compiled already serve when it returns, others follow. The
  // GPU's context is current.
  void Specialise();

  // A request came. Kernels for its x are compiled from now on, for a batch-invariant one just the one that
  // such requests may have; those for the x that was guessed before the layer's first request are not.
  void Note(const DenseRequest& request);

  KernelProgress progress() const;
  // Until nothing is pending, at most until `deadline`; whether nothing is.
  bool WaitUntilSettled(absl::Time deadline) const;

 private:
  friend class Specialiser;

  // One kernel of a plan.
  struct Slot {
    SpecialisedProgram* program;
    size_t index;  // in LayerPlan::packed, or in LayerPlan::invariant
    size_t range;  // of packed: index in its plan's ranges
    KernelUse use;

    GemmKernel& In(LayerPlan& plan) const {
      return use.batch_invariant ? plan.invariant[index].kernel
                          : plan.packed[index].plan.ranges[range].kernel;
    }
  };
  void SetPlan(LayerPlan plan);

  Specialiser* const specialiser_;
  const QuantSpec spec_;
  const LayerShape shape_;
  std::atomic<uint32_t> noted_{0};  // three bits for each x type: batch-invariant ones and float16 sums apart

  uint64_t id_ = 0;  // Specialiser::Add sets it

  // Below: the specialiser's, under its mutex.
  std::vector<Slot> slots_;
  bool had_request_ = false;
  std::shared_ptr<jit::Wishes> beside_;

  mutable Mutex mutex_;
  std::shared_ptr<const LayerPlan> plan_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_LAYER_KERNELS_H_

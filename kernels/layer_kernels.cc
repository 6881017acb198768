#include "kernels/layer_kernels.h"

#include <utility>

#include "kernels/specialiser.h"

namespace gemmd {

LayerKernels::LayerKernels(Specialiser* specialiser, const QuantSpec& spec, const LayerShape& shape,
                           LayerPlan plan, Programs programs)
    : specialiser_(specialiser),
      spec_(spec),
      shape_(shape),
      beside_(std::move(programs.beside)) {
  auto program = programs.packed.begin();
  for (size_t i = 0; i < plan.packed.size(); ++i) {
    for (size_t range = 0; range < plan.packed[i].plan.ranges.size(); ++range) {
      slots_.push_back({*program++, i, range, {plan.packed[i].x_type, false, plan.packed[i].half_sums}});
    }
  }
  for (size_t i = 0; i < plan.invariant.size(); ++i) {
    slots_.push_back({programs.invariant[i], i, 0, {plan.invariant[i].x_type, true}});
  }
  SetPlan(std::move(plan));
  specialiser_->Add(this);
}

LayerKernels::~LayerKernels() { specialiser_->Remove(this); }

std::shared_ptr<const LayerPlan> LayerKernels::plan() const {
  MutexLock lock(mutex_);
  return plan_;
}

void LayerKernels::SetPlan(LayerPlan plan) {
  auto next = std::make_shared<const LayerPlan>(std::move(plan));
  MutexLock lock(mutex_);
  plan_.swap(next);  // the old plan goes after the lock: it may be large
}

void LayerKernels::Specialise() { specialiser_->Start(this); }

void LayerKernels::Note(const DenseRequest& request) {
  const KernelUse use = KernelUseOf(request);
  const int kind = use.batch_invariant ? 1 : use.half_sums ? 2 : 0;
  const uint32_t bit = uint32_t{1} << (3 * static_cast<int>(use.x_type) + kind);
  if ((noted_.load(std::memory_order_relaxed) & bit) != 0) return;
  if (!plan()->HasPackedFor(request) || (noted_.fetch_or(bit) & bit) != 0) return;
  specialiser_->Note(this, use);
}

KernelProgress LayerKernels::progress() const { return specialiser_->ProgressOf(*this); }

bool LayerKernels::WaitUntilSettled(absl::Time deadline) const {
  return specialiser_->WaitUntilSettled(*this, deadline);
}

}  // namespace gemmd

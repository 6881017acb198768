#include "kernels/layer_kernels.h"

#include <utility>

#include "kernels/specialiser.h"

namespace gemmd {

LayerKernels::LayerKernels(Specialiser* specialiser, LayerPlan plan,
                           const std::vector<SpecialisedProgram*>& programs)
    : specialiser_(specialiser) {
  for (size_t i = 0, packed = 0, range = 0; i < programs.size(); ++i) {
    if (range == plan.packed[packed].plan.ranges.size()) {
      ++packed;
      range = 0;
    }
    slots_.push_back({programs[i], packed, range++, plan.packed[packed].x_type});
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

void LayerKernels::KeepGeneric(const std::string& why) {
  specialiser_->Remove(this);
  LayerPlan plan = *this->plan();
  plan.packed.clear();
  plan.why_not_packed = why;
  if (!plan.quantizers.empty()) {
    plan.quantizers.clear();
    plan.why_not_quantized = "the generic kernel serves the layer: " + why;
  }
  SetPlan(std::move(plan));
}

void LayerKernels::Note(const DenseRequest& request) {
  const uint32_t bit = uint32_t{1} << static_cast<uint32_t>(request.x_type);
  if ((noted_.load(std::memory_order_relaxed) & bit) != 0) return;
  if (!plan()->HasPackedFor(request) || (noted_.fetch_or(bit) & bit) != 0) return;
  specialiser_->Note(this, request.x_type);
}

KernelProgress LayerKernels::progress() const { return specialiser_->ProgressOf(*this); }

bool LayerKernels::WaitUntilSettled(absl::Time deadline) const {
  return specialiser_->WaitUntilSettled(*this, deadline);
}

}  // namespace gemmd

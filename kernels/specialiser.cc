#include "kernels/specialiser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/cuda/context.h"
#include "kernels/numerics.h"

namespace gemmd {
namespace {

void Fill(GemmKernel& place, const SpecialisedProgram& program) {
  place.kernel = program.kernel;
  place.numerics = program.kernel == nullptr ? 0 : NumericsOf(program.key, place.cluster);
}

}  // namespace

Specialiser::Specialiser(const cuda::DriverTable& driver, LoadedKernels* kernels, Options options)
    : driver_(driver), kernels_(*kernels), options_(std::move(options)) {
  thread_ = std::thread([this] { jobs_->Run(); });
}

Specialiser::~Specialiser() {
  jobs_->Close();
  thread_.join();
  MutexLock lock(mutex_);
  for (const auto& [identity, program] : programs_) {
    if (program->wish != 0) options_.cache->Forget(program->wish);
  }
}

SpecialisedProgram* Specialiser::Intern(GemmProgram program, const SelfTestSubject& subject) {
  const std::string identity =
      absl::StrCat(program.source.name_expression, "\n", program.source.program);
  MutexLock lock(mutex_);
  std::unique_ptr<SpecialisedProgram>& place = programs_[identity];
  if (place == nullptr) {
    place.reset(new SpecialisedProgram{.program = std::move(program), .subject = subject});
  }
  return place.get();
}

void Specialiser::CompileAhead(std::vector<jit::KernelSource> sources) {
  jobs_->Add([cache = options_.cache, sources = std::move(sources)] {
    for (const jit::KernelSource& source : sources) {
      cache->Ask(source, jit::CompilePriority::kPrewarm, [](const auto&) {});
    }
  });
}

std::shared_ptr<jit::Wishes> Specialiser::CompileBeside(const Choice& choice) const {
  std::vector<const SpecialisedProgram*> programs;
  {
    MutexLock lock(mutex_);
    auto program = choice.programs.begin();
    for (const LayerPlan::Packed& packed : choice.packed) {
      const bool is_first = packed.x_type == FirstType(choice.packed) && !packed.half_sums;
      for (size_t range = 0; range < packed.plan.ranges.size(); ++range, ++program) {
        if (is_first && (*program)->state == State::kIdle) programs.push_back(*program);
      }
    }
  }
  auto wishes = std::make_shared<jit::Wishes>(options_.cache);
  for (const SpecialisedProgram* const program : programs) {
    wishes->Ask(program->program.source, jit::CompilePriority::kSpecialise);
  }
  return wishes;
}

void Specialiser::Add(LayerKernels* layer) {
  MutexLock lock(mutex_);
  layer->id_ = next_id_++;
  layers_[layer->id_] = layer;
  for (const LayerKernels::Slot& slot : layer->slots_) slot.program->layers.insert(layer);
}

void Specialiser::Remove(LayerKernels* layer) {
  MutexLock lock(mutex_);
  layers_.erase(layer->id_);
  for (const LayerKernels::Slot& slot : layer->slots_) {
    slot.program->layers.erase(layer);
    Unwant(layer, *slot.program);
  }
  layer->slots_.clear();
}

void Specialiser::Start(LayerKernels* layer) {
  std::vector<LayerKernels::Slot> slots;
  {
    MutexLock lock(mutex_);
    slots = layer->slots_;
  }
  for (const LayerKernels::Slot& slot : slots) LoadCached(*slot.program);
  if (slots.empty()) return;
  MutexLock lock(mutex_);
  PutReadyInto(layer);  // other layers made them so, perhaps long ago
  if (options_.serves_meanwhile) {
    Want(layer, {FirstType(layer->plan()->packed)});
    jobs_->Add([beside = std::move(layer->beside_)] {});  // until the layer's own wishes are in
    return;
  }
  for (const LayerKernels::Slot& slot : slots) {
    if (!slot.use.half_sums) Want(layer, slot.use);  // those are for requests that permit it
  }
}

void Specialiser::PutReadyInto(LayerKernels* layer) {
  LayerPlan plan = *layer->plan();
  for (const LayerKernels::Slot& slot : layer->slots_) {
    Fill(slot.In(plan), *slot.program);
  }
  layer->SetPlan(std::move(plan));
}

ElementType Specialiser::FirstType(const std::vector<LayerPlan::Packed>& packed) const {
  const bool has_preferred =
      std::any_of(packed.begin(), packed.end(),
                  [this](const LayerPlan::Packed& one) { return one.x_type == preferred_; });
  return has_preferred || packed.empty() ? preferred_ : packed.front().x_type;
}

void Specialiser::Want(LayerKernels* layer, const KernelUse& use) {
  for (const LayerKernels::Slot& slot : layer->slots_) {
    SpecialisedProgram* const program = slot.program;
    if (slot.use != use) continue;
    if (!program->wanted.insert(layer).second) continue;
    if (program->state == State::kIdle) jobs_->Add([this, program] { Compile(*program); });
  }
}

void Specialiser::Unwant(const LayerKernels* layer, SpecialisedProgram& program) {
  program.wanted.erase(layer);
  if (!program.wanted.empty() || program.state != State::kCompiling) return;
  jobs_->Add([this, &program] { StopIfUnwanted(program); });
}

// On the thread that asks, so that what is wanted again meanwhile goes on and is not compiled anew.
void Specialiser::StopIfUnwanted(SpecialisedProgram& program) {
  uint64_t wish = 0;
  {
    MutexLock lock(mutex_);
    if (!program.wanted.empty() || program.state != State::kCompiling) return;
    program.state = State::kIdle;
    wish = std::exchange(program.wish, 0);
  }
  options_.cache->Forget(wish);
}

// A program that memory or disk has is loaded by the thread that loads the layer, which then serves
// with it from the start. One that failed for an earlier layer gets another chance.
void Specialiser::LoadCached(SpecialisedProgram& program) {
  {
    MutexLock lock(mutex_);
    if (program.state != State::kIdle && program.state != State::kFailed) return;
    program.state = State::kLoading;
  }
  const jit::SharedKernel cached = options_.cache->Find(program.program.source);
  if (cached != nullptr) {
    Finish(program, cached->key,
           kernels_.LoadGemm(*cached, program.program.launch, program.subject));
    return;
  }
  MutexLock lock(mutex_);
  program.state = State::kIdle;
  changed_.NotifyAll();
  // A layer that came to want it meanwhile found it loading.
  if (!program.wanted.empty()) jobs_->Add([this, &program] { Compile(program); });
}

void Specialiser::Compile(SpecialisedProgram& program) {
  {
    MutexLock lock(mutex_);
    if (program.state != State::kIdle || program.wanted.empty()) return;
    program.state = State::kCompiling;
  }
  const auto priority =
      options_.serves_meanwhile ? jit::CompilePriority::kSpecialise : jit::CompilePriority::kClient;
  const uint64_t wish = options_.cache->Ask(
      program.program.source, priority,
      [this, &program, jobs = jobs_](const absl::StatusOr<jit::SharedKernel>& compiled) {
        jobs->Add([this, &program, compiled] { Arrived(program, compiled); });
      });
  MutexLock lock(mutex_);
  program.wish = wish;
}

void Specialiser::Arrived(SpecialisedProgram& program,
                          const absl::StatusOr<jit::SharedKernel>& compiled) {
  {
    MutexLock lock(mutex_);
    if (program.state != State::kCompiling) return;
    program.state = State::kLoading;
    program.wish = 0;
  }
  if (!compiled.ok()) return Finish(program, "", compiled.status());
  Finish(program, (*compiled)->key, Load(program, **compiled));
}

absl::StatusOr<CUkernel> Specialiser::Load(const SpecialisedProgram& program,
                                           const jit::CompiledKernel& compiled) {
  const cuda::ScopedContext scope(driver_, options_.context);
  GEMMD_RETURN_IF_ERROR(scope.status());
  return kernels_.LoadGemm(compiled, program.program.launch, program.subject);
}

void Specialiser::Finish(SpecialisedProgram& program, const std::string& key,
                         const absl::StatusOr<CUkernel>& kernel) {
  bool is_news = false;
  std::set<uint64_t> armed;
  {
    MutexLock lock(mutex_);
    // Cancelled: the cache closes, the process ends.
    const bool is_known = kernel.status() == program.why ||
                          (!program.why.ok() && jit::IsRemembered(kernel.status()));
    is_news = !absl::IsCancelled(kernel.status()) && (kernel.ok() || !is_known);
    program.state = kernel.ok() ? State::kReady : State::kFailed;
    program.why = kernel.status();
    if (kernel.ok()) {
      program.kernel = *kernel;
      program.key = key;
      armed = PutIntoPlans(program);
    }
    changed_.NotifyAll();
  }
  if (!is_news) return;
  ++(kernel.ok() ? ready_ : failed_);
  if (!options_.observer) return;
  options_.observer({kernel.ok() ? KernelEvent::Kind::kReady : KernelEvent::Kind::kFailed,
                     program.program.launch.name,
                     kernel.status(),
                     {armed.begin(), armed.end()},
                     program.subject.x_type});
}

std::set<uint64_t> Specialiser::PutIntoPlans(const SpecialisedProgram& program) {
  std::set<uint64_t> armed;
  for (LayerKernels* const layer : program.layers) {
    std::optional<LayerPlan> plan;
    for (const LayerKernels::Slot& slot : layer->slots_) {
      if (slot.program != &program) continue;
      if (!plan.has_value()) plan = *layer->plan();
      GemmKernel& place = slot.In(*plan);
      Fill(place, program);
      if (slot.use.batch_invariant) armed.insert(place.numerics);
    }
    if (plan.has_value()) layer->SetPlan(*std::move(plan));
  }
  return armed;
}

bool Specialiser::HasLayer(const QuantSpec& spec, const LayerShape& shape) const {
  MutexLock lock(mutex_);
  return std::any_of(layers_.begin(), layers_.end(), [&](const auto& entry) {
    return entry.second->spec_ == spec && entry.second->shape_ == shape;
  });
}

void Specialiser::Rechoose(const QuantSpec& spec, const LayerShape& shape, const Choice& choice) {
  for (SpecialisedProgram* const program : choice.programs) LoadCached(*program);
  MutexLock lock(mutex_);
  for (const auto& [id, layer] : layers_) {
    if (layer->spec_ == spec && layer->shape_ == shape) Exchange(layer, choice);
  }
  changed_.NotifyAll();
}

void Specialiser::Exchange(LayerKernels* layer, const Choice& choice) {
  LayerPlan plan = *layer->plan();
  if (plan.packed.empty()) return;  // its weights cannot be packed
  std::vector<KernelUse> wanted;
  std::set<SpecialisedProgram*> kept(choice.programs.begin(), choice.programs.end());
  std::vector<LayerKernels::Slot> slots;
  for (const LayerKernels::Slot& slot : layer->slots_) {
    if (slot.use.batch_invariant) {
      slots.push_back(slot);
      kept.insert(slot.program);
    } else if (slot.program->wanted.count(layer) != 0) {
      wanted.push_back(slot.use);
    }
  }
  for (const LayerKernels::Slot& slot : layer->slots_) {
    if (kept.count(slot.program) != 0) continue;
    slot.program->layers.erase(layer);
    Unwant(layer, *slot.program);
  }
  plan.packed = choice.packed;
  auto program = choice.programs.begin();
  for (size_t i = 0; i < plan.packed.size(); ++i) {
    for (size_t range = 0; range < plan.packed[i].plan.ranges.size(); ++range) {
      slots.push_back({*program++, i, range, {plan.packed[i].x_type, false, plan.packed[i].half_sums}});
    }
  }
  layer->slots_ = std::move(slots);
  for (const LayerKernels::Slot& slot : layer->slots_) {
    slot.program->layers.insert(layer);
    Fill(slot.In(plan), *slot.program);
  }
  layer->SetPlan(std::move(plan));
  for (const KernelUse& use : wanted) Want(layer, use);
}

void Specialiser::Note(LayerKernels* layer, const KernelUse& use) {
  if (!options_.serves_meanwhile && !use.half_sums) return;
  jobs_->Add([this, id = layer->id_, use] { TakeNote(id, use); });
}

void Specialiser::TakeNote(uint64_t layer_id, const KernelUse& use) {
  MutexLock lock(mutex_);
  preferred_ = use.x_type;
  const auto found = layers_.find(layer_id);
  if (found == layers_.end()) return;  // unloaded meanwhile
  LayerKernels* const layer = found->second;
  for (const LayerKernels::Slot& slot : layer->slots_) {
    const bool was_guessed = !layer->had_request_ && slot.use.x_type != use.x_type;
    if (was_guessed) Unwant(layer, *slot.program);
  }
  layer->had_request_ = true;
  Want(layer, use);
}

KernelProgress Specialiser::Count(const LayerKernels& layer) const {
  KernelProgress progress;
  std::set<const SpecialisedProgram*> seen;  // one may serve several ranges of M
  for (const LayerKernels::Slot& slot : layer.slots_) {
    const SpecialisedProgram& program = *slot.program;
    const bool is_optional = slot.use.half_sums && program.state == State::kIdle && program.wanted.count(&layer) == 0;
    if (is_optional || !seen.insert(&program).second) continue;
    ++progress.total;
    if (program.state == State::kReady) {
      ++progress.ready;
    } else if (program.state == State::kFailed) {
      ++progress.failed;
      progress.error = std::string(program.why.message());
    } else if (program.state == State::kLoading || program.wanted.count(&layer) != 0) {
      ++progress.pending;
    } else {
      ++progress.waiting;
    }
  }
  return progress;
}

KernelProgress Specialiser::ProgressOf(const LayerKernels& layer) const {
  MutexLock lock(mutex_);
  return Count(layer);
}

bool Specialiser::WaitUntilSettled(const LayerKernels& layer, absl::Time deadline) const {
  MutexLock lock(mutex_);
  return changed_.WaitUntil(
      mutex_, deadline, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return Count(layer).pending == 0; });
}

void Specialiser::AddTo(KernelCounts& counts) const {
  counts.specialised += ready_;
  counts.specialised_failed += failed_;
}

}  // namespace gemmd

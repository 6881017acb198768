#include "kernels/gemm.h"

#include <utility>
#include <vector>

#include "kernels/base/status.h"
#include "kernels/hadamard_kernels.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/layer_programs.h"
#include "kernels/layer_tuner.h"
#include "kernels/loaded_kernels.h"
#include "kernels/numerics.h"
#include "kernels/select/sm90_config.h"
#include "kernels/specialiser.h"

namespace gemmd {

class GpuKernels::Impl {
 public:
  Impl(const cuda::DriverTable& driver, GpuKernelsOptions options)
      : driver_(driver),
        make_tester_(options.make_tester),
        tuning_(std::move(options.tuning)),
        device_(std::move(options.device)),
        l2_bytes_(options.l2_bytes),
        architecture_(std::move(options.architecture)),
        serves_meanwhile_(options.serves_meanwhile),
        cache_(std::move(options.cache)),
        kernels_(driver, cache_,
                 options.make_tester == nullptr ? nullptr : options.make_tester(driver),
                 options.observer),
        hadamard_(cache_, &kernels_, architecture_),
        specialiser_(driver, &kernels_,
                     {.context = options.context,
                      .cache = cache_,
                      .serves_meanwhile = options.serves_meanwhile,
                      .observer = std::move(options.observer)}) {}

  WeightPacking PackingOf(const QuantSpec& spec, const LayerShape& shape,
                          const WeightTensors& tensors) const {
    const absl::Status supported = SupportsSm90(spec, shape, architecture_);
    if (!supported.ok()) return {std::string(supported.message()), {}};
    absl::StatusOr<PackedScales> scales = PackScales(spec, shape, tensors);
    if (!scales.ok()) return {std::string(scales.status().message()), {}};
    return {"", *std::move(scales)};
  }

  absl::StatusOr<std::unique_ptr<LayerKernels>> PlanLayer(const QuantSpec& spec,
                                                          const LayerShape& shape,
                                                          const std::string& why_not_packed,
                                                          absl::Time deadline,
                                                          const LayerTraits& traits) {
    GEMMD_ASSIGN_OR_RETURN(
        LayerPrograms programs,
        why_not_packed.empty()
            ? ProgramsOf(spec, shape, architecture_, MeasurementsOf(spec, shape), traits)
            : GenericProgramsOf(spec, shape, architecture_, why_not_packed, traits));
    StartCompiling(programs);
    const SelfTestSubject subject{.spec = spec, .shape = shape};
    Specialiser::Choice choice = ChoiceOf(programs, subject);
    LayerKernels::Programs specialised;
    if (serves_meanwhile_) specialised.beside = specialiser_.CompileBeside(choice);
    SelfTestSubject generic = subject;
    generic.has_packed_codes = programs.codes != CodeOrder::kRows;
    LayerPlan plan;
    if (programs.dense.has_value()) {
      GEMMD_ASSIGN_OR_RETURN(plan.dense, LoadGeneric(*programs.dense, generic, deadline));
    }
    GEMMD_ASSIGN_OR_RETURN(plan.indexed, LoadGeneric(programs.indexed, generic, deadline));
    plan.packed_takes_group_scales = programs.packed_takes_group_scales;
    plan.why_not_packed = programs.why_not_packed;
    plan.why_not_quantized = programs.why_not_quantized;
    GEMMD_ASSIGN_OR_RETURN(plan.quantizers, LoadKernelsOfX(programs.quantize, deadline));
    GEMMD_ASSIGN_OR_RETURN(plan.scalers, LoadKernelsOfX(programs.scale, deadline));
    plan.packed = std::move(choice.packed);
    specialised.packed = std::move(choice.programs);
    for (PackedProgram& packed : programs.invariant) {
      plan.invariant.push_back({packed.x_type, packed.program.launch});
      specialised.invariant.push_back(
          Intern(packed, subject, programs.packed_takes_group_scales));
    }
    return std::make_unique<LayerKernels>(&specialiser_, spec, shape, std::move(plan),
                                          std::move(specialised));
  }

  absl::StatusOr<CUkernel> Load(const jit::KernelSource& source, absl::Time deadline) {
    GEMMD_ASSIGN_OR_RETURN(const jit::SharedKernel compiled,
                           cache_->GetOrCompile(source, deadline));
    return kernels_.Load(*compiled);
  }

  absl::StatusOr<const QuantizeKernel*> FindHadamardKernel(const QuantizeKernel& plain, int64_t block) {
    return hadamard_.Find(plain, block);
  }

  absl::Status Tune(const std::vector<TuneLayer>& layers, const TuneSettings& settings,
                    const TuningControl& control, const TuneProgress& progress) {
    MutexLock lock(tune_mutex_);
    LayerTuner tuner({&driver_, cache_, tuning_,
                      make_tester_ == nullptr ? nullptr : make_tester_(driver_), architecture_,
                      device_, l2_bytes_},
                     settings, control);
    bool has_news = false;
    const absl::Status status = tuner.Tune(layers, [&](const TuneStep& step) {
      has_news = has_news || step.outcome == TuneOutcome::kMeasured;
      return progress == nullptr || progress(step);
    });
    if (has_news && !absl::IsDataLoss(status)) {
      for (const TuneLayer& layer : layers) Rechoose(layer.spec, layer.shape);
    }
    return status;
  }

  void CompileCommonKernels() { specialiser_.CompileAhead(CommonSources(architecture_)); }

  KernelCounts counts() const {
    KernelCounts counts;
    specialiser_.AddTo(counts);
    counts.quarantined = kernels_.quarantined();  // first: never more than tests
    counts.self_tests = kernels_.self_tests();
    return counts;
  }

  const std::string& architecture() const { return architecture_; }

 private:
  Measurements MeasurementsOf(const QuantSpec& spec, const LayerShape& shape) const {
    if (tuning_ == nullptr) return {nullptr, device_.clock_mhz};
    const auto points = [this, spec, shape](ElementType x_type) {
      const std::optional<TuningEntry> entry =
          tuning_->Find(TuningKeyOf(device_, spec, shape, x_type));
      return entry.has_value() ? entry->points : std::vector<MeasuredPoint>();
    };
    return {points, device_.clock_mhz};
  }

  // What is loaded one by one afterwards compiles side by side.
  void StartCompiling(const LayerPrograms& programs) {
    std::vector<jit::KernelSource> sources = MoeSources(architecture_);
    if (programs.dense.has_value()) sources.push_back(programs.dense->source);
    sources.push_back(programs.indexed.source);
    for (const auto* kernels_of_x : {&programs.quantize, &programs.scale}) {
      for (const QuantizeProgram& program : *kernels_of_x) sources.push_back(program.source);
    }
    if (programs.codes != CodeOrder::kRows) sources.push_back(PackSource(architecture_));
    for (const PackedProgram& packed : programs.packed) {
      if (!serves_meanwhile_ && !packed.half_sums) sources.push_back(packed.program.source);
    }
    for (const PackedProgram& packed : programs.invariant) {
      if (!serves_meanwhile_) sources.push_back(packed.program.source);
    }
    for (const jit::KernelSource& source : sources) {
      (void)cache_->GetOrCompile(source, absl::InfinitePast());
    }
  }

  absl::StatusOr<std::vector<QuantizeKernel>> LoadKernelsOfX(
      const std::vector<QuantizeProgram>& programs, absl::Time deadline) {
    std::vector<QuantizeKernel> kernels;
    for (const QuantizeProgram& program : programs) {
      kernels.push_back(program.launch);
      GEMMD_ASSIGN_OR_RETURN(kernels.back().kernel, Load(program.source, deadline));
    }
    return kernels;
  }

  // A generic kernel serves every M.
  absl::StatusOr<GemmPlan> LoadGeneric(const GemmProgram& program, const SelfTestSubject& subject,
                                       absl::Time deadline) {
    GEMMD_ASSIGN_OR_RETURN(const jit::SharedKernel compiled,
                           cache_->GetOrCompile(program.source, deadline));
    GemmPlan plan;
    GemmKernel& kernel = plan.ranges.emplace_back().kernel;
    kernel = program.launch;
    GEMMD_ASSIGN_OR_RETURN(kernel.kernel, kernels_.LoadGemm(*compiled, program.launch, subject));
    kernel.numerics = NumericsOf(compiled->key, kernel.cluster);
    return plan;
  }

  SpecialisedProgram* Intern(PackedProgram& packed, SelfTestSubject subject,
                             bool takes_group_scales) {
    subject.is_packed = true;
    subject.takes_group_scales = takes_group_scales;
    subject.x_type = packed.x_type;
    subject.half_sums = packed.half_sums;
    return specialiser_.Intern(std::move(packed.program), subject);
  }

  // Of programs.packed, which are used up.
  Specialiser::Choice ChoiceOf(LayerPrograms& programs, const SelfTestSubject& subject) {
    Specialiser::Choice choice;
    for (PackedProgram& packed : programs.packed) {
      if (choice.packed.empty() || choice.packed.back().x_type != packed.x_type ||
          choice.packed.back().half_sums != packed.half_sums) {
        choice.packed.push_back({packed.x_type, {}, packed.half_sums});
      }
      choice.packed.back().plan.ranges.push_back({packed.largest_m, packed.program.launch});
      choice.programs.push_back(Intern(packed, subject, programs.packed_takes_group_scales));
    }
    return choice;
  }

  // Layers that are loaded follow what is known now.
  void Rechoose(const QuantSpec& spec, const LayerShape& shape) {
    if (!specialiser_.HasLayer(spec, shape)) return;
    absl::StatusOr<LayerPrograms> programs =
        ProgramsOf(spec, shape, architecture_, MeasurementsOf(spec, shape), LayerTraits());
    if (!programs.ok() || programs->packed.empty()) return;
    const Specialiser::Choice choice = ChoiceOf(*programs, {.spec = spec, .shape = shape});
    specialiser_.Rechoose(spec, shape, choice);
  }

  const cuda::DriverTable& driver_;
  std::unique_ptr<SelfTester> (*const make_tester_)(const cuda::DriverTable&);
  const std::shared_ptr<TuningStore> tuning_;
  const DeviceClass device_;
  const uint64_t l2_bytes_;
  Mutex tune_mutex_;  // one at a time
  const std::string architecture_;
  const bool serves_meanwhile_;
  const std::shared_ptr<jit::KernelCache> cache_;
  LoadedKernels kernels_;
  HadamardKernels hadamard_;
  Specialiser specialiser_;
};

absl::StatusOr<std::shared_ptr<jit::KernelCache>> OpenKernelCache(
    const std::filesystem::path& directory) {
  GEMMD_ASSIGN_OR_RETURN(std::unique_ptr<jit::KernelCache> cache,
                         jit::KernelCache::Open(directory));
  return std::shared_ptr<jit::KernelCache>(std::move(cache));
}

GpuKernels::GpuKernels(const cuda::DriverTable& driver, GpuKernelsOptions options)
    : impl_(std::make_unique<Impl>(driver, std::move(options))) {}

GpuKernels::~GpuKernels() = default;

absl::StatusOr<std::unique_ptr<LayerKernels>> GpuKernels::PlanLayer(const QuantSpec& spec,
                                                                    const LayerShape& shape,
                                                                    const std::string& why_not_packed,
                                                                    absl::Time deadline,
                                                                    const LayerTraits& traits) {
  return impl_->PlanLayer(spec, shape, why_not_packed, deadline, traits);
}

WeightPacking GpuKernels::PackingOf(const QuantSpec& spec, const LayerShape& shape,
                                    const WeightTensors& tensors) const {
  return impl_->PackingOf(spec, shape, tensors);
}

absl::StatusOr<CUkernel> GpuKernels::LoadPackKernel(absl::Time deadline) {
  return impl_->Load(PackSource(impl_->architecture()), deadline);
}

absl::StatusOr<MoeKernels> GpuKernels::LoadMoeKernels(absl::Time deadline) {
  // In the order of MoeSources.
  constexpr CUkernel MoeKernels::*kMembers[] = {&MoeKernels::route,    &MoeKernels::count,
                                                &MoeKernels::prefix,   &MoeKernels::scatter,
                                                &MoeKernels::activate, &MoeKernels::combine};
  const std::vector<jit::KernelSource> sources = MoeSources(impl_->architecture());
  MoeKernels kernels;
  for (size_t i = 0; i < sources.size(); ++i) {
    GEMMD_ASSIGN_OR_RETURN(kernels.*kMembers[i], impl_->Load(sources[i], deadline));
  }
  return kernels;
}

absl::StatusOr<const QuantizeKernel*> GpuKernels::FindHadamardKernel(const QuantizeKernel& plain,
                                                                     int64_t block) {
  return impl_->FindHadamardKernel(plain, block);
}

absl::Status GpuKernels::Tune(const std::vector<TuneLayer>& layers, const TuneSettings& settings,
                              const TuningControl& control, const TuneProgress& progress) {
  return impl_->Tune(layers, settings, control, progress);
}

void GpuKernels::CompileCommonKernels() { impl_->CompileCommonKernels(); }

KernelCounts GpuKernels::counts() const { return impl_->counts(); }

}  // namespace gemmd

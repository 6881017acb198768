#include "kernels/gemm.h"

#include <utility>
#include <vector>

#include "kernels/base/status.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/layer_programs.h"
#include "kernels/loaded_kernels.h"
#include "kernels/specialiser.h"

namespace gemmd {

class GpuKernels::Impl {
 public:
  Impl(const cuda::DriverTable& driver, GpuKernelsOptions options)
      : architecture_(std::move(options.architecture)),
        serves_meanwhile_(options.serves_meanwhile),
        cache_(std::move(options.cache)),
        kernels_(driver, cache_,
                 options.make_tester == nullptr ? nullptr : options.make_tester(driver),
                 options.observer),
        specialiser_(driver, &kernels_,
                     {.context = options.context,
                      .cache = cache_,
                      .serves_meanwhile = options.serves_meanwhile,
                      .observer = std::move(options.observer)}) {}

  absl::StatusOr<std::unique_ptr<LayerKernels>> PlanLayer(const QuantSpec& spec,
                                                          const LayerShape& shape,
                                                          absl::Time deadline) {
    GEMMD_ASSIGN_OR_RETURN(LayerPrograms programs, ProgramsOf(spec, shape, architecture_));
    StartCompiling(programs);
    const SelfTestSubject subject{.spec = spec, .shape = shape};
    LayerPlan plan;
    if (programs.dense.has_value()) {
      GEMMD_ASSIGN_OR_RETURN(plan.dense, LoadGeneric(*programs.dense, subject, deadline));
    }
    GEMMD_ASSIGN_OR_RETURN(plan.indexed, LoadGeneric(programs.indexed, subject, deadline));
    plan.packed_takes_group_scales = programs.packed_takes_group_scales;
    plan.why_not_packed = programs.why_not_packed;
    plan.why_not_quantized = programs.why_not_quantized;
    for (const QuantizeProgram& quantize : programs.quantize) {
      plan.quantizers.push_back(quantize.launch);
      GEMMD_ASSIGN_OR_RETURN(plan.quantizers.back().kernel, Load(quantize.source, deadline));
    }
    std::vector<SpecialisedProgram*> specialised;
    for (PackedProgram& packed : programs.packed) {
      AddRange(packed, plan);
      SelfTestSubject packed_subject = subject;
      packed_subject.is_packed = true;
      packed_subject.takes_group_scales = programs.packed_takes_group_scales;
      packed_subject.x_type = packed.x_type;
      specialised.push_back(specialiser_.Intern(std::move(packed.program), packed_subject));
    }
    return std::make_unique<LayerKernels>(&specialiser_, std::move(plan), specialised);
  }

  absl::StatusOr<CUkernel> Load(const jit::KernelSource& source, absl::Time deadline) {
    GEMMD_ASSIGN_OR_RETURN(const jit::SharedKernel compiled,
                           cache_->GetOrCompile(source, deadline));
    return kernels_.Load(*compiled);
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
  // What is loaded one by one afterwards compiles side by side.
  void StartCompiling(const LayerPrograms& programs) {
    std::vector<jit::KernelSource> sources = MoeSources(architecture_);
    if (programs.dense.has_value()) sources.push_back(programs.dense->source);
    sources.push_back(programs.indexed.source);
    for (const QuantizeProgram& quantize : programs.quantize) sources.push_back(quantize.source);
    for (const PackedProgram& packed : programs.packed) {
      if (!serves_meanwhile_) sources.push_back(packed.program.source);
    }
    for (const jit::KernelSource& source : sources) {
      (void)cache_->GetOrCompile(source, absl::InfinitePast());
    }
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
    return plan;
  }

  static void AddRange(const PackedProgram& packed, LayerPlan& plan) {
    if (plan.packed.empty() || plan.packed.back().x_type != packed.x_type) {
      plan.packed.push_back({packed.x_type, {}});
    }
    plan.packed.back().plan.ranges.push_back({packed.largest_m, packed.program.launch});
  }

  const std::string architecture_;
  const bool serves_meanwhile_;
  const std::shared_ptr<jit::KernelCache> cache_;
  LoadedKernels kernels_;
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
                                                                    absl::Time deadline) {
  return impl_->PlanLayer(spec, shape, deadline);
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

void GpuKernels::CompileCommonKernels() { impl_->CompileCommonKernels(); }

KernelCounts GpuKernels::counts() const { return impl_->counts(); }

}  // namespace gemmd

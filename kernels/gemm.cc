#include "kernels/gemm.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "kernels/cuda/library.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/layer_programs.h"
#include "kernels/select/gemm_config.h"
#include "kernels/select/heuristics.h"
#include "kernels/select/legality.h"
#include "kernels/select/sm90_config.h"

namespace gemmd {

class GpuKernels::Impl {
 public:
  Impl(const cuda::DriverTable& driver, std::string architecture,
       std::shared_ptr<jit::KernelCache> cache)
      : driver_(driver), architecture_(std::move(architecture)), cache_(std::move(cache)) {}

  absl::StatusOr<GemmPlan> PlanGemm(const QuantSpec& spec, RowMapping row_mapping,
                                    absl::Time deadline) {
    const GemmConfig config = ChooseConfig(spec, row_mapping);
    GEMMD_RETURN_IF_ERROR(Supports(config, architecture_));
    GemmKernel kernel;
    GEMMD_ASSIGN_OR_RETURN(kernel.kernel,
                           Load(RenderProgram(config), KernelNameExpression(config), deadline));
    kernel.name = KernelName(config);
    kernel.architecture = architecture_;
    kernel.row_mapping = row_mapping;
    kernel.block_m = config.tuning.block_m;
    kernel.block_n = config.tuning.block_n;
    kernel.threads = config.tuning.threads();
    kernel.config = DescribeFields(config);
    GemmPlan plan;
    plan.ranges.emplace_back().kernel = std::move(kernel);
    return plan;
  }

  // The kernels for packed weights and x of one type.
  absl::StatusOr<GemmPlan> PlanPacked(const QuantSpec& spec, const LayerShape& shape,
                                      ElementType x_type, absl::Time deadline) {
    GemmPlan plan;
    for (const Sm90Choice& choice : ChooseSm90(spec, shape, x_type)) {
      const Sm90Block block = choice.config.block();
      GemmPlan::Range& range = plan.ranges.emplace_back();
      range.largest_m = choice.largest_m;
      GemmKernel& kernel = range.kernel;
      GEMMD_ASSIGN_OR_RETURN(kernel.kernel,
                             Load(RenderProgram(choice.config), KernelNameExpression(choice.config),
                                  deadline, block.shared_bytes()));
      kernel.name = KernelName(choice.config);
      kernel.architecture = architecture_;
      kernel.block_m = block.tokens;
      kernel.block_n = block.rows();
      kernel.threads = block.threads();
      kernel.grid_rule = GridRule::kWeightTilesFirst;
      kernel.cluster = choice.cluster;
      kernel.tiles_per_cluster = choice.config.sharers;
      kernel.x_box_rows = choice.config.tokens / choice.config.sharers;
      kernel.dynamic_shared_bytes = block.shared_bytes();
      kernel.config = DescribeFields(choice.config);
      kernel.config.emplace_back("cluster", absl::StrCat(choice.cluster));
    }
    return plan;
  }

  // What is loaded one by one afterwards compiles side by side.
  void StartCompiling(const QuantSpec& spec, const LayerShape& shape) {
    auto programs = LayerPrograms(spec, shape, architecture_);
    if (!programs.ok()) return;  // loading tells why
    for (jit::KernelSource& program : MoePrograms(architecture_)) {
      programs->push_back(std::move(program));
    }
    for (const jit::KernelSource& program : *programs) {
      (void)cache_->GetOrCompile(program, absl::InfinitePast());
    }
  }

  // A library is loaded once per program text, however many layers use it, and stays loaded.
  absl::StatusOr<CUkernel> Load(const std::string& program, const std::string& name_expression,
                                absl::Time deadline, int dynamic_shared_bytes = 0) {
    GEMMD_ASSIGN_OR_RETURN(
        const std::shared_ptr<const jit::CompiledKernel> compiled,
        cache_->GetOrCompile({program, name_expression, architecture_}, deadline));
    MutexLock lock(mutex_);
    const auto loaded = kernels_.find(compiled->key);
    if (loaded != kernels_.end()) return loaded->second.kernel;
    GEMMD_ASSIGN_OR_RETURN(cuda::LoadedLibrary library,
                           cuda::LoadedLibrary::Load(driver_, compiled->cubin));
    GEMMD_ASSIGN_OR_RETURN(const CUkernel kernel, library.GetKernel(compiled->lowered_name));
    if (dynamic_shared_bytes > 0) {
      CUdevice device;
      GEMMD_CUDA(driver_, cuCtxGetDevice, &device);
      GEMMD_RETURN_IF_ERROR(
          cuda::SetMaxDynamicShared(driver_, kernel, device, dynamic_shared_bytes));
    }
    kernels_.emplace(compiled->key, Loaded{std::move(library), kernel});
    return kernel;
  }

  const std::string& architecture() const { return architecture_; }

 private:
  struct Loaded {
    cuda::LoadedLibrary library;
    CUkernel kernel;
  };

  const cuda::DriverTable& driver_;
  const std::string architecture_;
  const std::shared_ptr<jit::KernelCache> cache_;
  Mutex mutex_;
  std::map<std::string, Loaded> kernels_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::shared_ptr<jit::KernelCache>> OpenKernelCache(
    const std::filesystem::path& directory) {
  GEMMD_ASSIGN_OR_RETURN(std::unique_ptr<jit::KernelCache> cache,
                         jit::KernelCache::Open(directory));
  return std::shared_ptr<jit::KernelCache>(std::move(cache));
}

GpuKernels::GpuKernels(const cuda::DriverTable& driver, std::string architecture,
                       std::shared_ptr<jit::KernelCache> cache)
    : impl_(std::make_unique<Impl>(driver, std::move(architecture), std::move(cache))) {}

GpuKernels::~GpuKernels() = default;

absl::StatusOr<LayerPlan> GpuKernels::PlanLayer(const QuantSpec& spec, const LayerShape& shape,
                                                absl::Time deadline) {
  GEMMD_RETURN_IF_ERROR(SupportsShape(shape));
  impl_->StartCompiling(spec, shape);
  LayerPlan plan;
  if (shape.experts == 1) {
    GEMMD_ASSIGN_OR_RETURN(plan.dense, impl_->PlanGemm(spec, RowMapping::kDense, deadline));
  }
  GEMMD_ASSIGN_OR_RETURN(plan.indexed, impl_->PlanGemm(spec, RowMapping::kIndexed, deadline));
  const absl::Status packed = SupportsSm90(spec, shape, impl_->architecture());
  if (!packed.ok()) {
    plan.why_not_packed = std::string(packed.message());
    return plan;
  }
  plan.packed_takes_group_scales = Sm90TakesXScales(spec, shape);
  for (const ElementType x_type : Sm90XTypes(spec)) {
    plan.packed.push_back({x_type, {}});
    GEMMD_ASSIGN_OR_RETURN(plan.packed.back().plan,
                           impl_->PlanPacked(spec, shape, x_type, deadline));
  }
  return plan;
}

const GemmKernel& LayerPlan::DenseKernelFor(const DenseRequest& request) const {
  const bool any_kernel_does =
      request.has_group_scale == packed_takes_group_scales && !request.batch_invariant;
  for (const Packed& candidate : packed) {
    if (any_kernel_does && candidate.x_type == request.x_type &&
        request.m <= candidate.plan.ranges.back().largest_m) {
      return candidate.plan.KernelFor(request.m);
    }
  }
  return dense.KernelFor(request.m);
}

absl::StatusOr<MoeKernels> GpuKernels::LoadMoeKernels(absl::Time deadline) {
  struct Entry {
    const char* header;
    const char* name;
    CUkernel MoeKernels::*member;
  };
  constexpr Entry kEntries[] = {
      {"moe_route", "MoeRouteTopK", &MoeKernels::route},
      {"moe_sort", "MoeCount", &MoeKernels::count},
      {"moe_sort", "MoePrefix", &MoeKernels::prefix},
      {"moe_sort", "MoeScatter", &MoeKernels::scatter},
      {"moe_activate", "MoeActivate", &MoeKernels::activate},
      {"moe_combine", "MoeCombine", &MoeKernels::combine},
  };
  MoeKernels kernels;
  for (const Entry& entry : kEntries) {
    const std::string program =
        absl::StrCat("#include \"kernels/device/", entry.header, ".cuh\"\n");
    const std::string name = absl::StrCat("gemmd::device::", entry.name);
    GEMMD_ASSIGN_OR_RETURN(kernels.*entry.member, impl_->Load(program, name, deadline));
  }
  return kernels;
}

WeightArgs MakeWeightArgs(const QuantSpec& spec, const LayerShape& shape, int64_t scale_columns,
                          const LayerAddresses& addresses) {
  // 0 means one block over everything; a block larger than the extent means the same.
  const auto block = [](int64_t size, int64_t extent) {
    return static_cast<int32_t>(size == 0 ? extent : std::min(size, extent));
  };
  WeightArgs args{};
  args.codes = reinterpret_cast<const uint32_t*>(addresses.codes);
  args.scales = reinterpret_cast<const void*>(addresses.scales);
  args.zero_points = reinterpret_cast<const void*>(addresses.zero_points);
  args.secondary_scales = reinterpret_cast<const float*>(addresses.secondary_scales);
  args.group_index = reinterpret_cast<const int32_t*>(addresses.group_index);
  args.bias = reinterpret_cast<const void*>(addresses.bias);
  args.packed = reinterpret_cast<const void*>(addresses.packed);
  args.channel_factor = reinterpret_cast<const float*>(addresses.channel_factor);
  args.row_words = spec.RowWords(shape.k);
  args.experts = static_cast<int32_t>(shape.experts);
  args.n = static_cast<int32_t>(shape.n);
  args.k = static_cast<int32_t>(shape.k);
  args.scale_rows = static_cast<int32_t>(spec.ScaleRows(shape.n));
  args.scale_columns = static_cast<int32_t>(scale_columns);
  args.scale_block_n = block(spec.scale_block_n, shape.n);
  args.scale_block_k = block(spec.scale_block_k, shape.k);
  args.bias_type = spec.bias == kFloat16    ? ElementType::kFloat16
                   : spec.bias == kBFloat16 ? ElementType::kBFloat16
                                            : ElementType::kFloat32;
  return args;
}

absl::StatusOr<ElementType> ElementTypeOf(const NumberFormat& format, bool is_signed_int) {
  if (format == kFloat32) return ElementType::kFloat32;
  if (format == kFloat16) return ElementType::kFloat16;
  if (format == kBFloat16) return ElementType::kBFloat16;
  if (format == kFloat8E4M3) return ElementType::kFloat8E4M3;
  if (format == kFloat8E5M2) return ElementType::kFloat8E5M2;
  if (format == kInt8 && is_signed_int) return ElementType::kInt8;
  return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_DTYPE",
               absl::StrCat("kernels read no elements of type ", NumberFormatName(format)));
}

}  // namespace gemmd

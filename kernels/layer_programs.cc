#include "kernels/layer_programs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/select/gemm_config.h"
#include "kernels/select/heuristics.h"
#include "kernels/select/legality.h"
#include "kernels/select/quantize_config.h"
#include "kernels/select/sm90_choice.h"
#include "kernels/select/sm90_config.h"
#include "kernels/select/sm90_invariant.h"
#include "kernels/select/tuning_table.h"

namespace gemmd {
namespace {

absl::StatusOr<GemmProgram> GenericProgram(const QuantSpec& spec, RowMapping mapping, CodeOrder codes,
                                           const std::string& architecture) {
  const GemmConfig config = ChooseConfig(spec, mapping, codes);
  GEMMD_RETURN_IF_ERROR(Supports(config, architecture));
  GemmProgram program;
  program.source = {RenderProgram(config), KernelNameExpression(config), architecture,
                    KernelName(config)};
  GemmKernel& launch = program.launch;
  launch.name = KernelName(config);
  launch.architecture = architecture;
  launch.row_mapping = mapping;
  launch.block_m = config.tuning.block_m;
  launch.block_n = config.tuning.block_n;
  launch.threads = config.tuning.threads();
  launch.config = DescribeFields(config);
  return program;
}

}  // namespace

GemmProgram Sm90Program(const Sm90Choice& choice, const std::string& architecture) {
  const Sm90Block block = choice.config.block();
  GemmProgram program;
  program.source = {RenderProgram(choice.config), KernelNameExpression(choice.config), architecture,
                    KernelName(choice.config)};
  GemmKernel& launch = program.launch;
  launch.name = KernelName(choice.config);
  launch.architecture = architecture;
  launch.block_m = block.tokens;
  launch.block_n = block.rows();
  launch.threads = block.threads();
  launch.grid_rule =
      choice.config.is_slabwise() ? GridRule::kAllTiles : GridRule::kWeightTilesFirst;
  launch.resident_clusters = choice.resident;
  launch.needs_x_map = choice.config.is_slabwise();
  launch.cluster = choice.cluster;
  launch.tiles_per_cluster = choice.config.sharers;
  launch.row_tiles_per_cluster = choice.config.weight_sharers;
  launch.x_box_rows = choice.config.tokens / choice.config.sharers;
  if (choice.config.is_slabwise() && !choice.config.splits_k) launch.y_box_rows = choice.config.tokens;
  launch.dynamic_shared_bytes = block.shared_bytes();
  launch.overlaps_previous = true;
  launch.half_sums = choice.config.half_sums;
  launch.config = DescribeFields(choice.config);
  launch.config.emplace_back("cluster", absl::StrCat(choice.cluster));
  return program;
}

namespace {

absl::StatusOr<LayerPrograms> GenericPrograms(const QuantSpec& spec, const LayerShape& shape,
                                              CodeOrder codes, const std::string& architecture) {
  LayerPrograms programs;
  programs.codes = codes;
  if (shape.experts == 1) {
    GEMMD_ASSIGN_OR_RETURN(programs.dense,
                           GenericProgram(spec, RowMapping::kDense, codes, architecture));
  }
  GEMMD_ASSIGN_OR_RETURN(programs.indexed,
                         GenericProgram(spec, RowMapping::kIndexed, codes, architecture));
  return programs;
}

// Whether any of the kernels can sum in float16; those that can do so then.
bool UseHalfSums(std::vector<TunedChoice>& choices) {
  bool has_any = false;
  for (TunedChoice& tuned : choices) {
    tuned.choice.config.half_sums = tuned.choice.config.can_have_half_sums();
    has_any = has_any || tuned.choice.config.half_sums;
  }
  return has_any;
}

// One kernel for each range of M, with what `explain` shows of the choice; and those that sum in float16.
void AddTuned(const QuantSpec& spec, const LayerShape& shape, ElementType x_type,
              const std::string& architecture, const Measurements& measurements,
              std::vector<PackedProgram>& packed) {
  std::vector<MeasuredPoint> points;
  if (measurements.points) points = measurements.points(x_type);
  std::vector<TunedChoice> choices = ChooseTuned(spec, shape, x_type, points);
  const auto add = [&](bool half_sums) {
    int64_t first = 1;
    for (const TunedChoice& tuned : choices) {
      const int64_t last = tuned.choice.largest_m;
      GemmProgram program = Sm90Program(tuned.choice, architecture);
      program.launch.config.emplace_back("rows", absl::StrCat(first, " to ", last));
      program.launch.config.emplace_back("chosen_by", ChosenBy(tuned, measurements.clock_mhz));
      packed.push_back({x_type, last, std::move(program), half_sums});
      first = last + 1;
    }
  };
  add(/*half_sums=*/false);
  if (UseHalfSums(choices)) add(/*half_sums=*/true);
}

void AddSm90(const QuantSpec& spec, const LayerShape& shape, const std::string& architecture,
             const Measurements& measurements, LayerPrograms& programs) {
  programs.packed_takes_group_scales = Sm90TakesXScales(spec, shape);
  for (const ElementType x_type : Sm90XTypes(spec)) {
    AddTuned(spec, shape, x_type, architecture, measurements, programs.packed);
    const std::optional<Sm90Choice> invariant = ChooseBatchInvariantSm90(spec, shape, x_type);
    if (!invariant.has_value()) continue;
    programs.invariant.push_back(
        {x_type, invariant->largest_m, Sm90Program(*invariant, architecture)});
  }
}

QuantizeProgram ProgramOf(const QuantizeProblem& problem, const QuantizeChoice& choice,
                          const std::string& architecture) {
  const QuantizeConfig& config = choice.config;
  QuantizeProgram program;
  program.source = {RenderProgram(config), KernelNameExpression(config), architecture,
                    KernelName(config)};
  QuantizeKernel& launch = program.launch;
  launch.name = KernelName(config);
  launch.x_type = config.x_type;
  launch.code_type = config.code_type;
  launch.mode = config.mode;
  launch.k = problem.k;
  launch.group = problem.group;
  launch.slice_columns = choice.slice_columns;
  launch.threads = config.threads;
  launch.shared_bytes = choice.shared_bytes;
  launch.multiplies = config.input_scale;
  // Older ones know no such launches.
  const absl::StatusOr<int> capability = ComputeCapability(architecture);
  launch.overlaps_previous = capability.ok() && *capability >= 90;
  return program;
}

absl::StatusOr<std::vector<QuantizeProgram>> QuantizePrograms(const QuantSpec& spec,
                                                              const LayerShape& shape,
                                                              const std::string& architecture,
                                                              const LayerTraits& traits) {
  std::vector<QuantizeProgram> programs;
  for (const ElementType x_type :
       {ElementType::kBFloat16, ElementType::kFloat16, ElementType::kFloat32}) {
    GEMMD_ASSIGN_OR_RETURN(QuantizeProblem problem, QuantizeProblemOf(spec, shape.k, x_type));
    problem.input_scale = traits.has_input_scale;
    GEMMD_ASSIGN_OR_RETURN(const QuantizeChoice choice, ChooseQuantize(problem));
    programs.push_back(ProgramOf(problem, choice, architecture));
  }
  return programs;
}

// Only in front of kernels that gain from 8-bit x: the generic one takes x as it is, which is more exact.
void AddQuantize(const QuantSpec& spec, const LayerShape& shape, const std::string& architecture,
                 const LayerTraits& traits, LayerPrograms& programs) {
  absl::StatusOr<std::vector<QuantizeProgram>> quantize =
      QuantizePrograms(spec, shape, architecture, traits);
  if (!quantize.ok()) {
    programs.why_not_quantized = std::string(quantize.status().message());
  } else if (programs.packed.empty()) {
    programs.why_not_quantized =
        absl::StrCat("the generic kernel serves the layer: ", programs.why_not_packed);
  } else {
    programs.quantize = *std::move(quantize);
  }
}

// For requests whose x is not quantized; mixtures of experts do not quantize.
absl::Status AddScale(const QuantSpec& spec, const LayerShape& shape,
                      const std::string& architecture, const LayerTraits& traits,
                      LayerPrograms& programs) {
  if (!traits.has_input_scale) return absl::OkStatus();
  std::vector<ElementType> types = {ElementType::kBFloat16, ElementType::kFloat16,
                                    ElementType::kFloat32};
  const bool wide_only =
      traits.declares_activations || spec.activation.present() || shape.experts > 1;
  if (!wide_only) {
    types.insert(types.end(),
                 {ElementType::kFloat8E4M3, ElementType::kFloat8E5M2, ElementType::kInt8});
  }
  for (const ElementType x_type : types) {
    const QuantizeProblem problem = ScaleProblemOf(shape.k, x_type);
    GEMMD_ASSIGN_OR_RETURN(const QuantizeChoice choice, ChooseQuantize(problem));
    programs.scale.push_back(ProgramOf(problem, choice, architecture));
  }
  return absl::OkStatus();
}

absl::Status AddKernelsOfX(const QuantSpec& spec, const LayerShape& shape,
                           const std::string& architecture, const LayerTraits& traits,
                           LayerPrograms& programs) {
  AddQuantize(spec, shape, architecture, traits, programs);
  return AddScale(spec, shape, architecture, traits, programs);
}

bool Overlaps(int64_t first, int64_t last, const std::vector<RowRange>& rows) {
  return rows.empty() || std::any_of(rows.begin(), rows.end(), [&](const RowRange& range) {
           return range.first <= last && first <= range.last;
         });
}

bool Has(const std::vector<jit::KernelSource>& sources, const jit::KernelSource& source) {
  return std::any_of(sources.begin(), sources.end(), [&](const jit::KernelSource& other) {
    return other.program == source.program && other.name_expression == source.name_expression;
  });
}

void AddNew(const jit::KernelSource& source, std::vector<jit::KernelSource>& sources) {
  if (!Has(sources, source)) sources.push_back(source);
}

void AddGeneric(const LayerPrograms& programs, std::vector<jit::KernelSource>& sources) {
  if (programs.dense.has_value()) AddNew(programs.dense->source, sources);
  AddNew(programs.indexed.source, sources);
}

QuantSpec CommonSpec(const NumberFormat& weight, const NumberFormat& scale,
                     ZeroPointKind zero_point = ZeroPointKind::kNone,
                     SecondaryScaleKind secondary_scale = SecondaryScaleKind::kNone) {
  QuantSpec spec;
  spec.weight = weight;
  spec.scale = scale;
  spec.zero_point = zero_point;
  spec.secondary_scale = secondary_scale;
  return spec;
}

std::vector<QuantSpec> CommonSpecs() {
  return {
      CommonSpec(IntegerFormat(4), kFloat16),                           // GPTQ
      CommonSpec(IntegerFormat(4), kFloat16, ZeroPointKind::kInteger),  // AWQ
      CommonSpec(IntegerFormat(4), kBFloat16),                          // compressed-tensors
      CommonSpec(IntegerFormat(8), kBFloat16),
      CommonSpec(kFloat8E4M3, kFloat32),  // blocks of 128 x 128
      CommonSpec(kFloat8E4M3, kBFloat16),
      CommonSpec(kFloat4E2M1, kFloat8E8M0),  // MXFP4
      CommonSpec(kFloat4E2M1, kFloat8E4M3, ZeroPointKind::kNone,
                 SecondaryScaleKind::kTensor),  // NVFP4
  };
}

}  // namespace

absl::StatusOr<LayerPrograms> GenericProgramsOf(const QuantSpec& spec, const LayerShape& shape,
                                                const std::string& architecture,
                                                const std::string& why_not_packed,
                                                const LayerTraits& traits) {
  GEMMD_RETURN_IF_ERROR(SupportsShape(shape));
  GEMMD_ASSIGN_OR_RETURN(LayerPrograms programs,
                         GenericPrograms(spec, shape, CodeOrder::kRows, architecture));
  programs.why_not_packed = why_not_packed;
  GEMMD_RETURN_IF_ERROR(AddKernelsOfX(spec, shape, architecture, traits, programs));
  return programs;
}

absl::StatusOr<LayerPrograms> ProgramsOf(const QuantSpec& spec, const LayerShape& shape,
                                         const std::string& architecture,
                                         const LayerTraits& traits) {
  return ProgramsOf(spec, shape, architecture, Measurements(), traits);
}

absl::StatusOr<LayerPrograms> ProgramsOf(const QuantSpec& spec, const LayerShape& shape,
                                         const std::string& architecture,
                                         const Measurements& measurements,
                                         const LayerTraits& traits) {
  const absl::Status supported = SupportsSm90(spec, shape, architecture);
  if (!supported.ok()) {
    return GenericProgramsOf(spec, shape, architecture, std::string(supported.message()), traits);
  }
  GEMMD_RETURN_IF_ERROR(SupportsShape(shape));
  const CodeOrder codes = PackedOrderFor(Sm90PackingOf(spec, shape).operand);
  GEMMD_ASSIGN_OR_RETURN(LayerPrograms programs, GenericPrograms(spec, shape, codes, architecture));
  AddSm90(spec, shape, architecture, measurements, programs);
  GEMMD_RETURN_IF_ERROR(AddKernelsOfX(spec, shape, architecture, traits, programs));
  return programs;
}

absl::StatusOr<QuantizeProgram> HadamardProgram(const QuantizeKernel& plain, int64_t block,
                                                const std::string& architecture) {
  QuantizeProblem problem;
  problem.x_type = plain.x_type;
  problem.code_type = plain.code_type;
  problem.mode = plain.mode;
  problem.k = plain.k;
  problem.group = plain.group;
  problem.input_scale = plain.multiplies;
  problem.hadamard_block = static_cast<int>(block);
  GEMMD_ASSIGN_OR_RETURN(const QuantizeChoice choice, ChooseQuantize(problem));
  return ProgramOf(problem, choice, architecture);
}

absl::StatusOr<std::vector<jit::KernelSource>> LayerSources(const QuantSpec& spec,
                                                            const LayerShape& shape,
                                                            const std::string& architecture,
                                                            const std::vector<RowRange>& rows,
                                                            const LayerTraits& traits) {
  return LayerSources(spec, shape, architecture, rows, traits, Measurements());
}

absl::StatusOr<std::vector<jit::KernelSource>> LayerSources(const QuantSpec& spec,
                                                            const LayerShape& shape,
                                                            const std::string& architecture,
                                                            const std::vector<RowRange>& rows,
                                                            const LayerTraits& traits,
                                                            const Measurements& measurements) {
  GEMMD_ASSIGN_OR_RETURN(LayerPrograms programs,
                         ProgramsOf(spec, shape, architecture, measurements, traits));
  std::vector<jit::KernelSource> sources;
  AddGeneric(programs, sources);
  const bool is_packed = programs.codes != CodeOrder::kRows;
  if (is_packed && Sm90MayNotFit(spec)) {
    GEMMD_ASSIGN_OR_RETURN(const LayerPrograms unpacked,
                           GenericProgramsOf(spec, shape, architecture, "its weights do not fit"));
    AddGeneric(unpacked, sources);
  }
  for (const auto* kernels_of_x : {&programs.quantize, &programs.scale}) {
    for (const QuantizeProgram& program : *kernels_of_x) sources.push_back(program.source);
  }
  if (is_packed) sources.push_back(PackSource(architecture));
  int64_t first = 1;
  for (size_t i = 0; i < programs.packed.size(); ++i) {
    PackedProgram& packed = programs.packed[i];
    if (packed.half_sums) continue;  // compiled when a request permits it
    if (i == 0 || programs.packed[i - 1].x_type != packed.x_type) first = 1;
    if (Overlaps(first, packed.largest_m, rows))
      sources.push_back(std::move(packed.program.source));
    first = packed.largest_m + 1;
  }
  for (const PackedProgram& invariant : programs.invariant) {  // for requests of any number of rows
    AddNew(invariant.program.source, sources);
  }
  return sources;
}

std::vector<jit::KernelSource> MoeSources(const std::string& architecture) {
  constexpr const char* kKernels[][2] = {
      {"moe_route", "MoeRouteTopK"}, {"moe_sort", "MoeCount"},        {"moe_sort", "MoePrefix"},
      {"moe_sort", "MoeScatter"},    {"moe_activate", "MoeActivate"}, {"moe_combine", "MoeCombine"},
  };
  std::vector<jit::KernelSource> sources;
  for (const auto& [header, name] : kKernels) {
    sources.push_back({absl::StrCat("#include \"kernels/device/", header, ".cuh\"\n"),
                       absl::StrCat("gemmd::device::", name), architecture, name});
  }
  return sources;
}

jit::KernelSource PackSource(const std::string& architecture) {
  return {"#include \"kernels/device/pack_codes.cuh\"\n", "gemmd::device::PackCodes", architecture,
          "pack_codes"};
}

std::vector<jit::KernelSource> CommonSources(const std::string& architecture) {
  std::vector<jit::KernelSource> sources;
  for (const QuantSpec& spec : CommonSpecs()) {
    for (const int64_t experts : {1, 8}) {  // packed and not, where a kernel packs
      const absl::StatusOr<LayerPrograms> programs =
          ProgramsOf(spec, {experts, 64, 64}, architecture);
      if (programs.ok()) AddGeneric(*programs, sources);
    }
  }
  if (sources.empty()) return sources;  // an architecture without kernels
  if (SupportsSm90(CommonSpecs().front(), {1, 64, 64}, architecture).ok()) {
    sources.push_back(PackSource(architecture));
  }
  for (jit::KernelSource& source : MoeSources(architecture)) sources.push_back(std::move(source));
  return sources;
}

}  // namespace gemmd

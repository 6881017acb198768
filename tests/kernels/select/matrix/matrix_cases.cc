#include "tests/kernels/select/matrix/matrix_cases.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/jit/sha256.h"
#include "kernels/layer_programs.h"

namespace gemmd::matrix {
namespace {

// Those that the selection may call legal; what it refuses has no case.
const std::vector<std::string> kArchitectures = {"sm_75",   "sm_80",  "sm_86",   "sm_87",
                                                 "sm_89",   "sm_90a", "sm_100a", "sm_103a",
                                                 "sm_120a", "sm_121a"};

const std::vector<NumberFormat> kScales = {kNoFormat, kFloat8E8M0, kFloat8E4M3, kFloat8E5M2,
                                           kFloat16,  kBFloat16,   kFloat32};

constexpr int kOptions = 18;

std::vector<NumberFormat> WeightFormats() {
  std::vector<NumberFormat> formats;
  for (int bits = 1; bits <= 8; ++bits) formats.push_back(IntegerFormat(bits));
  for (const NumberFormat& format :
       {kFloat4E2M1, FloatFormat(0, 3), FloatFormat(3, 2), FloatFormat(2, 3), FloatFormat(3, 3),
        FloatFormat(0, 7), kFloat8E4M3, kFloat8E5M2, FloatFormat(3, 4), FloatFormat(7, 0),
        FloatFormat(1, 6), kFloat16, kBFloat16, kFloat32}) {
    formats.push_back(format);
  }
  return formats;
}

// Zero points, secondary scales and a group index, as far as the format can have them.
QuantSpec SpecOf(const NumberFormat& weight, const NumberFormat& scale, int option) {
  QuantSpec spec;
  spec.weight = weight;
  spec.scale = scale;
  if (weight.kind == NumberKind::kInteger) spec.zero_point = static_cast<ZeroPointKind>(option % 3);
  spec.secondary_scale = static_cast<SecondaryScaleKind>(option / 3 % 3);
  spec.has_group_index = option / 9 % 2 != 0;
  return spec;
}

// Cases in the order they come, each once.
class Cases {
 public:
  explicit Cases(std::vector<std::string> architectures = kArchitectures)
      : architectures_(std::move(architectures)) {}
  const std::vector<std::string>& architectures() const { return architectures_; }

  void Add(Family family, jit::KernelSource source) {
    if (seen_.insert(IdentityOf(source)).second) cases_.push_back({family, std::move(source)});
  }
  // Generic kernels of a layer without any size.
  void AddGeneric(const QuantSpec& spec, const std::string& architecture) {
    constexpr LayerShape kShape = {.experts = 1, .n = 64, .k = 64};
    AddGeneric(GenericProgramsOf(spec, kShape, architecture, "its weights may not fit"));
    AddGeneric(ProgramsOf(spec, kShape, architecture));
  }
  // All of a layer's kernels; the generic ones are there already.
  void AddSpecialised(const QuantSpec& spec, const LayerShape& shape,
                      const std::string& architecture) {
    auto sources = LayerSources(spec, shape, architecture);
    if (!sources.ok()) return;
    for (jit::KernelSource& source : *sources) Add(Family::kSpecialised, std::move(source));
    auto programs = ProgramsOf(spec, shape, architecture);
    for (PackedProgram& packed : programs->packed) {  // those are compiled when a request permits them
      if (packed.half_sums) Add(Family::kSpecialised, std::move(packed.program.source));
    }
  }
  std::vector<MatrixCase> Take() { return std::move(cases_); }

 private:
  void AddGeneric(const absl::StatusOr<LayerPrograms>& programs) {
    if (!programs.ok()) return;
    if (programs->dense.has_value()) Add(Family::kGeneric, programs->dense->source);
    Add(Family::kGeneric, programs->indexed.source);
  }
  static std::string IdentityOf(const jit::KernelSource& source) {
    return absl::StrCat(source.architecture, "\n", source.name_expression, "\n", source.program);
  }
  std::vector<std::string> architectures_;
  std::unordered_set<std::string> seen_;
  std::vector<MatrixCase> cases_;
};

void AddGenericFamily(Cases& cases) {
  for (const NumberFormat& weight : WeightFormats()) {
    for (const NumberFormat& scale : kScales) {
      for (int option = 0; option < kOptions; ++option) {
        for (const std::string& architecture : cases.architectures()) {
          cases.AddGeneric(SpecOf(weight, scale, option), architecture);
        }
      }
    }
  }
}

std::vector<LayerShape> ShapesWith(int64_t experts) {
  std::vector<LayerShape> shapes;
  for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{{1, 1},
                                                                     {64, 96},
                                                                     {130, 288},
                                                                     {576, 1152},
                                                                     {2112, 7168},
                                                                     {6144, 4096},
                                                                     {28672, 4096},
                                                                     {4096, 14336},
                                                                     {8192, 8192},
                                                                     {7168, 2048}}) {
    shapes.push_back({experts, n, k});
  }
  return shapes;
}

// What x may be, and its groups of scales.
std::vector<QuantSpec> WithActivations(const QuantSpec& spec) {
  std::vector<QuantSpec> specs = {spec};
  for (const NumberFormat& activation : {kInt8, kFloat8E4M3, kFloat8E5M2}) {
    QuantSpec with = spec;
    with.activation = activation;
    with.activation_scale = ActivationScaleKind::kDynamicToken;
    specs.push_back(with);
    with.activation_scale = ActivationScaleKind::kDynamicGroup;
    with.activation_group = 128;
    specs.push_back(with);
  }
  return specs;
}

// Rows and columns that share a scale: per row, groups, and blocks whose rows share it, of which some kernels make use.
constexpr std::pair<int64_t, int64_t> kScaleBlocks[] = {{1, 0},   {1, 16},  {1, 32},   {1, 64},   {1, 128},
                                                        {1, 256}, {32, 32}, {128, 128}, {128, 256}, {0, 0}};

std::vector<QuantSpec> SpecialisedSpecs() {
  std::vector<QuantSpec> specs;
  for (const NumberFormat& weight : WeightFormats()) {
    for (const NumberFormat& scale : kScales) {
      for (const int option : {0, 1, 2}) {
        if (option != 0 && weight.kind != NumberKind::kInteger) continue;
        // Beside floating-point zero points scales of every type are packed as float32.
        if (option == 2 && scale != kFloat32) continue;
        for (const auto& [rows, columns] : kScaleBlocks) {
          QuantSpec spec = SpecOf(weight, scale, option);
          spec.scale_block_n = rows;
          spec.scale_block_k = columns;
          for (const QuantSpec& with : WithActivations(spec)) specs.push_back(with);
        }
      }
    }
  }
  return specs;
}

// Whether a large layer of common formats has specialised kernels there. Where it has none nothing has,
// and most of the time of the enumeration is saved.
bool HasSpecialised(const std::string& architecture, int64_t experts) {
  QuantSpec int4 = SpecOf(IntegerFormat(4), kBFloat16, 0);
  int4.scale_block_k = 128;
  std::vector<QuantSpec> specs = WithActivations(int4);
  for (const QuantSpec& spec : WithActivations(SpecOf(kFloat8E4M3, kFloat32, 0))) {
    specs.push_back(spec);
  }
  const size_t generic = experts == 1 ? 2 : 1;
  return std::any_of(specs.begin(), specs.end(), [&](const QuantSpec& spec) {
    const auto sources = LayerSources(spec, {experts, 8192, 8192}, architecture);
    return sources.ok() && sources->size() > generic;
  });
}

void AddSpecialisedFamily(Cases& cases) {
  const std::vector<QuantSpec> specs = SpecialisedSpecs();
  for (const std::string& architecture : cases.architectures()) {
    for (const int64_t experts : {1, 8}) {
      if (!HasSpecialised(architecture, experts)) continue;
      const std::vector<LayerShape> shapes = ShapesWith(experts);
      for (const QuantSpec& spec : specs) {
        for (const LayerShape& shape : shapes) cases.AddSpecialised(spec, shape, architecture);
      }
    }
  }
}

void AddKernelsAround(Cases& cases) {
  const QuantSpec common = SpecOf(IntegerFormat(4), kFloat16, 0);
  for (const std::string& architecture : cases.architectures()) {
    // Nobody asks for them where no layer can be loaded.
    if (!ProgramsOf(common, {.experts = 8, .n = 64, .k = 64}, architecture).ok()) continue;
    for (jit::KernelSource& source : MoeSources(architecture)) {
      cases.Add(Family::kAround, std::move(source));
    }
  }
}

// What multiplies x by an input scale, with and without quantization behind it.
void AddKernelsThatMultiply(Cases& cases) {
  std::vector<QuantSpec> specs;
  for (const NumberFormat& weight : {kFloat8E4M3, IntegerFormat(8)}) {
    for (const QuantSpec& spec : WithActivations(SpecOf(weight, kFloat32, 0))) specs.push_back(spec);
    QuantSpec fixed = specs.back();
    fixed.activation_scale = ActivationScaleKind::kStaticTensor;
    specs.push_back(fixed);
  }
  for (const std::string& architecture : cases.architectures()) {
    for (const QuantSpec& spec : specs) {
      const auto programs = ProgramsOf(spec, {.experts = 1, .n = 8192, .k = 8192}, architecture,
                                       LayerTraits{.has_input_scale = true});
      if (!programs.ok()) continue;
      for (const auto* kernels : {&programs->quantize, &programs->scale}) {
        for (const QuantizeProgram& program : *kernels) cases.Add(Family::kAround, program.source);
      }
    }
  }
}

// The same order everywhere, in which any run of cases is a fair sample: by digest.
void Mix(std::vector<MatrixCase>& cases) {
  std::vector<std::pair<std::string, size_t>> order;
  for (size_t i = 0; i < cases.size(); ++i) {
    jit::Sha256 hash;
    const jit::KernelSource& source = cases[i].source;
    hash.Add(source.program).Add(source.name_expression).Add(source.architecture);
    order.emplace_back(jit::ToHex(hash.Finish()), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<MatrixCase> mixed;
  mixed.reserve(cases.size());
  for (const auto& [digest, index] : order) mixed.push_back(std::move(cases[index]));
  cases = std::move(mixed);
}

}  // namespace

int MatrixCase::allowed_frame_bytes() const {
  // Sums take most registers there; the loops keep theirs (tests/kernels/select/sm90_choice_test.cc).
  if (source.name_expression.find("GemmSm90Slab") != std::string::npos) return 48;
  // Places of a column's parts, which it looks up: arrays, no spilled registers.
  if (source.name_expression.find("PackCodes") != std::string::npos) return 256;
  return family == Family::kSpecialised ? 16 : 0;
}

bool MatrixCase::promises_no_spills() const {
  return family == Family::kSpecialised || source.architecture.size() == 5 ||
         source.architecture == "sm_90a";
}

std::vector<MatrixCase> WholeMatrix(const std::string& architecture) {
  std::vector<std::string> architectures = kArchitectures;
  if (!architecture.empty()) {
    std::erase_if(architectures, [&](const std::string& each) { return each != architecture; });
  }
  Cases cases(architectures);
  AddGenericFamily(cases);
  AddSpecialisedFamily(cases);
  AddKernelsAround(cases);
  AddKernelsThatMultiply(cases);
  std::vector<MatrixCase> all = cases.Take();
  Mix(all);
  return all;
}

std::vector<MatrixCase> Sample() {
  const std::vector<NumberFormat> weights = WeightFormats();
  // From sm_80 on: each case has one.
  const std::vector<std::string> architectures(kArchitectures.begin() + 1, kArchitectures.end());
  std::vector<MatrixCase> sample;
  for (size_t i = 0; i < weights.size(); ++i) {
    Cases one;
    one.AddGeneric(
        SpecOf(weights[i], kScales[i % kScales.size()], static_cast<int>(i * 7 % kOptions)),
        architectures[i % architectures.size()]);
    std::vector<MatrixCase> mappings = one.Take();
    sample.push_back(std::move(mappings[i % mappings.size()]));
  }
  for (jit::KernelSource& source : MoeSources("sm_80")) {
    sample.push_back({Family::kAround, std::move(source)});
  }
  return sample;
}

std::string DigestOf(const std::vector<MatrixCase>& cases) {
  jit::Sha256 hash;
  for (const MatrixCase& one : cases) {
    hash.Add(one.source.program).Add(one.source.name_expression).Add(one.source.architecture);
  }
  return jit::ToHex(hash.Finish());
}

}  // namespace gemmd::matrix

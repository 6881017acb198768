#include "tests/bench/jit/parts/subjects.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/layer_programs.h"
#include "kernels/weight_args.h"
#include "tests/bench/host/bench_format.h"

namespace gemmd::jit_bench {
namespace {

constexpr LayerShape kShape = {.experts = 1, .n = 8192, .k = 8192};

// A layer's programs, of the specialised ones those for the format's x.
struct FormatPrograms {
  GemmProgram dense;
  GemmProgram indexed;
  bool has_packed_codes = false;
  std::vector<PackedProgram> packed;
  std::string why_not_packed;
};

absl::StatusOr<FormatPrograms> FormatProgramsOf(const std::string& name,
                                                const std::string& architecture) {
  GEMMD_ASSIGN_OR_RETURN(const bench::BenchFormat format, bench::FindFormat(name));
  GEMMD_ASSIGN_OR_RETURN(LayerPrograms programs, ProgramsOf(format.spec, kShape, architecture));
  GEMMD_ASSIGN_OR_RETURN(const ElementType x_type, ElementTypeOf(format.x, /*is_signed_int=*/true));
  FormatPrograms found;
  found.dense = *std::move(programs.dense);
  found.indexed = std::move(programs.indexed);
  found.has_packed_codes = programs.codes != CodeOrder::kRows;
  found.why_not_packed = programs.why_not_packed;
  for (PackedProgram& packed : programs.packed) {
    if (packed.x_type == x_type) found.packed.push_back(std::move(packed));
  }
  return found;
}

}  // namespace

const std::vector<Subject>& Subjects() {
  static const auto* subjects =
      new std::vector<Subject>{{"w4a16_int4_g128", KernelKind::kSmallestM},
                               {"w4a16_int4_g128", KernelKind::kLargestM},
                               {"w8a8_fp8_channel", KernelKind::kSmallestM},
                               {"w4a8_mxfp4", KernelKind::kSmallestM},
                               {"w4a16_int4_g128", KernelKind::kGeneric}};
  return *subjects;
}

std::string NameOf(const Subject& subject) {
  switch (subject.kind) {
    case KernelKind::kGeneric:
      return absl::StrCat(subject.format, ", generic");
    case KernelKind::kSmallestM:
      return absl::StrCat(subject.format, ", smallest M");
    case KernelKind::kLargestM:
      return absl::StrCat(subject.format, ", largest M");
  }
  return subject.format;
}

absl::StatusOr<jit::KernelSource> SourceOf(const Subject& subject,
                                           const std::string& architecture) {
  GEMMD_ASSIGN_OR_RETURN(FormatPrograms programs, FormatProgramsOf(subject.format, architecture));
  if (subject.kind == KernelKind::kGeneric) return std::move(programs.dense.source);
  if (programs.packed.empty()) {
    return absl::NotFoundError(absl::StrCat("no specialised kernel of ", subject.format, " for ",
                                            architecture, ": ", programs.why_not_packed));
  }
  const bool smallest = subject.kind == KernelKind::kSmallestM;
  return std::move((smallest ? programs.packed.front() : programs.packed.back()).program.source);
}

const std::vector<std::string>& LayerFormats() {
  static const auto* formats =
      new std::vector<std::string>{"w4a16_int4_g128", "w8a8_fp8_channel", "w4a8_mxfp4"};
  return *formats;
}

absl::StatusOr<LayerWork> WorkOf(const std::string& format, const std::string& architecture) {
  GEMMD_ASSIGN_OR_RETURN(FormatPrograms programs, FormatProgramsOf(format, architecture));
  LayerWork work;
  work.generic = {std::move(programs.dense.source), std::move(programs.indexed.source)};
  if (programs.has_packed_codes) work.generic.push_back(PackSource(architecture));
  for (PackedProgram& packed : programs.packed) {
    work.specialised.push_back(std::move(packed.program.source));
  }
  return work;
}

jit::KernelSource Variant(jit::KernelSource source, int number) {
  absl::StrAppend(&source.program, "// ", number, "\n");
  return source;
}

}  // namespace gemmd::jit_bench

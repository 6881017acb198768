#include "kernels/jit/compiler.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/base/status.h"
#include "kernels/jit/cubin.h"
#include "kernels/jit/embedded_sources.h"

namespace gemmd::jit {
namespace {

constexpr size_t kMaxLogInMessage = 16 << 10;

// Denormals count (e2m1 scales times e8m0 scales reach them) and results must not depend on the
// options of a build: every floating-point choice is written down, and no fast math.
constexpr const char* kOptions[] = {
    "--std=c++20",         "--device-as-default-execution-space",
    "--ftz=false",         "--prec-div=true",
    "--prec-sqrt=true",    "--fmad=true",
    "--no-source-include", "--ptxas-options=-v",
};

// From 12.9 on NVRTC has a cache of its own, for which it loads the CUDA driver. Its entries are verified
// by nobody here, and it would hide what ptxas tells. Not part of the key: it changes no kernel.
constexpr int kFirstVersionWithCache = 1209;
constexpr char kNoCache[] = "--no-cache";

class Program {
 public:
  Program(const NvrtcTable& nvrtc, nvrtcProgram raw) : nvrtc_(nvrtc), raw_(raw) {}
  ~Program() { nvrtc_.nvrtcDestroyProgram(&raw_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  nvrtcProgram get() const { return raw_; }

  std::string Log() const {
    size_t size = 0;
    if (nvrtc_.nvrtcGetProgramLogSize(raw_, &size) != NVRTC_SUCCESS || size <= 1) return "";
    std::string log(size, '\0');
    if (nvrtc_.nvrtcGetProgramLog(raw_, log.data()) != NVRTC_SUCCESS) return "";
    log.resize(log.find('\0'));  // NVRTC ends it with one 0 or two
    return log;
  }

 private:
  const NvrtcTable& nvrtc_;
  nvrtcProgram raw_;
};

bool IsArchitecture(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "sm_")) return false;
  if (!absl::ConsumeSuffix(&name, "a")) absl::ConsumeSuffix(&name, "f");
  return name.size() >= 2 && name.size() <= 3 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); });
}

absl::Status Failed(const NvrtcTable& nvrtc, nvrtcResult result, const KernelSource& source,
                    absl::string_view call, absl::string_view log) {
  return Error(absl::StatusCode::kInternal, "COMPILE_FAILED",
               absl::StrCat(call, " for ", source.architecture, ", ", source.name_expression, ": ",
                            nvrtc.nvrtcGetErrorString(result), log.empty() ? "" : "\n",
                            log.substr(0, kMaxLogInMessage)));
}

// "ptxas info" and its continuation lines ("ptxas         .") tell usage, everything else is a warning.
void SplitLog(const std::string& log, CompiledKernel& kernel) {
  for (const absl::string_view line : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    const bool is_usage = absl::StartsWith(line, "ptxas info") || absl::StartsWith(line, "ptxas  ");
    absl::StrAppend(is_usage ? &kernel.usage : &kernel.log, line, "\n");
  }
}

absl::StatusOr<nvrtcProgram> CreateProgram(const KernelSource& source, const NvrtcTable& nvrtc) {
  std::vector<const char*> names;
  std::vector<const char*> texts;
  for (const EmbeddedSource& embedded : EmbeddedSources()) {
    names.push_back(embedded.name);
    texts.push_back(embedded.text);
  }
  nvrtcProgram program = nullptr;
  const nvrtcResult result =
      nvrtc.nvrtcCreateProgram(&program, source.program.c_str(), "gemmd_kernel.cu",
                               static_cast<int>(names.size()), texts.data(), names.data());
  if (result != NVRTC_SUCCESS) return Failed(nvrtc, result, source, "nvrtcCreateProgram", "");
  return program;
}

absl::Status RunCompiler(const KernelSource& source, const NvrtcTable& nvrtc,
                         const Program& program) {
  const std::string architecture = absl::StrCat("--gpu-architecture=", source.architecture);
  std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
  options.push_back(architecture.c_str());
  if (nvrtc.version_number >= kFirstVersionWithCache) options.push_back(kNoCache);
  nvrtcResult result = nvrtc.nvrtcAddNameExpression(program.get(), source.name_expression.c_str());
  if (result != NVRTC_SUCCESS) {
    return Failed(nvrtc, result, source, "nvrtcAddNameExpression", "");
  }
  result =
      nvrtc.nvrtcCompileProgram(program.get(), static_cast<int>(options.size()), options.data());
  if (result != NVRTC_SUCCESS) {
    return Failed(nvrtc, result, source, "nvrtcCompileProgram", program.Log());
  }
  return absl::OkStatus();
}

// Of a broken NVRTC: nobody could load what it made, and it would fail again each time somebody reads it.
absl::Status CheckCubin(const KernelSource& source, const CompiledKernel& kernel) {
  const absl::string_view cubin(reinterpret_cast<const char*>(kernel.cubin.data()), kernel.cubin.size());
  const std::optional<int> number = CubinArchitecture(cubin);
  std::string fault;
  if (!IsCubin(cubin)) {
    fault = absl::StrCat(cubin.size(), " bytes that are no cubin");
  } else if (number.has_value() && *number != ArchitectureNumber(source.architecture)) {
    fault = absl::StrCat("a cubin for sm_", *number);
  } else {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kInternal, "COMPILE_FAILED",
               absl::StrCat("nvrtcGetCUBIN for ", source.architecture, ", ", source.name_expression,
                            ": NVRTC reports success and gives ", fault));
}

absl::StatusOr<CompiledKernel> TakeResult(const KernelSource& source, const NvrtcTable& nvrtc,
                                          const Program& program) {
  CompiledKernel kernel;
  const char* lowered = nullptr;
  nvrtcResult result =
      nvrtc.nvrtcGetLoweredName(program.get(), source.name_expression.c_str(), &lowered);
  if (result != NVRTC_SUCCESS) return Failed(nvrtc, result, source, "nvrtcGetLoweredName", "");
  size_t size = 0;
  result = nvrtc.nvrtcGetCUBINSize(program.get(), &size);
  if (result != NVRTC_SUCCESS) return Failed(nvrtc, result, source, "nvrtcGetCUBINSize", "");
  kernel.cubin.resize(size);
  result = nvrtc.nvrtcGetCUBIN(program.get(), reinterpret_cast<char*>(kernel.cubin.data()));
  if (result != NVRTC_SUCCESS) return Failed(nvrtc, result, source, "nvrtcGetCUBIN", "");
  GEMMD_RETURN_IF_ERROR(CheckCubin(source, kernel));
  kernel.lowered_name = lowered;
  SplitLog(program.Log(), kernel);
  return kernel;
}

}  // namespace

std::string CompilerName(const NvrtcTable& nvrtc) {
  return absl::StrCat(nvrtc.version, " ", nvrtc.digest);
}

KeyInputs KeyInputsOf(const KernelSource& source, const std::string& compiler) {
  return {source.program,
          source.name_expression,
          source.architecture,
          EmbeddedSourcesDigest(),
          compiler,
          {std::begin(kOptions), std::end(kOptions)}};
}

std::string KernelKey(const KernelSource& source, const std::string& compiler) {
  return KeyOf(KeyInputsOf(source, compiler));
}

std::string KernelKey(const KernelSource& source, const NvrtcTable& nvrtc) {
  return KernelKey(source, CompilerName(nvrtc));
}

absl::Status CheckArchitecture(const std::string& architecture) {
  if (IsArchitecture(architecture)) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, "BAD_ARCHITECTURE",
               absl::StrCat("architecture '", architecture,
                            "' is not of the form sm_<number>, sm_<number>a or sm_<number>f"));
}

int ArchitectureNumber(absl::string_view architecture) {
  if (!IsArchitecture(architecture)) return 0;
  architecture.remove_prefix(3);
  if (!absl::ConsumeSuffix(&architecture, "a")) absl::ConsumeSuffix(&architecture, "f");
  int number = 0;
  return absl::SimpleAtoi(architecture, &number) ? number : 0;
}

absl::StatusOr<CompiledKernel> Compile(const KernelSource& source, const NvrtcTable& nvrtc) {
  GEMMD_RETURN_IF_ERROR(CheckArchitecture(source.architecture));
  GEMMD_ASSIGN_OR_RETURN(nvrtcProgram raw, CreateProgram(source, nvrtc));
  const Program program(nvrtc, raw);
  GEMMD_RETURN_IF_ERROR(RunCompiler(source, nvrtc, program));
  GEMMD_ASSIGN_OR_RETURN(CompiledKernel kernel, TakeResult(source, nvrtc, program));
  kernel.key = KernelKey(source, nvrtc);
  kernel.architecture = source.architecture;
  kernel.compiler = CompilerName(nvrtc);
  kernel.label = source.label.empty() ? source.name_expression : source.label;
  return kernel;
}

}  // namespace gemmd::jit

#include "tests/bench/jit/parts/conditions.h"

#include <sys/utsname.h>

#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "kernels/jit/compile_queue.h"
#include "kernels/jit/compiler.h"
#include "kernels/jit/embedded_sources.h"

namespace gemmd::jit_bench {
namespace {

std::string CompilerOrWhyNot() {
  const auto nvrtc = jit::LoadNvrtc();
  return nvrtc.ok() ? jit::CompilerName(**nvrtc) : std::string(nvrtc.status().message());
}

utsname SystemName() {
  utsname name = {};
  uname(&name);
  return name;
}

}  // namespace

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
    }
  }
  return SystemName().machine;
}

std::string UtcNow() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
}

Conditions ConditionsOf(const Setup& setup, const std::string& commit) {
  Conditions conditions;
  if (setup.gpu != nullptr) {
    conditions.device = setup.gpu->info.name;
    conditions.driver = setup.gpu->cuda_version();
  }
  conditions.cpu = ProcessorName();
  conditions.cores = jit::UsableProcessors();
  conditions.kernel = SystemName().release;
  conditions.date = UtcNow();
  conditions.commit = commit;
  conditions.compiler = CompilerOrWhyNot();
  conditions.sources = jit::EmbeddedSourcesDigest();
  conditions.architecture = setup.architecture;
  conditions.workers = setup.workers;
  conditions.entries = setup.entries;
  return conditions;
}

}  // namespace gemmd::jit_bench

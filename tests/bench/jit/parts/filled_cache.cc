#include "tests/bench/jit/parts/filled_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/status.h"
#include "kernels/jit/disk_tier.h"
#include "kernels/jit/nvrtc.h"
#include "tests/bench/jit/parts/subjects.h"

namespace gemmd::jit_bench {
namespace {

struct Compiled {
  jit::KernelSource source;
  jit::CompiledKernel kernel;
};

absl::StatusOr<std::vector<Compiled>> CompileSubjects(const jit::NvrtcTable& nvrtc,
                                                      const std::string& architecture) {
  std::vector<Compiled> compiled;
  for (const Subject& subject : Subjects()) {
    absl::StatusOr<jit::KernelSource> source = SourceOf(subject, architecture);
    if (absl::IsNotFound(source.status())) continue;  // the architecture has generic kernels only
    if (!source.ok()) return source.status();
    GEMMD_ASSIGN_OR_RETURN(jit::CompiledKernel kernel, jit::Compile(*source, nvrtc));
    compiled.push_back({*std::move(source), std::move(kernel)});
  }
  return compiled;
}

}  // namespace

absl::StatusOr<std::vector<jit::KernelSource>> FillCache(const std::filesystem::path& directory,
                                                         const std::string& architecture,
                                                         int entries) {
  GEMMD_ASSIGN_OR_RETURN(const jit::NvrtcTable* nvrtc, jit::LoadNvrtc());
  GEMMD_ASSIGN_OR_RETURN(const std::vector<Compiled> compiled,
                         CompileSubjects(*nvrtc, architecture));
  GEMMD_ASSIGN_OR_RETURN(const std::unique_ptr<jit::DiskTier> disk,
                         jit::DiskTier::Open({.directory = directory}));
  std::vector<jit::KernelSource> sources;
  for (int i = 0; i < entries; ++i) {
    const Compiled& original = compiled[static_cast<size_t>(i) % compiled.size()];
    sources.push_back(Variant(original.source, i));
    jit::CompiledKernel kernel = original.kernel;
    kernel.key = jit::KernelKey(sources.back(), *nvrtc);
    GEMMD_RETURN_IF_ERROR(disk->Write(kernel));
  }
  return sources;
}

void DropFromPageCache(const std::filesystem::path& directory) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const int file = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
  }
}

}  // namespace gemmd::jit_bench

#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "kernels/jit/compile_backend.h"

namespace gemmd::jit {
namespace {

class InProcess : public CompileBackend {
 public:
  explicit InProcess(const NvrtcTable* nvrtc) : nvrtc_(nvrtc) {}

  absl::StatusOr<std::string> Identity() override {
    const absl::StatusOr<const NvrtcTable*> nvrtc = Table();
    MutexLock lock(mutex_);
    last_ = FactsOf(nvrtc);
    if (!nvrtc.ok()) return nvrtc.status();
    return last_.name;
  }
  CompilerFacts LastFacts() const override {
    MutexLock lock(mutex_);
    return last_;
  }
  absl::StatusOr<std::vector<int>> Architectures() override {
    GEMMD_ASSIGN_OR_RETURN(const NvrtcTable* nvrtc, Table());
    return nvrtc->architectures;
  }
  absl::StatusOr<CompiledKernel> Compile(const KernelSource& source, const std::string&,
                                         const std::function<bool()>&) override {
    GEMMD_ASSIGN_OR_RETURN(const NvrtcTable* nvrtc, Table());
    return jit::Compile(source, *nvrtc);
  }

 private:
  absl::StatusOr<const NvrtcTable*> Table() const {
    if (nvrtc_ != nullptr) return nvrtc_;
    return LoadNvrtc();
  }
  const NvrtcTable* const nvrtc_;
  mutable Mutex mutex_;
  CompilerFacts last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

CompilerFacts FactsOf(const absl::StatusOr<const NvrtcTable*>& nvrtc) {
  if (!nvrtc.ok()) return {.problem = std::string(nvrtc.status().message())};
  return {.name = CompilerName(**nvrtc),
          .path = (*nvrtc)->path,
          .architectures = (*nvrtc)->architectures};
}

std::unique_ptr<CompileBackend> InProcessBackend(const NvrtcTable* nvrtc) {
  return std::make_unique<InProcess>(nvrtc);
}

}  // namespace gemmd::jit

#include "kernels/loaded_kernels.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

absl::Status Quarantined(const jit::CompiledKernel& compiled, absl::string_view why) {
  return Error(absl::StatusCode::kInternal, "KERNEL_QUARANTINED",
               absl::StrCat(compiled.label, " failed its self-test: ", why));
}

absl::Status AllowDynamicShared(const cuda::DriverTable& driver, CUkernel kernel, int bytes) {
  if (bytes == 0) return absl::OkStatus();
  CUdevice device;
  GEMMD_CUDA(driver, cuCtxGetDevice, &device);
  return cuda::SetMaxDynamicShared(driver, kernel, device, bytes);
}

}  // namespace

LoadedKernels::LoadedKernels(const cuda::DriverTable& driver,
                             std::shared_ptr<jit::KernelCache> cache,
                             std::unique_ptr<SelfTester> tester, KernelObserver observer)
    : driver_(driver),
      cache_(std::move(cache)),
      tester_(std::move(tester)),
      observer_(std::move(observer)) {
  (void)driver_.cuDriverGetVersion(&driver_version_);  // 0 is as good a name as any
}

absl::StatusOr<LoadedKernels::Loaded*> LoadedKernels::Find(const jit::CompiledKernel& compiled) {
  const auto found = kernels_.find(compiled.key);
  if (found != kernels_.end()) return &found->second;
  GEMMD_ASSIGN_OR_RETURN(cuda::LoadedLibrary library,
                         cuda::LoadedLibrary::Load(driver_, compiled.cubin));
  GEMMD_ASSIGN_OR_RETURN(const CUkernel kernel, library.GetKernel(compiled.lowered_name));
  return &kernels_.emplace(compiled.key, Loaded{std::move(library), kernel}).first->second;
}

absl::StatusOr<CUkernel> LoadedKernels::Load(const jit::CompiledKernel& compiled) {
  MutexLock lock(mutex_);
  GEMMD_ASSIGN_OR_RETURN(const Loaded* const loaded, Find(compiled));
  return loaded->kernel;
}

absl::StatusOr<CUkernel> LoadedKernels::LoadGemm(const jit::CompiledKernel& compiled,
                                                 const GemmKernel& launch,
                                                 const SelfTestSubject& subject) {
  absl::Status checked;
  CUkernel kernel = nullptr;
  {
    MutexLock lock(mutex_);
    const auto record = cache_->Quarantined(compiled.key, driver_version_);
    if (record.has_value()) return Quarantined(compiled, record->why);
    GEMMD_ASSIGN_OR_RETURN(Loaded* const loaded, Find(compiled));
    kernel = loaded->kernel;
    if (!loaded->may_serve) checked = CheckGemm(compiled, launch, subject, *loaded);
    if (checked.ok()) return kernel;
  }
  const bool failed = absl::IsDataLoss(checked) || ReasonOf(checked) == "KERNEL_QUARANTINED";
  if (failed && observer_) observer_({KernelEvent::Kind::kQuarantined, launch.name, checked});
  return checked;
}

absl::Status LoadedKernels::CheckGemm(const jit::CompiledKernel& compiled, GemmKernel launch,
                                      const SelfTestSubject& subject, Loaded& loaded) {
  launch.kernel = loaded.kernel;
  GEMMD_RETURN_IF_ERROR(AllowDynamicShared(driver_, launch.kernel, launch.dynamic_shared_bytes));
  if (tester_ != nullptr) {
    const absl::Status verdict = tester_->Test(launch, subject);
    const bool failed = ReasonOf(verdict) == "SELF_TEST_FAILED";
    if (!failed) GEMMD_RETURN_IF_ERROR(verdict);
    ++self_tests_;
    if (failed) return Quarantine(compiled, verdict);
  }
  loaded.may_serve = true;
  return absl::OkStatus();
}

absl::Status LoadedKernels::Quarantine(const jit::CompiledKernel& compiled,
                                       const absl::Status& verdict) {
  ++quarantined_;
  cache_->Quarantine(compiled, driver_version_, verdict.message());
  const absl::Status quarantined = Quarantined(compiled, verdict.message());
  if (absl::IsDataLoss(verdict)) {  // nothing of the GPU may be touched any more
    return Error(absl::StatusCode::kDataLoss, "CONTEXT_LOST", quarantined.message());
  }
  kernels_.erase(compiled.key);
  return quarantined;
}

}  // namespace gemmd

#include "kernels/jit/kernel_memory.h"

#include <functional>
#include <utility>

#include "kernels/base/status.h"

namespace gemmd::jit {
namespace {

constexpr size_t kMaxFailures = 1024;
constexpr absl::Duration kCrashMemory = absl::Minutes(5);

}  // namespace

size_t KernelMemory::Hash::operator()(const KernelSource& source) const {
  const std::hash<std::string> hash;
  return (hash(source.program) * 31 + hash(source.name_expression)) * 31 +
         hash(source.architecture);
}

bool KernelMemory::Equal::operator()(const KernelSource& a, const KernelSource& b) const {
  return a.architecture == b.architecture && a.name_expression == b.name_expression &&
         a.program == b.program;
}

SharedKernel KernelMemory::Find(const KernelSource& source) const {
  const auto found = kernels_.find(source);
  return found == kernels_.end() ? nullptr : found->second;
}

void KernelMemory::Keep(const KernelSource& source, SharedKernel kernel) {
  kernels_[source] = std::move(kernel);
}

absl::Status KernelMemory::FailureOf(const std::string& key, absl::Time now) const {
  const auto found = failures_.find(key);
  if (found == failures_.end() || now >= found->second.until) return absl::OkStatus();
  return found->second.status;
}

void KernelMemory::RememberFailure(const std::string& key, const absl::Status& status,
                                   absl::Time now) {
  const std::string reason = ReasonOf(status);
  const bool rejected = reason == "COMPILE_FAILED";
  if (!rejected && reason != "COMPILER_CRASHED") return;
  if (failures_.size() >= kMaxFailures) failures_.erase(failures_.begin());
  failures_[key] = {status, rejected ? absl::InfiniteFuture() : now + kCrashMemory};
}

}  // namespace gemmd::jit

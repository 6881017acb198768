#include "kernels/jit/kernel_memory.h"

#include <functional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd::jit {
namespace {

constexpr size_t kMaxFailures = 1024;
constexpr absl::Duration kCrashMemory = absl::Minutes(5);
constexpr char kRememberedUrl[] = "gemmd.remembered";
constexpr size_t kShownDigits = 12;  // of a key, as lists show them

// `key` of no entry: purging it removes nothing, and forgets every failure.
std::string HowLong(absl::Time until, const std::string& key) {
  const std::string end =
      until == absl::InfiniteFuture()
          ? "while the daemon runs"
          : absl::FormatTime("until %Y-%m-%d %H:%M:%S UTC", until, absl::UTCTimeZone());
  return absl::StrCat("remembered ", end, " ('gemmctl cache purge --key ", key.substr(0, kShownDigits),
                      "' forgets it)");
}

}  // namespace

bool IsRemembered(const absl::Status& status) {
  return status.GetPayload(kRememberedUrl).has_value();
}

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
  absl::Status failure = Annotate(found->second.status, HowLong(found->second.until, key));
  failure.SetPayload(kRememberedUrl, absl::Cord());
  return failure;
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

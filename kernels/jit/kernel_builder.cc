#include "kernels/jit/kernel_builder.h"

#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "kernels/jit/flights.h"

namespace gemmd::jit {
namespace {

constexpr absl::Duration kLockPoll = absl::Milliseconds(5);
// A compilation takes seconds. An owner that holds a key's lock for longer is stuck (a stopped
// process), and compiling twice is better than never.
constexpr absl::Duration kLockPatience = absl::Minutes(2);

bool CompilerDied(const absl::Status& result) { return ReasonOf(result) == "COMPILER_CRASHED"; }

}  // namespace

Built KernelBuilder::Build(const BuildOrder& order) {
  // Damage is dropped only under the lock: without it another process may have replaced the entry
  // since. The lock is given back when the entry is written: its next owner must find it.
  std::optional<KeyLock> lock;
  auto found = AwaitLock(order, lock);
  if (!found.has_value()) {
    found = tiers_.ReadDisk(order.source, order.compiler, order.key, /*drop=*/true);
  }
  if (found.has_value()) return {*std::move(found), /*stored=*/true, KernelOrigin::kDisk};
  absl::StatusOr<CompiledKernel> compiled = Compile(order);
  const bool stored = compiled.ok() && tiers_.Write(*compiled);
  return {std::move(compiled), stored, KernelOrigin::kCompiled};
}

// Waits for the key's lock, or for the kernel that its owner writes.
std::optional<CompiledKernel> KernelBuilder::AwaitLock(const BuildOrder& order,
                                                       std::optional<KeyLock>& lock) {
  if (tiers_.disk() == nullptr) return std::nullopt;
  const absl::Time give_up = absl::Now() + kLockPatience;
  while (absl::Now() < give_up && !order.unwanted) {
    lock.emplace(tiers_.disk()->TryLock(order.key));
    if (lock->state() != KeyLock::State::kBusy) return std::nullopt;
    lock.reset();
    absl::SleepFor(kLockPoll);
    auto kernel = tiers_.ReadDisk(order.source, order.compiler, order.key, /*drop=*/false);
    if (kernel.has_value()) return kernel;
  }
  return std::nullopt;
}

absl::StatusOr<CompiledKernel> KernelBuilder::Compile(const BuildOrder& order) {
  if (order.unwanted) return Unwanted();
  const absl::Time start = absl::Now();
  absl::StatusOr<CompiledKernel> kernel =
      backend_.Compile(order.source, order.compiler, [&order] { return order.unwanted.load(); });
  if (absl::IsCancelled(kernel.status())) return kernel;
  Count(kernel.status(), absl::Now() - start);
  if (CompilerDied(kernel.status()) && observer_) {
    observer_(
        {CacheEvent::Kind::kCompilerDied, order.key, order.source.label, "", kernel.status()});
  }
  return kernel;
}

void KernelBuilder::Count(const absl::Status& result, absl::Duration took) {
  MutexLock lock(mutex_);
  ++(result.ok() ? counts_.compilations : counts_.failed_compilations);
  counts_.compiler_deaths += CompilerDied(result);
  counts_.compile_time += took;
}

void KernelBuilder::AddTo(CacheStats& stats) const {
  MutexLock lock(mutex_);
  stats.compilations += counts_.compilations;
  stats.failed_compilations += counts_.failed_compilations;
  stats.compiler_deaths += counts_.compiler_deaths;
  stats.compile_time += counts_.compile_time;
}

}  // namespace gemmd::jit

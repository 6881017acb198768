#include "kernels/jit/kernel_builder.h"

#include <utility>

#include "absl/time/clock.h"
#include "kernels/jit/flights.h"

namespace gemmd::jit {
namespace {

constexpr absl::Duration kLockPoll = absl::Milliseconds(5);
// A compilation takes seconds. An owner that holds a key's lock for longer is stuck (a stopped
// process), and compiling twice is better than never.
constexpr absl::Duration kLockPatience = absl::Minutes(2);

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
  MutexLock lock(mutex_);
  if (absl::IsCancelled(kernel.status())) return kernel;
  ++(kernel.ok() ? counts_.compilations : counts_.failed_compilations);
  counts_.compile_time += absl::Now() - start;
  return kernel;
}

void KernelBuilder::AddTo(CacheStats& stats) const {
  MutexLock lock(mutex_);
  stats.compilations += counts_.compilations;
  stats.failed_compilations += counts_.failed_compilations;
  stats.compile_time += counts_.compile_time;
}

}  // namespace gemmd::jit

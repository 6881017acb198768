#include "server/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

namespace gemmd {
namespace {

constexpr rlim_t kEnough = 1 << 20;  // also stands for "unlimited"
constexpr int kFallback = 1024;

}  // namespace

int RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kFallback;
  const rlim_t wanted = std::max(limit.rlim_cur, std::min(limit.rlim_max, kEnough));
  const rlimit raised = {wanted, limit.rlim_max};
  if (wanted > limit.rlim_cur && setrlimit(RLIMIT_NOFILE, &raised) == 0) limit.rlim_cur = wanted;
  return static_cast<int>(std::min(limit.rlim_cur, kEnough));
}

int TicketBudget(int limit) { return std::max(1, limit / 4); }

}  // namespace gemmd

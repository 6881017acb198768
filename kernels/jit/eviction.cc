#include "kernels/jit/eviction.h"

#include <algorithm>
#include <tuple>

namespace gemmd::jit {

std::vector<std::string> ChooseVictims(std::vector<EvictionCandidate> entries, uint64_t max_bytes) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.last_use, a.key) < std::tie(b.last_use, b.key);
  });
  uint64_t total = 0;
  for (const EvictionCandidate& entry : entries) total += entry.bytes;
  std::vector<std::string> victims;
  for (const EvictionCandidate& entry : entries) {
    if (total <= max_bytes) break;
    if (entry.loaded) continue;
    total -= entry.bytes;
    victims.push_back(entry.key);
  }
  return victims;
}

uint64_t EvictionTarget(uint64_t max_bytes) { return max_bytes - max_bytes / 10; }

bool MayBeEvicted(uint64_t gone_bytes, uint64_t left_bytes, uint64_t max_bytes) {
  return max_bytes != 0 && left_bytes + gone_bytes > EvictionTarget(max_bytes);
}

}  // namespace gemmd::jit

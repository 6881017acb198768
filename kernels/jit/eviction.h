// What    Which entries a cache that is too large gives up.
// Threads Pure function.
#ifndef GEMMD_KERNELS_JIT_EVICTION_H_
#define GEMMD_KERNELS_JIT_EVICTION_H_

#include <cstdint>
#include <string>
#include <vector>

namespace gemmd::jit {

struct EvictionCandidate {
  std::string key;
  uint64_t bytes = 0;
  uint64_t last_use = 0;  // larger is later; 0 = never used
  bool loaded = false;    // by a living process: stays
};

// Keys to remove, least recently used first (equal ones by key), so that what stays has at most
// `max_bytes`, or nothing but loaded entries is left. Empty when `entries` fit.
std::vector<std::string> ChooseVictims(std::vector<EvictionCandidate> entries, uint64_t max_bytes);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_EVICTION_H_

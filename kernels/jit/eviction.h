// What    Which entries a cache that is too large gives up.
// Threads Pure functions.
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

// What a cache with a limit of `max_bytes` keeps when it evicts: some room, so that the next entry does not evict again.
uint64_t EvictionTarget(uint64_t max_bytes);

// Whether the latest `gone_bytes` of a cache, which has `left_bytes` now, may have been evicted. They are the last to
// go, and only as long as what stays passes the target: with all of them back it passes it again. `max_bytes` 0: no.
bool MayBeEvicted(uint64_t gone_bytes, uint64_t left_bytes, uint64_t max_bytes);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_EVICTION_H_

// What    What goes wrong in a kernel cache and fails nobody's request, or only that of one kernel: for logs. How often
//         it does: cache_stats.h.
#ifndef GEMMD_KERNELS_JIT_CACHE_EVENT_H_
#define GEMMD_KERNELS_JIT_CACHE_EVENT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace gemmd::jit {

struct CacheEvent {
  enum class Kind : uint8_t {
    kEntryDropped,  // from disk; it is built again when somebody asks for it
    kCompilerDied,  // the helper process that compiled `kernel`, or it was ended for taking too long
  };
  Kind kind = Kind::kEntryDropped;
  std::string key;
  std::string kernel;   // its name; empty where the entry does not tell
  std::string problem;  // of an entry: damaged, stale or foreign
  absl::Status why;
};

// Called from any thread, without locks held; must not block.
using CacheObserver = std::function<void(const CacheEvent&)>;

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_CACHE_EVENT_H_

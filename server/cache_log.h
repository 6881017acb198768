// What    The log's lines about the kernel cache and its compiler that belong to no call.
// Threads Thread-safe; a flood of events becomes a few lines a second, each with the number held back.
#ifndef GEMMD_SERVER_CACHE_LOG_H_
#define GEMMD_SERVER_CACHE_LOG_H_

#include "core/prewarm.h"

namespace gemmd {

void LogCacheEvent(const CacheEvent& event);

// What a search for the compiler found; nothing when it was given up.
void LogCompiler(const StoreCompiler& compiler);

}  // namespace gemmd

#endif  // GEMMD_SERVER_CACHE_LOG_H_

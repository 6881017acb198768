// What    The life of a started daemon: wait for a signal or an operator, drain, end in time.
#ifndef GEMMD_SERVER_RUN_H_
#define GEMMD_SERVER_RUN_H_

#include "server/config.h"

namespace gemmd {

// Starts, serves and stops the daemon. Returns the exit code. Call it once, from main.
int RunDaemon(LoadedConfig config);

}  // namespace gemmd

#endif  // GEMMD_SERVER_RUN_H_

// What    Default places of sockets and cache, and the directories that hold them. Never /tmp.
//           socket   $XDG_RUNTIME_DIR/gemmd/gemmd.sock, or /run/gemmd/gemmd.sock for root
//           session  session.sock beside it
//           cache    $XDG_CACHE_HOME/gemmd, ~/.cache/gemmd, or /var/cache/gemmd for root
// Errors  InvalidArgument BAD_CONFIG when a socket's default cannot be chosen; CANNOT_CREATE or NOT_PERMITTED.
//         A cache without a default is none: cache_dir stays empty, and Config::no_cache_dir says why.
#ifndef GEMMD_SERVER_PATHS_H_
#define GEMMD_SERVER_PATHS_H_

#include <filesystem>

#include "absl/status/status.h"
#include "server/config.h"

namespace gemmd {

// Fills the paths of `config` that are empty.
absl::Status FillDefaultPaths(const Environment& environment, Config& config);

// Makes `directory` and its parents if missing: mode 0700, 0750 for root. An existing one stays as it is.
absl::Status MakeDirectory(const std::filesystem::path& directory);

}  // namespace gemmd

#endif  // GEMMD_SERVER_PATHS_H_

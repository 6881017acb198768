// What    Paths below allowed directories, symbolic links followed before the check.
#ifndef GEMMD_CORE_CHECKPOINT_PATHS_H_
#define GEMMD_CORE_CHECKPOINT_PATHS_H_

#include <filesystem>

namespace gemmd {

// Whether `path` is `directory` or below it. Both are canonical: absolute, no links, no "..".
bool IsInside(const std::filesystem::path& path, const std::filesystem::path& directory);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_PATHS_H_

#include "core/checkpoint/paths.h"

#include <algorithm>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "kernels/base/status.h"

namespace gemmd {

bool IsInside(const std::filesystem::path& path, const std::filesystem::path& directory) {
  const auto difference =
      std::mismatch(directory.begin(), directory.end(), path.begin(), path.end());
  return difference.first == directory.end();
}

absl::StatusOr<std::filesystem::path> ResolveCheckpointPath(
    const std::string& path, const std::vector<std::filesystem::path>& roots) {
  const auto not_allowed = [&path, &roots] {
    // The same words whether the path exists or not: who may not read it learns nothing about it.
    return Error(absl::StatusCode::kPermissionDenied, "PATH_NOT_ALLOWED",
                 absl::StrCat("\"", path, "\" is not inside one of the daemon's checkpoint_roots",
                              roots.empty() ? ": it has none" : ""));
  };
  if (path.find('\0') != std::string::npos || !std::filesystem::path(path).is_absolute()) {
    return Error(absl::StatusCode::kPermissionDenied, "PATH_NOT_ALLOWED",
                 "the path of a checkpoint must be absolute");
  }
  std::error_code error;
  // weakly_canonical follows the links of the part that exists.
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, error);
  if (error) return not_allowed();
  for (const std::filesystem::path& root : roots) {
    const std::filesystem::path canonical_root = std::filesystem::canonical(root, error);
    if (error || !IsInside(resolved, canonical_root)) continue;
    if (!std::filesystem::is_directory(resolved, error)) {
      return Error(absl::StatusCode::kNotFound, "CHECKPOINT_NOT_FOUND",
                   absl::StrCat("\"", path, "\" is not a directory"));
    }
    return resolved;
  }
  return not_allowed();
}

}  // namespace gemmd

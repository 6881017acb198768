// What    The safetensors files of a directory that has no index of them, without those whose names begin with a dot.
// Errors  InvalidArgument BAD_CHECKPOINT where the directory cannot be listed.
// Threads Pure function of the file system.
#ifndef GEMMD_CORE_CHECKPOINT_UNINDEXED_FILES_H_
#define GEMMD_CORE_CHECKPOINT_UNINDEXED_FILES_H_

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gemmd {

struct UnindexedFiles {
  std::vector<std::string> present;  // names, sorted; what is no file or leads nowhere too
  std::vector<std::string> missing;  // of sets that are numbered: a-00002-of-00003.safetensors
};

absl::StatusOr<UnindexedFiles> FindUnindexedFiles(const std::filesystem::path& directory);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_UNINDEXED_FILES_H_

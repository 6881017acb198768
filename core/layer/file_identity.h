// What    A name for the content of a checkpoint directory that needs no reading: its files' names,
//         sizes, times and inodes. Equal names mean equal content as far as the file system tells.
// Errors  NotFound CHECKPOINT_NOT_FOUND.
// Threads Pure function of the file system.
#ifndef GEMMD_CORE_LAYER_FILE_IDENTITY_H_
#define GEMMD_CORE_LAYER_FILE_IDENTITY_H_

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace gemmd {

absl::StatusOr<std::string> FileIdentity(const std::filesystem::path& directory);

}  // namespace gemmd

#endif  // GEMMD_CORE_LAYER_FILE_IDENTITY_H_

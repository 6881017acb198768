// What    The YAML configuration file: one mapping of setting names to scalars or sequences of scalars.
// Errors  InvalidArgument BAD_CONFIG with file:line; unreadable files too (the message carries the cause).
#ifndef GEMMD_SERVER_CONFIG_FILE_H_
#define GEMMD_SERVER_CONFIG_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/settings.h"

namespace gemmd {

struct FileValue {
  const Setting* setting = nullptr;
  std::vector<std::string> items;  // one for a scalar
  int line = 0;                    // of the key, from 1
};

absl::StatusOr<std::vector<FileValue>> ReadConfigFile(const std::string& path);

}  // namespace gemmd

#endif  // GEMMD_SERVER_CONFIG_FILE_H_

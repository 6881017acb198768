// What    The table of settings: how the text of each becomes a field of Config, and back.
// Errors  `set` returns InvalidArgument with a message of the form "value is not ..."; the caller adds where
//         the text came from.
#ifndef GEMMD_SERVER_SETTINGS_H_
#define GEMMD_SERVER_SETTINGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/config.h"

namespace gemmd {

struct Setting {
  const char* name;
  bool is_list;  // a sequence in the file, comma-separated elsewhere
  absl::Status (*set)(Config& config, const std::vector<std::string>& items);
  std::string (*get)(const Config& config);
};

absl::Span<const Setting> Settings();
const Setting* FindSetting(const std::string& name);

}  // namespace gemmd

#endif  // GEMMD_SERVER_SETTINGS_H_

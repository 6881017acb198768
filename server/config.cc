#include "server/config.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/base/status.h"
#include "server/config_file.h"
#include "server/exit_codes.h"
#include "server/paths.h"
#include "server/settings.h"
#include "server/text.h"

namespace gemmd {
namespace {

// Where each setting got its value.
using Origins = std::map<std::string, const char*>;

std::string VariableOf(const std::string& setting) {
  std::string name = absl::StrCat("GEMMD_", setting);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::vector<std::string> SplitText(const Setting& setting, const std::string& text) {
  if (!setting.is_list) return {text};
  std::vector<std::string> items;
  for (absl::string_view item : absl::StrSplit(text, ',', absl::SkipEmpty()))
    items.emplace_back(item);
  return items;
}

absl::Status Apply(const Setting& setting, const std::vector<std::string>& items,
                   const char* reason, const std::string& place, Config& config) {
  const absl::Status status = setting.set(config, items);
  if (status.ok()) return status;
  return Error(absl::StatusCode::kInvalidArgument, reason,
               absl::StrCat(place, ": ", setting.name, ": ", status.message()));
}

absl::Status ApplyFile(const std::string& path, Config& config, Origins& origins) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<FileValue> values, ReadConfigFile(path));
  for (const FileValue& value : values) {
    GEMMD_RETURN_IF_ERROR(Apply(*value.setting, value.items, kBadConfig,
                                absl::StrCat(path, ":", value.line), config));
    origins[value.setting->name] = "file";
  }
  return absl::OkStatus();
}

absl::Status ApplyEnvironment(const Environment& environment, Config& config, Origins& origins) {
  for (const Setting& setting : Settings()) {
    const std::string variable = VariableOf(setting.name);
    const std::optional<std::string> text = environment.get(variable);
    if (!text.has_value()) continue;
    GEMMD_RETURN_IF_ERROR(Apply(setting, SplitText(setting, *text), kBadConfig,
                                absl::StrCat("environment variable ", variable), config));
    origins[setting.name] = "environment";
  }
  return absl::OkStatus();
}

absl::Status ApplyFlags(const FlagValues& flags, Config& config, Origins& origins) {
  for (const auto& [name, text] : flags) {
    const Setting* setting = FindSetting(name);
    if (setting == nullptr) continue;  // "config"
    GEMMD_RETURN_IF_ERROR(Apply(*setting, SplitText(*setting, text), kBadFlag,
                                absl::StrCat("flag --", name), config));
    origins[name] = "flag";
  }
  return absl::OkStatus();
}

// Insertions, deletions and replacements between two short texts.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// One sentence for each variable that looks like a setting and is none.
std::vector<std::string> UnknownVariables(const Environment& environment) {
  std::vector<std::string> known = {"GEMMD_CONFIG", "GEMMD_NVRTC"};
  for (const Setting& setting : Settings()) known.push_back(VariableOf(setting.name));
  std::vector<std::string> warnings;
  for (const std::string& full : environment.names) {
    if (full.rfind("GEMMD_", 0) != 0) continue;
    if (std::find(known.begin(), known.end(), full) != known.end()) continue;
    const std::string name = Shortened(full);
    const auto nearest =
        std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
          return EditDistance(name, a) < EditDistance(name, b);
        });
    warnings.push_back(absl::StrCat("environment variable ", name,
                                    " is no setting and has no effect; the nearest is ", *nearest));
  }
  return warnings;
}

std::string ConfigPath(const FlagValues& flags, const Environment& environment) {
  if (const auto flag = flags.find("config"); flag != flags.end()) return flag->second;
  return environment.get("GEMMD_CONFIG").value_or("");
}

}  // namespace

Environment SystemEnvironment() {
  const auto get = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    names.push_back(text.substr(0, text.find('=')));
  }
  return {get, geteuid(), std::move(names)};
}

absl::StatusOr<LoadedConfig> LoadConfig(const FlagValues& flags, const Environment& environment) {
  LoadedConfig loaded;
  Origins origins;
  if (const std::string path = ConfigPath(flags, environment); !path.empty()) {
    GEMMD_RETURN_IF_ERROR(ApplyFile(path, loaded.config, origins));
  }
  GEMMD_RETURN_IF_ERROR(ApplyEnvironment(environment, loaded.config, origins));
  loaded.warnings = UnknownVariables(environment);
  GEMMD_RETURN_IF_ERROR(ApplyFlags(flags, loaded.config, origins));
  GEMMD_RETURN_IF_ERROR(FillDefaultPaths(environment, loaded.config));
  for (const Setting& setting : Settings()) {
    const auto origin = origins.find(setting.name);
    loaded.entries.push_back({setting.name, setting.get(loaded.config),
                              origin == origins.end() ? "default" : origin->second});
  }
  return loaded;
}

std::vector<std::pair<std::string, std::string>> UnusableRoots(const Config& config) {
  std::vector<std::pair<std::string, std::string>> unusable;
  for (const std::filesystem::path& root : config.node.checkpoint_roots) {
    std::error_code error;
    if (std::filesystem::is_directory(root, error)) continue;
    unusable.emplace_back(root.string(), error ? error.message() : "not a directory");
  }
  return unusable;
}

std::vector<std::string> SettingNames() {
  std::vector<std::string> names;
  for (const Setting& setting : Settings()) names.emplace_back(setting.name);
  return names;
}

}  // namespace gemmd

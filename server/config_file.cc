#include "server/config_file.h"

#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status.h"
#include "server/exit_codes.h"

namespace gemmd {
namespace {

absl::Status Bad(const std::string& path, int line, const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, kBadConfig,
               absl::StrCat(path, ":", line, ": ", message));
}

int LineOf(const YAML::Node& node) { return node.Mark().line + 1; }

// The items of `node` when it has the kind that `setting` wants.
absl::Status ReadItems(const std::string& path, const YAML::Node& node, FileValue& value) {
  const char* name = value.setting->name;
  if (!value.setting->is_list) {
    if (!node.IsScalar()) return Bad(path, value.line, absl::StrCat(name, ": expected one value"));
    value.items.push_back(node.Scalar());
    return absl::OkStatus();
  }
  if (!node.IsSequence()) {
    return Bad(path, value.line, absl::StrCat(name, ": expected a sequence such as [a, b]"));
  }
  for (const YAML::Node& item : node) {
    if (!item.IsScalar()) {
      return Bad(path, LineOf(item), absl::StrCat(name, ": expected a sequence of plain values"));
    }
    value.items.push_back(item.Scalar());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FileValue>> ReadRoot(const std::string& path, const YAML::Node& root) {
  std::vector<FileValue> values;
  if (!root.IsDefined() || root.IsNull()) return values;  // an empty file changes nothing
  if (!root.IsMap()) return Bad(path, LineOf(root), "expected a mapping of settings");
  std::set<std::string> seen;
  for (const auto& entry : root) {
    const int line = LineOf(entry.first);
    if (!entry.first.IsScalar()) return Bad(path, line, "expected the name of a setting");
    const std::string& name = entry.first.Scalar();
    const Setting* setting = FindSetting(name);
    if (setting == nullptr) {
      return Bad(path, line,
                 absl::StrCat("unknown key '", name, "'; known are ",
                              absl::StrJoin(SettingNames(), ", ")));
    }
    if (!seen.insert(name).second) return Bad(path, line, absl::StrCat(name, " is given twice"));
    values.push_back({setting, {}, line});
    GEMMD_RETURN_IF_ERROR(ReadItems(path, entry.second, values.back()));
  }
  return values;
}

}  // namespace

absl::StatusOr<std::vector<FileValue>> ReadConfigFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return Error(absl::StatusCode::kInvalidArgument, kBadConfig,
                 absl::StrCat(path, ": cannot read the configuration file: it is a directory"));
  }
  std::ifstream file(path);
  if (!file) {
    return Error(
        absl::StatusCode::kInvalidArgument, kBadConfig,
        absl::StrCat(path, ": cannot read the configuration file: ", std::strerror(errno)));
  }
  try {
    return ReadRoot(path, YAML::Load(file));
  } catch (const YAML::Exception& error) {
    return Bad(path, error.mark.line + 1, error.msg);
  }
}

}  // namespace gemmd

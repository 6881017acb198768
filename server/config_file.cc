#include "server/config_file.h"

#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status.h"
#include "server/exit_codes.h"
#include "server/text.h"

namespace gemmd {
namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;

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
                 absl::StrCat("unknown key '", Shortened(name), "'; known are ",
                              absl::StrJoin(SettingNames(), ", ")));
    }
    if (!seen.insert(name).second) return Bad(path, line, absl::StrCat(name, " is given twice"));
    values.push_back({setting, {}, line});
    GEMMD_RETURN_IF_ERROR(ReadItems(path, entry.second, values.back()));
  }
  return values;
}

absl::Status CannotRead(const std::string& path, const std::string& why) {
  return Error(absl::StatusCode::kInvalidArgument, kBadConfig,
               absl::StrCat(path, ": cannot read the configuration file: ", why));
}

// A pipe or a device could block for ever or never end.
absl::StatusOr<std::string> ReadText(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return CannotRead(path, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return CannotRead(path, "it is a directory");
  if (!S_ISREG(info.st_mode)) return CannotRead(path, "it is not a regular file");
  if (info.st_size > kMaxFileBytes) {
    return CannotRead(path, absl::StrCat("it has more than ", kMaxFileBytes, " bytes"));
  }
  std::ifstream file(path);
  if (!file) return CannotRead(path, std::strerror(errno));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::Status CheckText(const std::string& path, const std::string& text) {
  const size_t bad = FindBadText(text);
  if (bad == std::string::npos) return absl::OkStatus();
  const int line = 1 + static_cast<int>(std::count(text.begin(), text.begin() + bad, '\n'));
  return Bad(path, line, "a control character, or bytes that are not UTF-8");
}

}  // namespace

absl::StatusOr<std::vector<FileValue>> ReadConfigFile(const std::string& path) {
  GEMMD_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  GEMMD_RETURN_IF_ERROR(CheckText(path, text));
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) {
      return Bad(path, LineOf(documents[1]), "a second YAML document; one file holds one");
    }
    return ReadRoot(path, documents.empty() ? YAML::Node() : documents[0]);
  } catch (const YAML::Exception& error) {
    return Bad(path, error.mark.line + 1, error.msg);
  }
}

}  // namespace gemmd

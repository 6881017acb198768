#include "core/checkpoint/checkpoint_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/modelopt.h"
#include "core/checkpoint/module_names.h"
#include "core/checkpoint/other_content.h"
#include "core/checkpoint/paths.h"
#include "core/checkpoint/unindexed_files.h"

namespace gemmd {
namespace {

constexpr char kConfigFile[] = "config.json";
constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr char kModelOptFile[] = "hf_quant_config.json";
constexpr uintmax_t kLargestJson = 64 << 20;

absl::Status NotFound(absl::string_view message) {
  return Error(absl::StatusCode::kNotFound, "CHECKPOINT_NOT_FOUND", message);
}

// A shard is named by a plain file name: an index must not lead elsewhere.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

template <typename J>
absl::StatusOr<J> CheckpointFiles::ReadJson(const std::string& name) const {
  GEMMD_ASSIGN_OR_RETURN(const std::filesystem::path path, Resolve(name));
  const std::string shown = PathOf(name);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return BadCheckpoint(absl::StrCat(shown, ": not a regular file"));
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return BadCheckpoint(absl::StrCat(shown, ": ", error.message()));
  if (size > kLargestJson) {
    return BadCheckpoint(
        absl::StrCat(shown, ": expected at most ", kLargestJson, " bytes, got ", size));
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream.is_open()) {
    return BadCheckpoint(absl::StrCat(shown, ": cannot be opened: ", std::strerror(errno)));
  }
  std::string text(size, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(size));
  if (static_cast<uintmax_t>(stream.gcount()) != size) {
    return BadCheckpoint(absl::StrCat(shown, ": became shorter while it was read"));
  }
  auto document = ParseJsonObject<J>(text, JsonDialect::kPython);
  if (document.ok()) return document;
  const std::string other = OtherContent(absl::string_view(text).substr(0, kTellingStart));
  return Annotate(other.empty() ? document.status() : BadCheckpoint(other), shown);
}

absl::StatusOr<std::unique_ptr<CheckpointFiles>> CheckpointFiles::Open(
    const std::filesystem::path& directory, const std::vector<std::filesystem::path>& roots) {
  std::error_code error;
  const std::filesystem::path canonical = std::filesystem::canonical(directory, error);
  if (error || !std::filesystem::is_directory(canonical, error)) {
    return NotFound(absl::StrCat("\"", directory.string(), "\" is not a directory"));
  }
  std::vector<std::filesystem::path> canonical_roots;
  for (const std::filesystem::path& root : roots) {
    std::filesystem::path canonical_root = std::filesystem::canonical(root, error);
    if (!error) canonical_roots.push_back(std::move(canonical_root));
  }
  std::unique_ptr<CheckpointFiles> files(
      new CheckpointFiles(canonical, std::move(canonical_roots)));
  GEMMD_RETURN_IF_ERROR(files->ReadConfig());
  GEMMD_RETURN_IF_ERROR(files->ReadIndex());
  return files;
}

absl::StatusOr<const SafetensorsFile*> CheckpointFiles::Shard(const std::string& name) const {
  LazyShard& shard = *shards_.at(name);
  MutexLock lock(shard.mutex);
  if (shard.file != nullptr) return shard.file.get();
  GEMMD_ASSIGN_OR_RETURN(const bool exists, Exists(name));
  if (!exists) {
    return BadCheckpoint(absl::StrCat(
        PathOf(name), ": ", has_index_ ? "expected by the index, " : "", "there is no such file"));
  }
  GEMMD_ASSIGN_OR_RETURN(const std::filesystem::path path, Resolve(name));
  GEMMD_ASSIGN_OR_RETURN(shard.file, SafetensorsFile::Open(path, PathOf(name)));
  return shard.file.get();
}

const std::string* CheckpointFiles::OtherFileOf(const std::string& tensor) const {
  const auto found = other_files_.find(tensor);
  return found == other_files_.end() ? nullptr : &found->second;
}

std::vector<std::string> CheckpointFiles::UnlistedFiles() const {
  std::vector<std::string> unlisted;
  const absl::StatusOr<UnindexedFiles> files = FindUnindexedFiles(directory_);
  if (!files.ok()) return unlisted;  // a directory that may be entered, not listed
  for (const std::string& name : files->present) {
    if (shards_.count(name) == 0) unlisted.push_back(name);
  }
  return unlisted;
}

std::string CheckpointFiles::FindUnread(const std::function<bool(const std::string&)>& is_wanted) const {
  for (const auto& [shard, file] : Shards()) {
    if (file == nullptr) continue;
    for (const auto& [tensor, info] : file->tensors()) {
      if (index_.count(tensor) == 0 && is_wanted(tensor)) return shard;
    }
  }
  if (!hidden_files_.empty() || (!has_index_ && shards_.count(kSingleFile) == 0)) return "";
  for (const std::string& name : UnlistedFiles()) {
    const auto tensors = TensorNames(name);
    if (tensors.ok() && std::any_of(tensors->begin(), tensors->end(), is_wanted)) return name;
  }
  return "";
}

std::map<std::string, const SafetensorsFile*> CheckpointFiles::Shards() const {
  std::map<std::string, const SafetensorsFile*> shards;
  for (const auto& [name, slot] : shards_) {
    const auto file = Shard(name);
    shards.emplace(name, file.ok() ? *file : nullptr);
  }
  return shards;
}

absl::Status CheckpointFiles::ReadConfig() {
  GEMMD_ASSIGN_OR_RETURN(const bool exists, Exists(kConfigFile));
  if (!exists) {
    return NotFound(absl::StrCat("\"", directory_.string(), "\" holds no config.json"));
  }
  GEMMD_ASSIGN_OR_RETURN(const Json config, ReadJson<Json>(kConfigFile));
  config_file_ = PathOf(kConfigFile);
  absl::StatusOr<ModelFacts> facts = ReadModelFacts(config);
  if (!facts.ok()) return Annotate(facts.status(), config_file_);
  model_facts_ = *std::move(facts);
  const auto quantization = FindQuantizationConfig(config);
  if (!quantization.ok()) return Annotate(quantization.status(), config_file_);
  if (*quantization != nullptr) {
    quantization_config_ = **quantization;
    config_is_of_text_ = *quantization != FindField(config, {"quantization_config"}) &&
                         *quantization != FindField(config, {"compression_config"});
    return ReadModelOptConfig(config);
  }
  GEMMD_RETURN_IF_ERROR(ReadSeparateConfig());
  return ReadModelOptConfig(config);
}

// What ModelOpt says in its own file, beside or instead of what config.json says.
absl::Status CheckpointFiles::ReadModelOptConfig(const Json& config) {
  const bool in_config = !quantization_config_.is_null();
  if (in_config && !IsModelOptConfig(quantization_config_)) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(const bool has_file, Exists(kModelOptFile));
  if (!in_config && !has_file) return absl::OkStatus();
  Json file;
  if (has_file) {
    GEMMD_ASSIGN_OR_RETURN(file, ReadJson<Json>(kModelOptFile));
  }
  const auto model_type = NameField(config, {"model_type"}, "");
  if (!model_type.ok()) return Annotate(model_type.status(), PathOf(kConfigFile));
  const std::string path = PathOf(kModelOptFile);
  GEMMD_ASSIGN_OR_RETURN(
      quantization_config_,
      MergeModelOptConfig(quantization_config_, config_file_, file, path, *model_type));
  if (has_file)
    config_file_ = in_config ? absl::StrCat(config_file_, " and ", kModelOptFile) : path;
  return absl::OkStatus();
}

// Files in which older exporters put what config.json holds today. They do not always name the
// method.
absl::Status CheckpointFiles::ReadSeparateConfig() {
  for (const auto& [name, method] :
       {std::pair("quantize_config.json", "gptq"), std::pair("quant_config.json", "awq")}) {
    GEMMD_ASSIGN_OR_RETURN(const bool exists, Exists(name));
    if (!exists) continue;
    GEMMD_ASSIGN_OR_RETURN(quantization_config_, ReadJson<Json>(name));
    config_file_ = PathOf(name);
    if (FindField(quantization_config_, {"quant_method"}) == nullptr) {
      quantization_config_["quant_method"] = method;
    }
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

// The names in the header of a shard that has no whole data.
absl::StatusOr<std::vector<std::string>> CheckpointFiles::TensorNames(
    const std::string& name) const {
  GEMMD_ASSIGN_OR_RETURN(const std::filesystem::path path, Resolve(name));
  return ReadTensorNames(path, PathOf(name));
}

void CheckpointFiles::AddUnindexed(const std::string& name) {
  const auto add = [&](const std::string& tensor) {
    if (!index_.emplace(tensor, name).second) other_files_.emplace(tensor, name);
  };
  shards_.emplace(name, std::make_unique<LazyShard>());
  const auto file = Shard(name);
  if (file.ok()) {
    for (const auto& [tensor, info] : (*file)->tensors()) add(tensor);
    return;
  }
  const auto names = TensorNames(name);
  if (!names.ok()) return hidden_files_.push_back({name, file.status()});
  for (const std::string& tensor : *names) add(tensor);
}

// A directory whose files are what there is of the model.
absl::Status CheckpointFiles::ReadUnindexed() {
  GEMMD_ASSIGN_OR_RETURN(const UnindexedFiles files, FindUnindexedFiles(directory_));
  for (const std::string& name : files.present) AddUnindexed(name);
  for (const std::string& name : files.missing) {
    hidden_files_.push_back(
        {name, BadCheckpoint(absl::StrCat(PathOf(name),
                                          ": expected by the names of the files "
                                          "beside it, there is no such file"))});
  }
  if (files.present.empty()) {
    return NotFound(absl::StrCat("\"", directory_.string(), "\" holds neither ", kSingleFile,
                                 " nor ", kIndexFile, " nor any other safetensors file"));
  }
  if (hidden_files_.empty()) return absl::OkStatus();
  if (index_.empty()) return hidden_files_.front().status;
  for (const auto& [tensor, name] : index_) tensor_roles_.emplace(RoleOf(tensor), tensor);
  return absl::OkStatus();
}

absl::Status CheckpointFiles::ReadIndex() {
  GEMMD_ASSIGN_OR_RETURN(has_index_, Exists(kIndexFile));
  if (!has_index_) {
    GEMMD_ASSIGN_OR_RETURN(const bool single, Exists(kSingleFile));
    if (!single) return ReadUnindexed();
    shards_.emplace(kSingleFile, std::make_unique<LazyShard>());
    GEMMD_ASSIGN_OR_RETURN(const SafetensorsFile* const file, Shard(kSingleFile));
    for (const auto& [name, tensor] : file->tensors()) index_.emplace(name, kSingleFile);
    return absl::OkStatus();
  }
  GEMMD_ASSIGN_OR_RETURN(const JsonTable document, ReadJson<JsonTable>(kIndexFile));
  const JsonTable* weight_map = FindField(document, {"weight_map"});
  if (weight_map == nullptr || !weight_map->is_object()) {
    const Json got = weight_map == nullptr ? Json() : Json(*weight_map);
    return Annotate(WrongField("weight_map", "an object", got), PathOf(kIndexFile));
  }
  for (const auto& [tensor, shard] : weight_map->items()) {
    if (!shard.is_string() || !IsPlainFileName(shard.get_ref<const std::string&>())) {
      return BadCheckpoint(absl::StrCat(PathOf(kIndexFile), ": tensor ", tensor,
                                        ": expected the name of a file in the same directory, got ",
                                        Shown(Json(shard))));
    }
    const auto& name = shard.get_ref<const std::string&>();
    index_.emplace(tensor, name);
    if (auto& slot = shards_[name]; slot == nullptr) slot = std::make_unique<LazyShard>();
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> CheckpointFiles::Exists(const std::string& name) const {
  std::error_code error;
  const auto status = std::filesystem::status(directory_ / name, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    // A download that was cut short leaves links to files that were to come.
    if (!std::filesystem::is_symlink(std::filesystem::symlink_status(directory_ / name, error)))
      return false;
    return BadCheckpoint(
        absl::StrCat(PathOf(name), ": a symbolic link to a file that does not exist"));
  }
  if (error) return BadCheckpoint(absl::StrCat(PathOf(name), ": ", error.message()));
  return true;
}

absl::StatusOr<std::filesystem::path> CheckpointFiles::Resolve(const std::string& name) const {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(directory_ / name, error);
  if (error) return BadCheckpoint(absl::StrCat(PathOf(name), ": ", error.message()));
  if (IsInside(path, directory_)) return path;
  for (const std::filesystem::path& root : roots_) {
    if (IsInside(path, root)) return path;
  }
  return Error(absl::StatusCode::kPermissionDenied, "PATH_NOT_ALLOWED",
               absl::StrCat(PathOf(name), " is a link to a file outside the directories that may be read"));
}

}  // namespace gemmd

#include "core/checkpoint/module_tensors.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/checkpoint/composite.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_names.h"

namespace gemmd {
namespace {

// The key of tensor `name` in `module`, or nullopt when it belongs elsewhere.
std::optional<std::string> KeyOf(const std::string& name, const std::string& module) {
  if (absl::StartsWith(name, module)) {
    std::string key = name.substr(module.size());
    if (key.empty() || key[0] == '.') return key;
    // "a.b_blocks" belongs to "a.b", "a.b_proj.weight" does not.
    if (key[0] == '_' && key.find('.') == std::string::npos) return key;
    return std::nullopt;
  }
  // gpt-oss, original names: mlp1_weight.blocks and mlp1_bias.
  absl::string_view stem = module;
  if (absl::ConsumeSuffix(&stem, "_weight") && name == absl::StrCat(stem, "_bias")) return "_bias";
  return std::nullopt;
}

// Names of a sorted map that may belong to `module`: those that begin with it, and gpt-oss's bias.
template <typename Map, typename Visit>
absl::Status ForEachCandidate(const Map& map, const std::string& module, Visit visit) {
  for (auto it = map.lower_bound(module); it != map.end(); ++it) {
    if (!absl::StartsWith(it->first, module)) break;
    GEMMD_RETURN_IF_ERROR(visit(it->first, it->second));
  }
  absl::string_view stem = module;
  if (!absl::ConsumeSuffix(&stem, "_weight")) return absl::OkStatus();
  const auto bias = map.find(absl::StrCat(stem, "_bias"));
  return bias == map.end() ? absl::OkStatus() : visit(bias->first, bias->second);
}

template <typename T>
bool Contains(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

std::string Expectation(const std::vector<std::string>& dtypes, const std::vector<Shape>& shapes) {
  const auto append = [](std::string* out, const Shape& shape) {
    out->append(DescribeShape(shape));
  };
  return absl::StrCat(absl::StrJoin(dtypes, " or "), " ", absl::StrJoin(shapes, " or ", append));
}

absl::Status ModuleNotFound(absl::string_view message) {
  return Error(absl::StatusCode::kNotFound, "MODULE_NOT_FOUND", message);
}

// "a.b.c" -> "a.b".
std::string ParentOf(const std::string& name) { return name.substr(0, name.rfind('.')); }

// Where tensors of `module` lie that nobody reads, and what to do; empty: nowhere, or it has parts (q_proj of qkv_proj),
// which are looked for by whoever reads it.
std::string WhereUnread(const CheckpointFiles& files, const std::string& module) {
  const auto parts = FindParts(files.index(), module);
  if (module.empty() || !parts.ok() || parts->has_value()) return "";
  const std::string file = files.FindUnread(
      [&module](const std::string& tensor) { return KeyOf(tensor, module).has_value(); });
  if (file.empty()) return "";
  return absl::StrCat("; ", files.PathOf(file), " holds some, and is not read for them: ",
                      files.has_index() ? "add them to \"weight_map\" of model.safetensors.index.json"
                                        : "an index (model.safetensors.index.json) must name them beside model.safetensors");
}

absl::Status NoSuchModule(const CheckpointFiles& files, const std::string& module) {
  std::string message = absl::StrCat("the checkpoint has no tensor of a module \"", module, "\"");
  for (const HiddenFile& hidden : files.hidden_files()) {
    absl::StrAppend(&message, "; it may be in ", hidden.status.message());
  }
  return ModuleNotFound(message + WhereUnread(files, module));
}

}  // namespace

absl::StatusOr<ModuleTensors> ModuleTensors::Open(const CheckpointFiles& files,
                                                  const std::string& module,
                                                  ProgressFunction progress) {
  ModuleTensors tensors(module, std::move(progress));
  std::map<std::string, std::string> names;  // key -> name
  bool is_module = false;                    // and not only the parent of modules
  const auto collect = [&](const std::string& name, const std::string&) {
    const std::optional<std::string> key = KeyOf(name, module);
    if (!key) return absl::OkStatus();
    names.emplace(*key, name);
    if (key->find('.', 1) == std::string::npos) is_module = true;
    return absl::OkStatus();
  };
  if (!module.empty()) {
    GEMMD_RETURN_IF_ERROR(ForEachCandidate(files.index(), module, collect));
  }
  if (!is_module) return NoSuchModule(files, module);
  for (const auto& [key, name] : names) {
    GEMMD_RETURN_IF_ERROR(tensors.Add(files, name, files.index().at(name), key));
  }
  if (tensors.IsTensor()) {
    return ModuleNotFound(absl::StrCat("\"", module, "\" is a tensor, of module \"", ParentOf(module), "\""));
  }
  GEMMD_RETURN_IF_ERROR(tensors.RejectUnindexed(files));
  GEMMD_RETURN_IF_ERROR(tensors.RejectHidden(files));
  return tensors;
}

ModuleTensors ModuleTensors::FromMemory(const std::string& module, const std::string& file,
                                        std::map<std::string, TensorData> tensors) {
  ModuleTensors out(module, nullptr);
  for (auto& [key, tensor] : tensors) {
    out.bytes_total_ += tensor.bytes.size();
    out.entries_[key] = {module + key, nullptr, std::move(tensor.info), file,
                         std::move(tensor.bytes)};
  }
  return out;
}

absl::Status ModuleTensors::Add(const CheckpointFiles& files, const std::string& name,
                                const std::string& shard, const std::string& key) {
  const auto file = files.Shard(shard);
  if (!file.ok()) return Annotate(file.status(), absl::StrCat("module ", module_));
  const TensorInfo* info = (*file)->Find(name);
  if (info == nullptr) {
    return BadCheckpoint(absl::StrCat((*file)->name(), ": module ", module_, ": tensor ", name,
                                      ": named by the index, but not in the file"));
  }
  if (const std::string* const other = files.OtherFileOf(name)) {
    return BadCheckpoint(absl::StrCat((*file)->name(), ": module ", module_, ": tensor ", name,
                                      ": it is in ", *other, " too"));
  }
  entries_[key] = {name, *file, *info, (*file)->name(), {}};
  bytes_total_ += info->bytes;
  return absl::OkStatus();
}

// Stacks of experts alone are stored under the module's own name.
bool ModuleTensors::IsTensor() const {
  const TensorInfo* const own = Find("");
  return own != nullptr && own->shape.size() < 3 && module_.find('.') != std::string::npos && !IsStackName(module_);
}

// A shard that holds one of the module's tensors although the index places it elsewhere or not at
// all.
absl::Status ModuleTensors::RejectUnindexed(const CheckpointFiles& files) const {
  std::map<std::string, const SafetensorsFile*> shards;
  for (const auto& [key, entry] : entries_) shards[files.index().at(entry.name)] = entry.file;
  for (const auto& [shard, file] : shards) {
    const auto check = [&, &shard = shard, &file = file](const std::string& name, const TensorInfo&) {
      if (!KeyOf(name, module_)) return absl::OkStatus();
      const auto indexed = files.index().find(name);
      if (indexed != files.index().end() && indexed->second == shard) return absl::OkStatus();
      return BadCheckpoint(absl::StrCat(
          file->name(), ": module ", module_, ": tensor ", name, ": expected in ",
          indexed == files.index().end() ? "no file" : indexed->second.c_str(), " by the index"));
    };
    GEMMD_RETURN_IF_ERROR(ForEachCandidate(file->tensors(), module_, check));
  }
  return absl::OkStatus();
}

// A file that cannot be read may hold a bias or an order of columns that the module would be read without: where
// others of its role have one, it is missed.
absl::Status ModuleTensors::RejectHidden(const CheckpointFiles& files) const {
  if (files.hidden_files().empty()) return absl::OkStatus();
  const std::string role = RoleOf(module_);
  const auto check = [&](const std::string& tensor_role, const std::string& example) {
    const std::optional<std::string> key = KeyOf(tensor_role, role);
    if (!key || entries_.count(*key) > 0) return absl::OkStatus();
    return BadCheckpoint(absl::StrCat(files.hidden_files().front().status.message(), ": module ",
                                      module_, ": tensor ", module_, *key,
                                      ": it may be in this file, as there is ", example));
  };
  return ForEachCandidate(files.tensor_roles(), role, check);
}

ModuleTensors ModuleTensors::Renamed(const std::string& module) && {
  module_ = module;
  return std::move(*this);
}

std::string ModuleTensors::Layout() const {
  std::string layout;
  for (const auto& [key, entry] : entries_) {
    absl::StrAppend(&layout, key, " ", entry.info.Describe(), "\n");
  }
  return layout;
}

std::map<std::string, TensorInfo> ModuleTensors::Infos() const {
  std::map<std::string, TensorInfo> infos;
  for (const auto& [key, entry] : entries_) infos.emplace(key, entry.info);
  return infos;
}

const TensorInfo* ModuleTensors::Find(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second.info;
}

absl::StatusOr<TensorInfo> ModuleTensors::Require(const std::string& key, size_t rank) const {
  const TensorInfo* info = Find(key);
  if (info == nullptr) return Bad(key, "missing");
  if (info->shape.size() != rank) {
    return Bad(key, absl::StrCat("expected ", rank, " extents, got ", info->Describe()));
  }
  // 2^40 keeps every product with a number of bits below 2^63.
  for (const int64_t extent : info->shape) {
    if (extent < 1 || extent > int64_t{1} << 40) {
      return Bad(key, absl::StrCat("expected extents from 1 to 2^40, got ", info->Describe()));
    }
  }
  return *info;
}

absl::StatusOr<TensorData> ModuleTensors::Read(const std::string& key,
                                               const std::vector<std::string>& dtypes,
                                               const std::vector<Shape>& shapes) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    return Bad(key, absl::StrCat("missing, expected ", Expectation(dtypes, shapes)));
  }
  const TensorInfo& info = found->second.info;
  if (!Contains(shapes, info.shape) || !Contains(dtypes, info.dtype)) {
    return Bad(key,
               absl::StrCat("expected ", Expectation(dtypes, shapes), ", got ", info.Describe()));
  }
  used_.insert(key);
  return Load(found->second);
}

// What is wrong with a file, while `entry` was read from it.
absl::Status ModuleTensors::AboutTensor(const Entry& entry, const absl::Status& status) const {
  const std::string reason = ReasonOf(status);
  if (reason != "BAD_CHECKPOINT" && reason != "HOST_MEMORY") return status;
  return Error(status.code(), reason,
               absl::StrCat(status.message(), ": module ", module_, ": tensor ", entry.name));
}

absl::StatusOr<TensorData> ModuleTensors::ReadFirstRow(const std::string& key) const {
  GEMMD_ASSIGN_OR_RETURN(TensorInfo row, Require(key, 2));
  row.bytes /= static_cast<uint64_t>(row.shape[0]);
  row.shape[0] = 1;
  const Entry& entry = entries_.at(key);
  if (entry.file == nullptr) return TensorData{row, Buffer(entry.bytes.begin(), entry.bytes.begin() + row.bytes)};
  auto bytes = entry.file->Read(row);
  if (!bytes.ok()) return AboutTensor(entry, bytes.status());
  return TensorData{row, *std::move(bytes)};
}

absl::StatusOr<TensorData> ModuleTensors::Load(Entry& entry) {
  if (entry.file == nullptr) return TensorData{entry.info, std::move(entry.bytes)};
  const auto on_bytes = [this](uint64_t bytes) {
    bytes_done_ += bytes;
    return progress_ == nullptr || progress_(bytes_done_, bytes_total_);
  };
  TensorData data{.info = entry.info, .bytes = {}};
  auto bytes = entry.file->Read(entry.info, on_bytes);
  if (!bytes.ok()) return AboutTensor(entry, bytes.status());
  data.bytes = *std::move(bytes);
  return data;
}

absl::Status ModuleTensors::RejectOthers() const {
  for (const auto& [key, entry] : entries_) {
    if (used_.count(key) != 0) continue;
    return Bad(key,
               absl::StrCat("expected no such tensor in this format, got ", entry.info.Describe()));
  }
  return absl::OkStatus();
}

const std::string& ModuleTensors::FileOf(const std::string& key) const {
  const auto found = entries_.find(key);
  return (found == entries_.end() ? entries_.begin() : found)->second.file_name;
}

std::string ModuleTensors::WhereWeightsAre() const {
  const auto size = [](const auto& entry) {
    return std::pair(entry.second.info.shape.size() > 1, entry.second.info.bytes);
  };
  const auto largest = std::max_element(entries_.begin(), entries_.end(),
                                        [&size](const auto& a, const auto& b) { return size(a) < size(b); });
  return absl::StrCat(largest->second.file_name, ": module ", module_, ": tensor ", largest->second.name);
}

absl::Status ModuleTensors::Bad(const std::string& key, absl::string_view message) const {
  const auto found = entries_.find(key);
  const std::string name = found == entries_.end() ? module_ + key : found->second.name;
  return BadCheckpoint(
      absl::StrCat(FileOf(key), ": module ", module_, ": tensor ", name, ": ", message));
}

absl::Status ModuleTensors::Bad(absl::string_view message) const {
  return BadCheckpoint(absl::StrCat(FileOf(""), ": module ", module_, ": ", message));
}

}  // namespace gemmd

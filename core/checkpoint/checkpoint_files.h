// What    The files of one checkpoint directory: its config, and which shard holds which tensor.
// Layout  config.json (quantization_config, also in a part for text), or beside it quantize_config.json of older GPTQ and
//         quant_config.json of older AWQ exports, hf_quant_config.json of ModelOpt;
//         model.safetensors, or model.safetensors.index.json and its shards; without either all *.safetensors.
// Errors  NotFound CHECKPOINT_NOT_FOUND; InvalidArgument BAD_CHECKPOINT; PermissionDenied
//         PATH_NOT_ALLOWED for a file whose symbolic links lead out of the directory and the roots.
// Threads Thread-safe; a shard's header is read once, on first use.
#ifndef GEMMD_CORE_CHECKPOINT_CHECKPOINT_FILES_H_
#define GEMMD_CORE_CHECKPOINT_CHECKPOINT_FILES_H_

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/json.h"
#include "core/checkpoint/model_facts.h"
#include "core/checkpoint/safetensors.h"
#include "kernels/base/mutex.h"

namespace gemmd {

// A file that no index tells the content of, and whose own header cannot be read.
struct HiddenFile {
  std::string name;
  absl::Status status;  // what is wrong with it, beginning with its path
};

class CheckpointFiles {
 public:
  static absl::StatusOr<std::unique_ptr<CheckpointFiles>> Open(
      const std::filesystem::path& directory, const std::vector<std::filesystem::path>& roots);

  // null when the checkpoint is not quantized.
  const Json& quantization_config() const { return quantization_config_; }
  // The file, or the two files, that it comes from, with their path; config.json where there is none.
  const std::string& config_file() const { return config_file_; }
  // Whether it stands in the part of config.json for text, and may call the modules by their names in that part.
  bool config_is_of_text() const { return config_is_of_text_; }
  const ModelFacts& model_facts() const { return model_facts_; }
  // The file `name` of the directory with its path, for messages.
  std::string PathOf(const std::string& name) const { return (directory_ / name).string(); }
  // Tensor name -> file name, for every tensor of the checkpoint.
  const std::map<std::string, std::string>& index() const { return index_; }
  bool has_index() const { return has_index_; }
  // Without an index: what may hold any tensor beside those of index(). Names of tensors whose data alone is damaged
  // are in index().
  const std::vector<HiddenFile>& hidden_files() const { return hidden_files_; }
  // With hidden files: the role (module_names.h) of every tensor of index(), and one that has it.
  const std::map<std::string, std::string>& tensor_roles() const { return tensor_roles_; }
  // Without an index: another file that holds `tensor` too; nullptr: none does.
  const std::string* OtherFileOf(const std::string& tensor) const;
  // Other *.safetensors files of the directory, sorted: neither the index nor model.safetensors is about them, and nobody
  // reads them (consolidated copies are common). None without both; hidden ones do not count.
  std::vector<std::string> UnlistedFiles() const;
  // A file of the directory with a tensor for which `is_wanted` is true, and which nobody reads: the file is one of
  // UnlistedFiles, or index() does not name the tensor. Empty: none. Reads the headers of all.
  std::string FindUnread(const std::function<bool(const std::string&)>& is_wanted) const;
  // The shard `name` of the index, with its header. An error is not remembered.
  absl::StatusOr<const SafetensorsFile*> Shard(const std::string& name) const;
  // Every shard of the index by its name; nullptr for one that Shard gives an error for.
  std::map<std::string, const SafetensorsFile*> Shards() const;

 private:
  struct LazyShard {
    Mutex mutex;
    std::unique_ptr<const SafetensorsFile> file ABSL_GUARDED_BY(mutex);
  };

  CheckpointFiles(std::filesystem::path directory, std::vector<std::filesystem::path> roots)
      : directory_(std::move(directory)), roots_(std::move(roots)) {}

  absl::Status ReadConfig();
  absl::Status ReadSeparateConfig();
  absl::Status ReadModelOptConfig(const Json& config);
  absl::Status ReadIndex();
  absl::Status ReadUnindexed();
  void AddUnindexed(const std::string& name);
  absl::StatusOr<std::vector<std::string>> TensorNames(const std::string& name) const;
  absl::StatusOr<bool> Exists(const std::string& name) const;
  absl::StatusOr<std::filesystem::path> Resolve(const std::string& name) const;
  template <typename J>
  absl::StatusOr<J> ReadJson(const std::string& name) const;

  std::filesystem::path directory_;
  std::vector<std::filesystem::path> roots_;
  Json quantization_config_;
  std::string config_file_;
  bool config_is_of_text_ = false;
  ModelFacts model_facts_;
  bool has_index_ = false;
  std::map<std::string, std::string> index_;
  std::map<std::string, std::string> other_files_;  // by tensor
  std::vector<HiddenFile> hidden_files_;
  std::map<std::string, std::string> tensor_roles_;
  std::map<std::string, std::unique_ptr<LazyShard>>
      shards_;  // those of the index, and hidden files
};

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_CHECKPOINT_FILES_H_

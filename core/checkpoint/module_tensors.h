// What    The tensors of one module of a checkpoint. A reader takes what its format defines; what
//         is left over changes the meaning of the weights in a way the reader does not know, and is
//         an error.
// Names   A tensor is addressed by its key, the part of its name behind the module: ".qweight" of
//         "a.b.qweight" in module "a.b", "_blocks" of "a.b_blocks", "" of "a.b" itself.
// Errors  InvalidArgument BAD_CHECKPOINT naming file, module, tensor, expected and got; Cancelled
//         when the progress function asks for it.
// Threads Not thread-safe.
#ifndef GEMMD_CORE_CHECKPOINT_MODULE_TENSORS_H_
#define GEMMD_CORE_CHECKPOINT_MODULE_TENSORS_H_

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_files.h"

namespace gemmd {

using Shape = std::vector<int64_t>;

// A tensor in memory.
struct TensorData {
  TensorInfo info;
  Buffer bytes;

  template <typename T>
  T at(int64_t index) const {
    T value;
    std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
    return value;
  }
};

class ModuleTensors {
 public:
  // NotFound MODULE_NOT_FOUND when no tensor belongs to `module`, with the file beside the index that holds some; and when
  // it is a tensor's name.
  static absl::StatusOr<ModuleTensors> Open(const CheckpointFiles& files, const std::string& module,
                                            ProgressFunction progress);

  // A module of tensors in memory by key, as if they were in file `file` ("shard 3 of ..."): what a reader
  // cut out of another module. `tensors` is not empty.
  static ModuleTensors FromMemory(const std::string& module, const std::string& file,
                                  std::map<std::string, TensorData> tensors);

  const std::string& module() const { return module_; }
  // Under another name for the same tensors: what a config may call it.
  ModuleTensors Renamed(const std::string& module) &&;
  const ProgressFunction& progress() const { return progress_; }
  uint64_t bytes_total() const { return bytes_total_; }
  // Key, type and shape of every tensor, one to a line; equal for modules with the same.
  std::string Layout() const;
  // Of every tensor, by key.
  std::map<std::string, TensorInfo> Infos() const;
  // nullptr when the module has no such tensor.
  const TensorInfo* Find(const std::string& key) const;

  // Reads a tensor that must exist with one of `dtypes` and one of `shapes`.
  absl::StatusOr<TensorData> Read(const std::string& key, const std::vector<std::string>& dtypes,
                                  const std::vector<Shape>& shapes);
  // The first row of a tensor of two extents that was not read yet, for a look at it: it counts as read neither here nor
  // in the progress.
  absl::StatusOr<TensorData> ReadFirstRow(const std::string& key) const;
  // As Find, an error when it is missing or does not have `rank` extents, all positive.
  absl::StatusOr<TensorInfo> Require(const std::string& key, size_t rank) const;
  // Declares a tensor as known and without influence on the weights.
  void Ignore(const std::string& key) { used_.insert(key); }
  // An error when a tensor of the module was neither read nor ignored.
  absl::Status RejectOthers() const;

  // The file that holds `key`, with its path, for messages; that of any tensor of the module where none does.
  const std::string& FileOf(const std::string& key) const;
  // "file: module m: tensor m.weight" of the tensor that holds the weights: of those with rows the one with most bytes.
  std::string WhereWeightsAre() const;
  // BAD_CHECKPOINT about one tensor, and about the module as a whole.
  absl::Status Bad(const std::string& key, absl::string_view message) const;
  absl::Status Bad(absl::string_view message) const;

 private:
  struct Entry {
    std::string name;
    const SafetensorsFile* file = nullptr;  // null: in memory
    TensorInfo info;
    std::string file_name;
    Buffer bytes;  // in memory; empty once read
  };

  ModuleTensors(std::string module, ProgressFunction progress)
      : module_(std::move(module)), progress_(std::move(progress)) {}
  absl::Status Add(const CheckpointFiles& files, const std::string& name, const std::string& shard,
                   const std::string& key);
  bool IsTensor() const;
  absl::Status RejectUnindexed(const CheckpointFiles& files) const;
  absl::Status RejectHidden(const CheckpointFiles& files) const;
  absl::StatusOr<TensorData> Load(Entry& entry);
  absl::Status AboutTensor(const Entry& entry, const absl::Status& status) const;

  std::string module_;
  ProgressFunction progress_;
  std::map<std::string, Entry> entries_;
  std::set<std::string> used_;
  uint64_t bytes_done_ = 0;
  uint64_t bytes_total_ = 0;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_MODULE_TENSORS_H_

// What    Layers of a checkpoint directory on disk as StandardTensors.
// Layout  `directory` holds config.json (quantization_config) and model.safetensors, or
//         model.safetensors.index.json with its shards; without either all its *.safetensors.
// Errors  NotFound CHECKPOINT_NOT_FOUND, MODULE_NOT_FOUND; PermissionDenied PATH_NOT_ALLOWED;
//         InvalidArgument BAD_CHECKPOINT (damaged file, missing, extra or mis-shaped tensor: the
//         message names file, module, tensor, expected and got); Unimplemented UNSUPPORTED_FORMAT;
//         of a slice InvalidArgument SHAPE_MISMATCH, SLICE_CUTS_GROUP (rank_slice.h), MISSING_FIELD
//         for a fused module whose row_parts nothing tells.
//         ResourceExhausted HOST_MEMORY: the machine has no memory for the module; the message names it and its bytes.
//         BAD_CHECKPOINT too: a shard changed since its header was read. With a target of quantization as
//         QuantizeLayer (core/quant/quantize_layer.h), naming the module.
// Threads A Checkpoint is thread-safe; the functions are pure functions of the files.
// Source  One reader per exporter: core/checkpoint/README.md.
#ifndef GEMMD_CORE_CHECKPOINT_CHECKPOINT_H_
#define GEMMD_CORE_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/layer_quantizer.h"
#include "core/checkpoint/reading_options.h"
#include "core/quant/rank_slice.h"

namespace gemmd {

class CheckpointFiles;

struct CheckpointLayer {
  StandardTensor tensor;
  std::string format;  // quant_method of the reader ("gptq", "modelopt", ...) or "unquantized"
  std::optional<QuantizedHere> quantized = std::nullopt;  // from unquantized weights, as it was read
  std::vector<std::string> notes = {};  // reading_notes.h, of callers that ask for them
};

// Called with (bytes done, bytes total); returns false to cancel (Cancelled).
using ProgressFunction = std::function<bool(uint64_t, uint64_t)>;

// Resolves `path` and refuses what is not inside one of `roots` after following symbolic links.
absl::StatusOr<std::filesystem::path> ResolveCheckpointPath(
    const std::string& path, const std::vector<std::filesystem::path>& roots);

// A checkpoint that is opened once: config and index are parsed by Open, the header of a shard when it is
// first needed. Tensors are read from the files each time, none of which stays open.
class Checkpoint {
 public:
  // `directory` is already resolved. A file that is a symbolic link must lead to a file in the directory
  // or in one of `roots`.
  static absl::StatusOr<std::shared_ptr<const Checkpoint>> Open(
      const std::filesystem::path& directory, const std::vector<std::filesystem::path>& roots = {});
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  // Names of the quantized modules, sorted; of all linears where the config names no quantization. Modules in files that cannot be
  // read are among them: reading these tells why.
  absl::StatusOr<std::vector<std::string>> ListModules() const;

  // Reads `module`, put together from its parts where it has no tensors itself (composite.h); an
  // unquantized linear comes as its 16- or 32-bit weights. Of experts that are stored one by one only
  // those of the slice are read. With `quantize` every module that is read must be unquantized, and is quantized
  // (layer_quantizer.h says when).
  absl::StatusOr<CheckpointLayer> ReadLayer(const std::string& module,
                                            const ProgressFunction& progress = nullptr,
                                            const SliceRequest& slice = {},
                                            const QuantizeOnRead* quantize = nullptr,
                                            const ReadingOptions& options = {}) const;

  // Of the tensors that ReadLayer would read; 0 where it would not find them.
  uint64_t BytesOf(const std::string& module, const SliceRequest& slice = {}) const;

  const CheckpointFiles& files() const { return *files_; }

 private:
  explicit Checkpoint(std::unique_ptr<const CheckpointFiles> files);
  absl::StatusOr<CheckpointLayer> ReadAndQuantize(const std::string& module, const ProgressFunction& progress,
                                                  const SliceRequest& slice, const QuantizeOnRead* quantize,
                                                  const ReadingOptions& options) const;

  const std::unique_ptr<const CheckpointFiles> files_;
};

// The same of a checkpoint that is opened for this call: for one module, or one list.
absl::StatusOr<CheckpointLayer> ReadLayer(const std::filesystem::path& directory,
                                          const std::string& module,
                                          const ProgressFunction& progress = nullptr,
                                          const std::vector<std::filesystem::path>& roots = {},
                                          const SliceRequest& slice = {},
                                          const QuantizeOnRead* quantize = nullptr,
                                          const ReadingOptions& options = {});
absl::StatusOr<std::vector<std::string>> ListModules(
    const std::filesystem::path& directory, const std::vector<std::filesystem::path>& roots = {});

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_CHECKPOINT_H_

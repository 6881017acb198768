// What    One reader per exporter, chosen by quant_method. A new exporter is a new file that
//         defines its <Name>Reader() and a line in GEMMD_CHECKPOINT_READERS.
// Errors  InvalidArgument BAD_CHECKPOINT; Unimplemented UNSUPPORTED_FORMAT; NotFound
//         MODULE_NOT_FOUND for a module that config and tensors agree not to be quantized.
// Threads Pure functions of the files.
#ifndef GEMMD_CORE_CHECKPOINT_READER_H_
#define GEMMD_CORE_CHECKPOINT_READER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/json.h"
#include "core/checkpoint/module_tensors.h"
#include "core/checkpoint/reading_options.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

struct CheckpointReader {
  const char* quant_method;
  // Tensors of quantized modules, by what follows the module. Beside the codes' own those whose lack of codes must
  // be an error, not a module that goes missing; longest first.
  std::vector<const char*> markers;
  // The module's weights. `config` is quantization_config. Reads every tensor the format defines.
  absl::StatusOr<StandardTensor> (*read)(const Json& config, const ReadingOptions& options, ModuleTensors& tensors);
  // What there is to say of a module that `read` takes (reading_notes.h); empty: nothing. nullptr: never anything.
  absl::StatusOr<std::string> (*note)(const Json& config, const ReadingOptions& options,
                                      ModuleTensors& tensors) = nullptr;
};

#define GEMMD_CHECKPOINT_READERS(READER) \
  READER(Gptq)                           \
  READER(Awq)                            \
  READER(CompressedTensors)              \
  READER(Fp8)                            \
  READER(Mxfp4)                          \
  READER(ModelOpt)                       \
  READER(Bitnet)                         \
  READER(AutoRound)                      \
  READER(Quark)

#define GEMMD_DECLARE_READER(name) CheckpointReader name##Reader();
GEMMD_CHECKPOINT_READERS(GEMMD_DECLARE_READER)
#undef GEMMD_DECLARE_READER

// The reader for the config of `files`; nullptr: the checkpoint is not quantized.
absl::StatusOr<const CheckpointReader*> ReaderOf(const CheckpointFiles& files);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_READER_H_

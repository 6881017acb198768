// What    What is in a checkpoint directory, read as the daemon would read it: every quantized module with
//         its scheme, sizes and devices, and everything that stops one from being loaded.
// Memory  One module at a time.
// Errors  NotFound CHECKPOINT_NOT_FOUND: no such directory, or no checkpoint in it. Everything else that
//         is wrong with the files is a Problem of the report.
// Threads Pure functions of the files.
#ifndef GEMMD_CLIENT_GEMMCTL_INSPECT_CHECKPOINT_H_
#define GEMMD_CLIENT_GEMMCTL_INSPECT_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/gemmctl/inspect_devices.h"
#include "core/checkpoint/reading_options.h"
#include "core/quant/quantize_layer.h"
#include "core/quant/standard_tensor.h"

namespace gemmd::gemmctl {

// What is wrong, in the reader's words: they name expected and got.
struct Problem {
  std::string file;  // empty: about none, as the next two
  std::string module;
  std::string tensor;
  std::string reason;  // BAD_CHECKPOINT, UNSUPPORTED_FORMAT, ...
  std::string message;
};

struct ModuleReport {
  std::string module;
  std::string exporter;       // "gptq", ... or "unquantized"
  StandardTensor facts;       // all but the buffers, which are empty
  uint64_t stored_bytes = 0;  // in the files
  uint64_t layer_bytes = 0;   // as a StandardTensor
  int64_t not_finite_weights = 0;  // NaN or infinite
  std::optional<QuantizedHere> quantized;  // for the report: what follows from the facts is of the result
  std::vector<DeviceSupport> devices;
};

struct CheckpointReport {
  std::string directory;
  std::string exporter;  // quant_method and, where the config names one, the format in brackets
  uint64_t files = 0;    // that hold tensors
  uint64_t tensors = 0;
  uint64_t tensor_bytes = 0;
  uint64_t quantized_modules = 0;     // good and bad
  std::vector<ModuleReport> modules;  // good ones, by name
  std::vector<std::string> notes;     // parts that stay single when modules are fused, and why; groups that are cut;
                                      // what the files hold and nobody reads
  std::vector<Problem> problems;
};

// Called before each module with (modules done, modules in all, name).
using InspectProgress = std::function<void(uint64_t, uint64_t, const std::string&)>;

// With a target, a good one (CheckTarget), as if every module were quantized to it; those that cannot be are problems.
absl::StatusOr<CheckpointReport> InspectCheckpoint(const std::string& directory, const InspectProgress& progress,
                                                   const std::optional<QuantizeTarget>& quantize = std::nullopt,
                                                   const ReadingOptions& reading = {});

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_INSPECT_CHECKPOINT_H_

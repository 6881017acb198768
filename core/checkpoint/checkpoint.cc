#include "core/checkpoint/checkpoint.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/checkpoint/checkpoint_files.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_tensors.h"
#include "core/checkpoint/reader.h"
#include "core/checkpoint/reader_parts.h"

namespace gemmd {
namespace {

const std::vector<CheckpointReader>& Readers() {
#define GEMMD_CALL_READER(name) name##Reader(),
  static const auto* const kReaders =
      new std::vector<CheckpointReader>{GEMMD_CHECKPOINT_READERS(GEMMD_CALL_READER)};
#undef GEMMD_CALL_READER
  return *kReaders;
}

absl::StatusOr<const CheckpointReader*> ReaderOf(const Json& config) {
  GEMMD_ASSIGN_OR_RETURN(const std::string method, NameField(config, {"quant_method"}, ""));
  std::string known;
  for (const CheckpointReader& reader : Readers()) {
    if (method == reader.quant_method) return &reader;
    absl::StrAppend(&known, known.empty() ? "" : ", ", reader.quant_method);
  }
  return UnsupportedFormat(
      absl::StrCat("quant_method \"", method, "\" is not read: ", known, " are"));
}

// Scales of a quantized key-value cache, which some exporters put beside the projections.
void IgnoreCacheScales(ModuleTensors& tensors) {
  tensors.Ignore(".k_scale");
  tensors.Ignore(".v_scale");
}

bool IsPlainLinear(const ModuleTensors& tensors) {
  const TensorInfo* weight = tensors.Find(".weight");
  return weight != nullptr && weight->shape.size() == 2;
}

}  // namespace

absl::StatusOr<CheckpointLayer> ReadLayer(const std::filesystem::path& directory,
                                          const std::string& module,
                                          const ProgressFunction& progress,
                                          const std::vector<std::filesystem::path>& roots) {
  GEMMD_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointFiles> files,
                         CheckpointFiles::Open(directory, roots));
  GEMMD_ASSIGN_OR_RETURN(const CheckpointReader* const reader,
                         ReaderOf(files->quantization_config()));
  GEMMD_ASSIGN_OR_RETURN(ModuleTensors tensors, ModuleTensors::Open(*files, module, progress));
  IgnoreCacheScales(tensors);
  std::string format = reader->quant_method;
  auto tensor = reader->read(files->quantization_config(), tensors);
  if (ReasonOf(tensor.status()) == "MODULE_NOT_FOUND" && IsPlainLinear(tensors)) {
    format = "unquantized";
    tensor = ReadUnquantized(tensors);
  }
  if (!tensor.ok()) return std::move(tensor).status();
  GEMMD_RETURN_IF_ERROR(tensors.RejectOthers());
  const absl::Status valid = Validate(*tensor);
  if (!valid.ok()) return tensors.Bad(valid.message());
  return CheckpointLayer{*std::move(tensor), std::move(format)};
}

absl::StatusOr<std::vector<std::string>> ListModules(
    const std::filesystem::path& directory, const std::vector<std::filesystem::path>& roots) {
  GEMMD_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointFiles> files,
                         CheckpointFiles::Open(directory, roots));
  GEMMD_ASSIGN_OR_RETURN(const CheckpointReader* const reader,
                         ReaderOf(files->quantization_config()));
  std::set<std::string> modules;
  for (const auto& [name, shard] : files->index()) {
    for (const char* marker : reader->markers) {
      absl::string_view module = name;
      if (!absl::ConsumeSuffix(&module, marker)) continue;
      modules.emplace(module);
      break;  // markers come longest first
    }
  }
  return std::vector<std::string>(modules.begin(), modules.end());
}

}  // namespace gemmd

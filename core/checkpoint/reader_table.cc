// What    The reader of a checkpoint, by the quant_method of its config.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint_files.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/reader.h"

namespace gemmd {
namespace {

const std::vector<CheckpointReader>& Readers() {
#define GEMMD_CALL_READER(name) name##Reader(),
  static const auto* const kReaders =
      new std::vector<CheckpointReader>{GEMMD_CHECKPOINT_READERS(GEMMD_CALL_READER)};
#undef GEMMD_CALL_READER
  return *kReaders;
}

}  // namespace

absl::StatusOr<const CheckpointReader*> ReaderOf(const CheckpointFiles& files) {
  const Json& config = files.quantization_config();
  if (config.is_null()) return nullptr;
  const auto method = NameField(config, {"quant_method"}, "");
  if (!method.ok()) return Annotate(method.status(), files.config_file());
  std::string known;
  for (const CheckpointReader& reader : Readers()) {
    if (*method == reader.quant_method) return &reader;
    absl::StrAppend(&known, known.empty() ? "" : ", ", reader.quant_method);
  }
  return UnsupportedFormat(absl::StrCat(files.config_file(), ": quant_method \"", *method,
                                        "\" is not read: ", known, " are"));
}

}  // namespace gemmd

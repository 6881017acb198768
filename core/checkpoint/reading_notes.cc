#include "core/checkpoint/reading_notes.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint_files.h"
#include "core/checkpoint/composite.h"
#include "core/checkpoint/module_tensors.h"
#include "core/checkpoint/reader.h"

namespace gemmd {
namespace {

// The modules with tensors of their own that are read for `planned`.
std::vector<std::string> StoredModules(const CheckpointFiles& files, const PlannedModule& planned) {
  if (ModuleTensors::Open(files, planned.module, nullptr).ok()) return {planned.module};
  const auto parts = FindParts(files.index(), planned.module);
  std::vector<std::string> stored;
  if (!parts.ok() || !*parts) return stored;
  const absl::StatusOr<Range> experts = PartsOf(planned.slice.experts, **parts);
  if (!experts.ok()) return stored;
  for (int64_t expert = experts->begin; expert < experts->end; ++expert) {
    const std::vector<std::string>& rows = (**parts)[static_cast<size_t>(expert)];
    stored.insert(stored.end(), rows.begin(), rows.end());
  }
  return stored;
}

// Empty: nothing, or nothing that can be read.
std::string NoteOf(const CheckpointReader& reader, const CheckpointFiles& files, const ReadingOptions& options,
                   const std::string& module) {
  absl::StatusOr<ModuleTensors> tensors = ModuleTensors::Open(files, module, nullptr);
  if (!tensors.ok()) return "";
  return reader.note(files.quantization_config(), options, *tensors).value_or("");
}

}  // namespace

std::vector<std::string> ReadingNotes(const Checkpoint& checkpoint, const std::vector<PlannedModule>& modules,
                                      const ReadingOptions& options) {
  constexpr size_t kMostNotes = 8;
  const CheckpointFiles& files = checkpoint.files();
  const absl::StatusOr<const CheckpointReader*> reader = ReaderOf(files);
  std::vector<std::string> notes;
  if (!reader.ok() || *reader == nullptr || (*reader)->note == nullptr) return notes;
  size_t more = 0;
  for (const PlannedModule& module : modules) {
    for (const std::string& stored : StoredModules(files, module)) {
      std::string note = NoteOf(**reader, files, options, stored);
      if (note.empty()) continue;
      if (notes.size() < kMostNotes) {
        notes.push_back(std::move(note));
      } else {
        ++more;
      }
    }
  }
  if (more > 0) notes.push_back(absl::StrCat("and so in ", more, more == 1 ? " more module" : " more modules"));
  return notes;
}

}  // namespace gemmd

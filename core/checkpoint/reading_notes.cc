#include "core/checkpoint/reading_notes.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint_files.h"
#include "core/checkpoint/composite.h"
#include "core/checkpoint/module_tensors.h"
#include "core/checkpoint/reader.h"

namespace gemmd {
namespace {

// The modules with tensors of their own that `module` is made of.
std::vector<std::string> StoredModules(const CheckpointFiles& files, const std::string& module) {
  if (ModuleTensors::Open(files, module, nullptr).ok()) return {module};
  const auto parts = FindParts(files.index(), module);
  std::vector<std::string> stored;
  if (!parts.ok() || !*parts) return stored;
  for (const std::vector<std::string>& rows : **parts) stored.insert(stored.end(), rows.begin(), rows.end());
  return stored;
}

// Empty: nothing, or nothing that can be read.
std::string NoteOf(const CheckpointReader& reader, const CheckpointFiles& files, const std::string& module) {
  absl::StatusOr<ModuleTensors> tensors = ModuleTensors::Open(files, module, nullptr);
  if (!tensors.ok()) return "";
  return reader.note(files.quantization_config(), *tensors).value_or("");
}

}  // namespace

std::vector<std::string> ReadingNotes(const Checkpoint& checkpoint, const std::vector<std::string>& modules) {
  constexpr size_t kMostNotes = 8;
  const CheckpointFiles& files = checkpoint.files();
  const absl::StatusOr<const CheckpointReader*> reader = ReaderOf(files);
  std::vector<std::string> notes;
  if (!reader.ok() || *reader == nullptr || (*reader)->note == nullptr) return notes;
  size_t more = 0;
  for (const std::string& module : modules) {
    for (const std::string& stored : StoredModules(files, module)) {
      std::string note = NoteOf(**reader, files, stored);
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

#include "core/checkpoint/unread_notes.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gemmd {

std::string SomeOf(const std::vector<std::string>& names) {
  constexpr size_t kMostNamed = 8;
  const size_t named = std::min(names.size(), kMostNamed);
  std::string text = absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(named), ", ");
  if (names.size() > named) absl::StrAppend(&text, " and ", names.size() - named, " more");
  return text;
}

std::vector<std::string> NotesOfUnread(const CheckpointFiles& files) {
  const char* const why = files.has_index() ? "model.safetensors.index.json does not name them" : "beside model.safetensors";
  std::vector<std::string> notes;
  const std::vector<std::string> unlisted = files.UnlistedFiles();
  if (!unlisted.empty()) {
    notes.push_back(absl::StrCat("files that are not read, ", why, ": ", SomeOf(unlisted)));
  }
  std::vector<std::string> tensors;
  for (const auto& [shard, file] : files.Shards()) {
    if (file == nullptr) continue;
    for (const auto& [name, info] : file->tensors()) {
      if (files.index().count(name) == 0) tensors.push_back(absl::StrCat(name, " in ", shard));
    }
  }
  if (!tensors.empty()) {
    notes.push_back(absl::StrCat("tensors that are not read, ", why, ": ", SomeOf(tensors)));
  }
  return notes;
}

}  // namespace gemmd

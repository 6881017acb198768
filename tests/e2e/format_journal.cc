#include "tests/e2e/format_journal.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gemmd::e2e {
namespace {

using nlohmann::json;

std::string ResultsOf(const json& rows) {
  return absl::StrJoin(rows, ", ", [](std::string* out, const json& row) {
    absl::StrAppend(out, row.value("result", ""));
  });
}

}  // namespace

FormatJournal::FormatJournal(const std::string& path, const std::string& part, size_t count)
    : path_(path), part_(part), count_(count) {
  if (path.empty()) return;
  std::ifstream earlier(path);
  for (std::string text; std::getline(earlier, text);) {
    const json line = json::parse(text, nullptr, false);  // the last one may be cut
    if (!line.is_object() || line.value("part", "") != part) continue;
    if (line.value("as_expected", false)) done_.insert(line.value("key", ""));
  }
  const MutexLock lock(mutex_);
  file_.open(path, std::ios::app);
  told_ = done_.size();
}

void FormatJournal::SetDevice(const json& device) {
  const MutexLock lock(mutex_);
  Append({{"device", device}});
}

void FormatJournal::Add(size_t index, const std::string& key, const json& rows, bool as_expected) {
  const MutexLock lock(mutex_);
  Append({{"part", part_},
          {"index", index},
          {"count", count_},
          {"key", key},
          {"rows", rows},
          {"as_expected", as_expected}});
  if (path_.empty()) return;
  std::cerr << absl::StrCat("[", ++told_, "/", count_, "] ", part_, " ", key, ": ", ResultsOf(rows),
                            as_expected ? "" : "  NOT AS EXPECTED", "\n");
}

void FormatJournal::Append(const json& line) {
  if (path_.empty()) return;
  file_ << line.dump() << std::endl;  // a killed run loses nothing that was told
}

}  // namespace gemmd::e2e

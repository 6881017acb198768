#include "core/checkpoint/unindexed_files.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/checkpoint/errors.h"

namespace gemmd {
namespace {

constexpr char kExtension[] = ".safetensors";
constexpr int64_t kMostShards = 1 << 16;

// One file of a numbered set: "model-00002-of-00003.safetensors" is number 2 of 3 of "model-", in five digits.
struct NumberedFile {
  std::string stem;
  size_t digits;
  int64_t number;
  int64_t count;
};

std::optional<NumberedFile> NumberedFileOf(absl::string_view name) {
  constexpr absl::string_view kOf = "-of-";
  if (!absl::ConsumeSuffix(&name, kExtension)) return std::nullopt;
  const size_t of = name.rfind(kOf);
  if (of == absl::string_view::npos) return std::nullopt;
  const absl::string_view count = name.substr(of + kOf.size());
  const absl::string_view before = name.substr(0, of);
  const size_t digits = count.size();
  if (digits == 0 || before.size() < digits) return std::nullopt;
  const absl::string_view number = before.substr(before.size() - digits);
  NumberedFile file{std::string(before.substr(0, before.size() - digits)), digits, 0, 0};
  if (!absl::SimpleAtoi(number, &file.number) || !absl::SimpleAtoi(count, &file.count))
    return std::nullopt;
  if (file.number < 1 || file.number > file.count || file.count > kMostShards) return std::nullopt;
  return file;
}

std::string Padded(int64_t number, size_t digits) {
  const std::string text = absl::StrCat(number);
  return text.size() >= digits ? text : std::string(digits - text.size(), '0') + text;
}

std::vector<std::string> MissingOf(const std::vector<std::string>& present) {
  using Set = std::pair<std::string, std::string>;  // stem, and count as it is written
  std::map<Set, std::set<int64_t>> sets;
  for (const std::string& name : present) {
    if (const auto file = NumberedFileOf(name)) {
      sets[{file->stem, Padded(file->count, file->digits)}].insert(file->number);
    }
  }
  std::vector<std::string> missing;
  for (const auto& [set, numbers] : sets) {
    const auto& [stem, count] = set;
    int64_t last = 0;
    if (!absl::SimpleAtoi(count, &last)) continue;
    for (int64_t number = 1; number <= last; ++number) {
      if (numbers.count(number) > 0) continue;
      missing.push_back(
          absl::StrCat(stem, Padded(number, count.size()), "-of-", count, kExtension));
    }
  }
  return missing;
}

}  // namespace

absl::StatusOr<UnindexedFiles> FindUnindexedFiles(const std::filesystem::path& directory) {
  UnindexedFiles files;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool is_hidden = name[0] == '.';  // what systems and tools put beside a file: "._a.safetensors"
    if (!is_hidden && entry->path().extension() == kExtension) files.present.push_back(name);
  }
  if (error) return BadCheckpoint(absl::StrCat(directory.string(), ": ", error.message()));
  std::sort(files.present.begin(), files.present.end());
  files.missing = MissingOf(files.present);
  return files;
}

}  // namespace gemmd

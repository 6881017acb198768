#include "kernels/jit/quarantine.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace gemmd::jit {
namespace {

constexpr absl::string_view kFirstLine = "gemmd quarantine 1";
constexpr size_t kMaxWhy = 4 << 10;

std::string OneLine(absl::string_view text) { return absl::StrReplaceAll(text, {{"\n", " "}}); }

}  // namespace

std::string EncodeQuarantine(const QuarantineRecord& record) {
  return absl::StrCat(kFirstLine, "\n", record.driver, "\n", OneLine(record.architecture), "\n",
                      OneLine(record.compiler), "\n", OneLine(record.label), "\n",
                      absl::string_view(record.why).substr(0, kMaxWhy), "\n");
}

std::optional<QuarantineRecord> DecodeQuarantine(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, absl::MaxSplits('\n', 5));
  QuarantineRecord record;
  if (lines.size() != 6 || lines[0] != kFirstLine || lines[5].empty() || lines[5].back() != '\n' ||
      !absl::SimpleAtoi(lines[1], &record.driver)) {
    return std::nullopt;
  }
  record.architecture = std::string(lines[2]);
  record.compiler = std::string(lines[3]);
  record.label = std::string(lines[4]);
  record.why = std::string(lines[5].substr(0, lines[5].size() - 1));
  return record;
}

void Quarantine::Add(const CompiledKernel& kernel, int driver, absl::string_view why) {
  QuarantineRecord record{driver, kernel.architecture, kernel.compiler, kernel.label,
                          std::string(why)};
  if (disk_ != nullptr) disk_->WriteQuarantine(kernel.key, EncodeQuarantine(record));
  MutexLock lock(mutex_);
  records_[kernel.key] = std::move(record);
}

std::optional<QuarantineRecord> Quarantine::Find(const std::string& key, int driver) const {
  std::optional<QuarantineRecord> record;
  {
    MutexLock lock(mutex_);
    if (const auto found = records_.find(key); found != records_.end()) record = found->second;
  }
  if (!record.has_value() && disk_ != nullptr) {
    record = DecodeQuarantine(disk_->ReadQuarantine(key));
  }
  if (!record.has_value() || record->driver != driver) return std::nullopt;
  return record;
}

void Quarantine::ForgetMemory() {
  MutexLock lock(mutex_);
  records_.clear();
}

}  // namespace gemmd::jit

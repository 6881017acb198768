#include "kernels/jit/use_record.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/jit/files.h"
#include "kernels/jit/kernel_key.h"

namespace gemmd::jit {
namespace {

constexpr char kUses[] = "uses";
constexpr uint64_t kMaxRecordBytes = uint64_t{64} << 20;
constexpr size_t kLinesPerKey = 8;        // a record with more is rewritten
constexpr size_t kSmallRecord = 1 << 10;  // lines that are never worth it

// Whole lines that hold a key; a line cut off by a crash is none.
std::vector<std::string> KeysIn(const std::filesystem::path& path) {
  const File file(path, O_RDONLY | O_NONBLOCK);
  const std::optional<std::string> text = ReadWhole(file, kMaxRecordBytes);
  std::vector<std::string> keys;
  if (!text.has_value()) return keys;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    std::string key(line);
    if (IsKey(key)) keys.push_back(std::move(key));
  }
  return keys;
}

// Whether the process that wrote `list` is gone.
bool IsOrphan(const std::filesystem::path& list) {
  const File file(list, O_RDONLY | O_NONBLOCK);
  return file.ok() && flock(file.get(), LOCK_SH | LOCK_NB) == 0;
}

}  // namespace

void UnwrittenLines::Add(const std::string& key) {
  std::erase(keys_, key);
  keys_.push_back(key);
}

void UnwrittenLines::AppendTo(const FileCalls& files, int fd, const std::filesystem::path& path) {
  if (keys_.empty()) return;
  // A write that failed may have left the start of a line.
  std::string lines = problem_.empty() ? "" : "\n";
  for (const std::string& key : keys_) absl::StrAppend(&lines, key, "\n");
  if (fd >= 0 && WriteAll(files, fd, lines)) {
    keys_.clear();
    problem_.clear();
  } else {
    problem_ = absl::StrCat("write ", path.string(), ": ", ErrnoText());
  }
}

UseRecord::UseRecord(std::filesystem::path directory, const FileCalls& files)
    : directory_(std::move(directory)), files_(files) {}

UseRecord::~UseRecord() {
  MutexLock lock(mutex_);
  for (const std::string& key : loaded_) uses_.Add(key);
  AppendUses();
  if (list_fd_ < 0) return;
  unlink(list_path_.c_str());
  close(list_fd_);
}

void UseRecord::Used(const std::string& key) {
  MutexLock lock(mutex_);
  uses_.Add(key);
  AppendUses();
}

void UseRecord::AppendUses() {
  if (uses_.keys().empty()) return;
  const std::filesystem::path path = directory_ / kUses;
  const File file(path, O_WRONLY | O_APPEND | O_CREAT, 0600, files_);
  uses_.AppendTo(files_, file.get(), path);
}

std::string UseRecord::problem() const {
  MutexLock lock(mutex_);
  return uses_.problem().empty() ? list_.problem() : uses_.problem();
}

// Another process number 1 of another container may share the directory: a name that exists is left
// alone. A file that lost its name before it was locked was taken for a dead process's.
void UseRecord::OpenList() {
  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 64 && list_fd_ < 0; ++attempt) {
    list_path_ = directory_ / absl::StrCat(getpid(), "-", counter.fetch_add(1), ".loaded");
    const int fd =
        files_.open(list_path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST) return;
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && SameFile(fd, list_path_)) {
      list_fd_ = fd;
    } else {
      close(fd);
    }
  }
}

void UseRecord::Loaded(const std::string& key) {
  MutexLock lock(mutex_);
  if (loaded_.insert(key).second) list_.Add(key);
  AppendLoaded();
}

void UseRecord::AppendLoaded() {
  if (list_.keys().empty()) return;
  if (list_fd_ < 0) OpenList();
  list_.AppendTo(files_, list_fd_, list_path_);
}

std::map<std::string, uint64_t> UseRecord::Order() const {
  std::map<std::string, uint64_t> order;
  uint64_t position = 0;
  for (std::string& key : KeysIn(directory_ / kUses)) order[std::move(key)] = ++position;
  MutexLock lock(mutex_);
  for (const std::string& key : uses_.keys()) order[key] = ++position;
  return order;
}

std::set<std::string> UseRecord::AllLoaded() const {
  std::set<std::string> loaded;
  std::filesystem::path own;
  {
    MutexLock lock(mutex_);
    loaded = loaded_;
    own = list_path_;
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
    if (entry.path().extension() != ".loaded" || entry.path() == own) continue;
    if (IsOrphan(entry.path())) {
      RemoveIfUnowned(entry.path());
    } else {
      for (std::string& key : KeysIn(entry.path())) loaded.insert(std::move(key));
    }
  }
  return loaded;
}

void UseRecord::Compact(const std::set<std::string>& existing) const {
  const std::vector<std::string> keys = KeysIn(directory_ / kUses);
  if (keys.size() < kSmallRecord || keys.size() < kLinesPerKey * existing.size()) return;
  std::map<std::string, size_t> last;
  for (size_t i = 0; i < keys.size(); ++i) last[keys[i]] = i;
  std::string lines;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (last[keys[i]] == i && existing.count(keys[i]) != 0) absl::StrAppend(&lines, keys[i], "\n");
  }
  (void)Publish(files_, directory_, kUses, lines);
}

}  // namespace gemmd::jit

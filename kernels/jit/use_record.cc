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

// One write per call, so that lines of several processes do not mix.
void Append(int fd, const std::string& lines) { (void)WriteAll(SystemFileCalls(), fd, lines); }

void AppendUses(const std::filesystem::path& directory, const std::string& lines) {
  const File file(directory / kUses, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (file.ok()) Append(file.get(), lines);
}

// Whether the process that wrote `list` is gone.
bool IsOrphan(const std::filesystem::path& list) {
  const File file(list, O_RDONLY | O_NONBLOCK);
  return file.ok() && flock(file.get(), LOCK_SH | LOCK_NB) == 0;
}

}  // namespace

UseRecord::UseRecord(std::filesystem::path directory) : directory_(std::move(directory)) {}

UseRecord::~UseRecord() {
  MutexLock lock(mutex_);
  if (list_fd_ < 0) return;
  std::string lines;
  for (const std::string& key : loaded_) absl::StrAppend(&lines, key, "\n");
  if (!lines.empty()) AppendUses(directory_, lines);
  unlink(list_path_.c_str());
  close(list_fd_);
}

void UseRecord::Used(const std::string& key) { AppendUses(directory_, key + "\n"); }

// Another process number 1 of another container may share the directory: a name that exists is left
// alone. A file that lost its name before it was locked was taken for a dead process's.
void UseRecord::OpenList() {
  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 64 && list_fd_ < 0; ++attempt) {
    list_path_ = directory_ / absl::StrCat(getpid(), "-", counter.fetch_add(1), ".loaded");
    const int fd = open(list_path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
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
  if (!loaded_.insert(key).second) return;
  if (list_fd_ < 0) OpenList();
  if (list_fd_ >= 0) Append(list_fd_, key + "\n");
}

std::map<std::string, uint64_t> UseRecord::Order() const {
  std::map<std::string, uint64_t> order;
  uint64_t position = 0;
  for (std::string& key : KeysIn(directory_ / kUses)) order[std::move(key)] = ++position;
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
  (void)Publish(SystemFileCalls(), directory_, kUses, lines);
}

}  // namespace gemmd::jit

#include "kernels/jit/disk_tier.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "kernels/jit/cache_entry.h"
#include "kernels/jit/eviction.h"
#include "kernels/jit/files.h"

namespace gemmd::jit {
namespace {

constexpr uint64_t kMaxEntryBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxQuarantineBytes = uint64_t{16} << 10;
constexpr absl::Duration kCountPause = absl::Seconds(1);
constexpr char kEntryExtension[] = ".kernel";
constexpr char kQuarantineExtension[] = ".quarantine";

absl::Status BadDirectory(const std::filesystem::path& directory, absl::string_view why) {
  return Error(absl::StatusCode::kFailedPrecondition, "CACHE_DIRECTORY",
               absl::StrCat("kernel cache ", directory.string(), " is not used: ", why));
}

absl::Status Unreadable(absl::string_view what) {
  return Error(absl::StatusCode::kDataLoss, "CACHE_ENTRY_DAMAGED", what);
}

absl::Status CheckDirectory(const std::filesystem::path& directory) {
  struct stat info;
  if (stat(directory.c_str(), &info) != 0) return BadDirectory(directory, ErrnoText());
  if (!S_ISDIR(info.st_mode)) return BadDirectory(directory, "no directory");
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return BadDirectory(directory, absl::StrCat("it belongs to user ", info.st_uid));
  }
  if ((info.st_mode & S_IWOTH) != 0) return BadDirectory(directory, "every user may write to it");
  if (access(directory.c_str(), R_OK | X_OK) != 0) return BadDirectory(directory, ErrnoText());
  return absl::OkStatus();
}

absl::Status MakeDirectory(const std::filesystem::path& directory) {
  std::error_code error;
  if (std::filesystem::exists(directory, error)) return absl::OkStatus();
  std::filesystem::create_directories(directory.parent_path(), error);
  if (mkdir(directory.c_str(), 0700) == 0) return absl::OkStatus();
  if (errno != EEXIST) return BadDirectory(directory, ErrnoText());
  if (std::filesystem::is_symlink(directory, error) && !std::filesystem::exists(directory, error)) {
    return BadDirectory(directory, absl::StrCat("a symbolic link to ",
                                                std::filesystem::read_symlink(directory, error).string(),
                                                ", which is not there"));
  }
  return absl::OkStatus();
}

std::string Where(const DiskOptions& options) {
  return absl::StrCat("kernel cache ", options.directory.string());
}

std::string DescribeNetwork(const DiskOptions& options) {
  const char* name = NetworkFileSystemName(options.files->file_system_type(options.directory.c_str()));
  if (name == nullptr) return "";
  return absl::StrCat(Where(options), " lies on ", name,
                      ", where machines see each other's files late and locks may not hold: use a "
                      "local directory");
}

std::string DescribeReadOnly(const DiskOptions& options) {
  if (access(options.directory.c_str(), W_OK) == 0) return "";
  return absl::StrCat(Where(options), " takes no new kernels: ", ErrnoText());
}

// Of what was just tried: nothing is there, or it may not be read now.
absl::Status CannotOpen(const std::filesystem::path& path) {
  const bool missing = errno == ENOENT || errno == ENOTDIR;
  const std::string text = absl::StrCat(ErrnoText(), ": open ", path.string());  // a list may cut its end off
  return missing ? absl::NotFoundError(text) : Error(absl::StatusCode::kUnavailable, "CACHE_READ", text);
}

absl::Status CannotRemove(const std::filesystem::path& path, absl::string_view why) {
  return Error(absl::StatusCode::kUnavailable, "CACHE_WRITE",
               absl::StrCat(why, ": remove ", path.string()));
}

// The key of a file name with `extension`, or empty.
std::string KeyOfName(const std::filesystem::path& path, const char* extension) {
  if (path.extension() != extension) return "";
  const std::string key = path.stem().string();
  return IsKey(key) ? key : "";
}

uint64_t SizeOf(const std::filesystem::path& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DiskTier>> DiskTier::Open(const DiskOptions& options) {
  GEMMD_RETURN_IF_ERROR(MakeDirectory(options.directory));
  GEMMD_RETURN_IF_ERROR(CheckDirectory(options.directory));
  std::unique_ptr<DiskTier> tier(new DiskTier(options));
  tier->network_ = DescribeNetwork(options);
  tier->RemoveAbandonedFiles();
  (void)tier->bytes();  // counts
  MutexLock lock(tier->mutex_);
  tier->write_problem_ = DescribeReadOnly(options);
  return tier;
}

std::string DiskTier::warning() const {
  std::vector<std::string> problems;
  {
    MutexLock lock(mutex_);
    problems = {write_problem_, network_, uses_.problem()};
  }
  std::erase(problems, "");
  return absl::StrJoin(problems, "; ");
}

std::filesystem::path DiskTier::EntryPath(const std::string& key) const {
  return options_.directory / (key + kEntryExtension);
}

std::filesystem::path DiskTier::QuarantinePath(const std::string& key) const {
  return options_.directory / (key + kQuarantineExtension);
}

void DiskTier::RemoveAbandonedFiles() const {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options_.directory, error)) {
    const auto extension = entry.path().extension();
    if (extension == ".tmp" || extension == ".lock" || extension == ".loaded") {
      RemoveIfUnowned(entry.path());
    }
  }
}

absl::StatusOr<std::string> DiskTier::ReadFile(const std::string& key) const {
  const std::filesystem::path path = EntryPath(key);
  const File file(path, O_RDONLY | O_NONBLOCK);
  // A link in an entry's place opens for nobody (ELOOP): it is nothing that this cache wrote.
  if (!file.ok() && errno != ELOOP) return CannotOpen(path);
  std::optional<std::string> bytes = ReadWhole(file, kMaxEntryBytes);
  if (!bytes.has_value()) return Unreadable("no readable file of a sane size");
  return *std::move(bytes);
}

absl::StatusOr<std::string> DiskTier::ReadBytes(const std::string& key) const {
  GEMMD_ASSIGN_OR_RETURN(std::string bytes, ReadFile(key));
  GEMMD_RETURN_IF_ERROR(DecodeEntry(bytes, key).status());
  return bytes;
}

absl::StatusOr<CompiledKernel> DiskTier::Read(const std::string& key) const {
  GEMMD_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(key));
  return DecodeEntry(bytes, key);
}

absl::StatusOr<CompiledKernel> DiskTier::ReadFacts(const std::string& key) const {
  const File file(EntryPath(key), O_RDONLY | O_NONBLOCK);
  if (!file.ok() && errno != ELOOP) return CannotOpen(EntryPath(key));
  const std::optional<std::string> front = ReadFront(file, kFrontBytes);
  if (!front.has_value()) return Unreadable("no readable file");
  return DecodeFacts(*front, SizeOf(EntryPath(key)), key);
}

absl::Status DiskTier::Write(const CompiledKernel& kernel) {
  return WriteBytes(kernel.key, EncodeEntry(kernel));
}

absl::Status DiskTier::WriteBytes(const std::string& key, absl::string_view bytes) {
  const uint64_t before = SizeOf(EntryPath(key));
  absl::Status written =
      Publish(*options_.files, options_.directory, key + kEntryExtension, bytes);
  Wrote(written);
  if (!written.ok()) return written;
  MutexLock lock(mutex_);
  bytes_ += bytes.size();
  bytes_ -= std::min(bytes_, before);
  return absl::OkStatus();
}

void DiskTier::Wrote(const absl::Status& status) {
  MutexLock lock(mutex_);
  write_problem_ = std::string(status.message());
}

absl::Status DiskTier::Drop(const std::string& key) {
  const uint64_t size = SizeOf(EntryPath(key));
  std::error_code error;
  std::filesystem::remove_all(EntryPath(key), error);
  if (error) return CannotRemove(EntryPath(key), error.message());
  MutexLock lock(mutex_);
  bytes_ -= std::min(bytes_, size);
  return absl::OkStatus();
}

bool DiskTier::Has(const std::string& key) const {
  struct stat info;
  return lstat(EntryPath(key).c_str(), &info) == 0;
}

std::string DiskTier::ReadQuarantine(const std::string& key) const {
  const File file(QuarantinePath(key), O_RDONLY | O_NONBLOCK);
  return ReadWhole(file, kMaxQuarantineBytes).value_or("");
}

void DiskTier::WriteQuarantine(const std::string& key, absl::string_view text) {
  (void)Publish(*options_.files, options_.directory, key + kQuarantineExtension, text);
}

absl::Status DiskTier::DropQuarantine(const std::string& key) {
  std::error_code error;
  std::filesystem::remove_all(QuarantinePath(key), error);
  return error ? CannotRemove(QuarantinePath(key), error.message()) : absl::OkStatus();
}

std::vector<std::string> DiskTier::Quarantined() const {
  std::vector<std::string> keys;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(options_.directory, error)) {
    std::string key = KeyOfName(file.path(), kQuarantineExtension);
    if (!key.empty()) keys.push_back(std::move(key));
  }
  return keys;
}

KeyLock DiskTier::TryLock(const std::string& key) const {
  return KeyLock(options_.directory / (key + ".lock"));
}

void DiskTier::Used(const std::string& key, bool keep) {
  if (keep) uses_.Loaded(key);
  uses_.Used(key);
}

absl::Status DiskTier::CheckListable() const {
  std::error_code error;
  const std::filesystem::directory_iterator files(options_.directory, error);
  if (!error) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable, "CACHE_READ",
               absl::StrCat(Where(options_), " cannot be listed: ", error.message()));
}

std::vector<DiskTier::Listed> DiskTier::List() const {
  const std::map<std::string, uint64_t> order = uses_.Order();
  const std::set<std::string> loaded = uses_.AllLoaded();
  std::vector<Listed> entries;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(options_.directory, error)) {
    const std::string key = KeyOfName(file.path(), kEntryExtension);
    if (key.empty()) continue;
    const auto use = order.find(key);
    entries.push_back(
        {key, SizeOf(file.path()), use == order.end() ? 0 : use->second, loaded.count(key) != 0});
  }
  std::sort(entries.begin(), entries.end(), [](const Listed& a, const Listed& b) {
    return a.last_use != b.last_use ? a.last_use > b.last_use : a.key < b.key;
  });
  return entries;
}

uint64_t DiskTier::bytes() const {
  {
    MutexLock lock(mutex_);
    if (absl::Now() < next_count_) return bytes_;
    next_count_ = absl::Now() + kCountPause;  // others take the number of before meanwhile
  }
  uint64_t total = 0;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(options_.directory, error)) {
    if (!KeyOfName(file.path(), kEntryExtension).empty()) total += SizeOf(file.path());
  }
  MutexLock lock(mutex_);
  bytes_ = total;
  return total;
}

DiskTier::Eviction DiskTier::Evict() {
  Eviction eviction;
  if (options_.max_bytes == 0 || bytes() <= options_.max_bytes) return eviction;
  const KeyLock tidy(options_.directory / "tidy.lock");
  if (tidy.state() != KeyLock::State::kHeld) return eviction;
  std::vector<EvictionCandidate> candidates;
  std::map<std::string, uint64_t> sizes;
  uint64_t total = 0;
  for (const Listed& entry : List()) {
    candidates.push_back({entry.key, entry.bytes, entry.last_use, entry.loaded});
    sizes[entry.key] = entry.bytes;
    total += entry.bytes;
  }
  const uint64_t target = EvictionTarget(options_.max_bytes);
  if (total > options_.max_bytes) {
    for (const std::string& key : ChooseVictims(std::move(candidates), target)) {
      if (unlink(EntryPath(key).c_str()) != 0) continue;
      ++eviction.entries;
      eviction.bytes += sizes[key];
      sizes.erase(key);
    }
  }
  std::set<std::string> existing;
  for (const auto& [key, size] : sizes) existing.insert(key);
  uses_.Compact(existing);
  MutexLock lock(mutex_);
  bytes_ = total - eviction.bytes;
  return eviction;
}

}  // namespace gemmd::jit

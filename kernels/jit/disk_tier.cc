#include "kernels/jit/disk_tier.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/jit/cache_entry.h"

namespace gemmd::jit {
namespace {

constexpr off_t kMaxEntryBytes = off_t{256} << 20;

class File {
 public:
  File(const std::filesystem::path& path, int flags, mode_t mode = 0)
      : fd_(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  int fd_;
};

std::string ErrnoText() { return std::strerror(errno); }

absl::Status BadDirectory(const std::filesystem::path& directory, absl::string_view why) {
  return Error(absl::StatusCode::kFailedPrecondition, "CACHE_DIRECTORY",
               absl::StrCat("kernel cache ", directory.string(), " is not used: ", why));
}

absl::Status WriteFailed(const std::filesystem::path& path, absl::string_view step) {
  return Error(absl::StatusCode::kUnavailable, "CACHE_WRITE",
               absl::StrCat(step, " ", path.string(), ": ", ErrnoText()));
}

bool ReadAll(int fd, std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = read(fd, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += count;
  }
  return true;
}

bool WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes.remove_prefix(count);
  }
  return true;
}

// Whether `path` still names the file behind `fd`.
bool SameFile(int fd, const std::filesystem::path& path) {
  struct stat open_file;
  struct stat named;
  return fstat(fd, &open_file) == 0 && lstat(path.c_str(), &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
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

std::filesystem::path TemporaryPath(const std::filesystem::path& directory,
                                    const std::string& key) {
  static std::atomic<unsigned> counter{0};
  return directory / absl::StrCat(key, ".", getpid(), "-", counter.fetch_add(1), ".tmp");
}

absl::Status WriteTemporary(const std::filesystem::path& path, const File& file,
                            absl::string_view bytes) {
  if (!file.ok()) return WriteFailed(path, "create");
  // Tells RemoveAbandonedFiles of other processes that the writer lives.
  if (flock(file.get(), LOCK_EX) != 0) return WriteFailed(path, "lock");
  if (!WriteAll(file.get(), bytes)) return WriteFailed(path, "write");
  if (fsync(file.get()) != 0) return WriteFailed(path, "sync");
  return absl::OkStatus();
}

void RemoveIfUnowned(const std::filesystem::path& path) {
  const File file(path, O_RDONLY | O_NONBLOCK);
  if (file.ok() && flock(file.get(), LOCK_EX | LOCK_NB) == 0 && SameFile(file.get(), path)) {
    unlink(path.c_str());
  }
}

}  // namespace

// The owner unlinks the file before it gives the lock back, so a lock on a file that lost its name
// is worth nothing: take the name's present file instead.
KeyLock::KeyLock(std::filesystem::path path) : path_(std::move(path)) {
  for (int attempt = 0; attempt < 8; ++attempt) {
    const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      state_ = errno == EWOULDBLOCK ? State::kBusy : State::kUnavailable;
      close(fd);
      return;
    }
    if (SameFile(fd, path_)) {
      fd_ = fd;
      state_ = State::kHeld;
      return;
    }
    close(fd);
  }
  state_ = State::kBusy;
}

KeyLock::KeyLock(KeyLock&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), state_(other.state_) {}

KeyLock::~KeyLock() {
  if (fd_ < 0) return;
  unlink(path_.c_str());
  close(fd_);
}

absl::StatusOr<DiskTier> DiskTier::Open(const std::filesystem::path& directory) {
  std::error_code error;
  if (!std::filesystem::exists(directory, error)) {
    std::filesystem::create_directories(directory.parent_path(), error);
    if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
      return BadDirectory(directory, ErrnoText());
    }
  }
  GEMMD_RETURN_IF_ERROR(CheckDirectory(directory));
  DiskTier tier(directory);
  tier.RemoveAbandonedFiles();
  return tier;
}

std::filesystem::path DiskTier::EntryPath(const std::string& key) const {
  return directory_ / (key + ".kernel");
}

void DiskTier::RemoveAbandonedFiles() const {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
    const auto extension = entry.path().extension();
    if (extension == ".tmp" || extension == ".lock") RemoveIfUnowned(entry.path());
  }
}

absl::StatusOr<CompiledKernel> DiskTier::Read(const std::string& key) const {
  const std::filesystem::path path = EntryPath(key);
  const File file(path, O_RDONLY | O_NONBLOCK);
  if (!file.ok()) return absl::NotFoundError(absl::StrCat(path.string(), ": ", ErrnoText()));
  struct stat info;
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > kMaxEntryBytes) {
    return Error(absl::StatusCode::kDataLoss, "CACHE_ENTRY_DAMAGED", "no file of a sane size");
  }
  std::string bytes(info.st_size, '\0');
  if (!ReadAll(file.get(), bytes)) {
    return Error(absl::StatusCode::kDataLoss, "CACHE_ENTRY_DAMAGED", "cannot be read to its end");
  }
  return DecodeEntry(bytes, key);
}

absl::Status DiskTier::Write(const CompiledKernel& kernel) const {
  const std::filesystem::path temporary = TemporaryPath(directory_, kernel.key);
  const File file(temporary, O_WRONLY | O_CREAT | O_EXCL, 0600);
  absl::Status status = WriteTemporary(temporary, file, EncodeEntry(kernel));
  if (status.ok() && rename(temporary.c_str(), EntryPath(kernel.key).c_str()) != 0) {
    status = WriteFailed(temporary, "rename");
  }
  if (!status.ok()) {
    if (file.ok()) unlink(temporary.c_str());
    return status;
  }
  // The name must survive a power cut too. A directory that cannot be synced still holds the entry.
  const File directory(directory_, O_RDONLY | O_DIRECTORY);
  if (directory.ok()) fsync(directory.get());
  return absl::OkStatus();
}

void DiskTier::Drop(const std::string& key) const {
  std::error_code error;
  std::filesystem::remove_all(EntryPath(key), error);
}

KeyLock DiskTier::TryLock(const std::string& key) const {
  return KeyLock(directory_ / (key + ".lock"));
}

}  // namespace gemmd::jit

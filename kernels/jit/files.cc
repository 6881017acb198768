#include "kernels/jit/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd::jit {
namespace {

absl::Status WriteFailed(const std::filesystem::path& path, absl::string_view step) {
  return Error(absl::StatusCode::kUnavailable, "CACHE_WRITE",
               absl::StrCat(step, " ", path.string(), ": ", ErrnoText()));
}

std::filesystem::path TemporaryPath(const std::filesystem::path& directory,
                                    const std::string& name) {
  static std::atomic<unsigned> counter{0};
  return directory / absl::StrCat(name, ".", getpid(), "-", counter.fetch_add(1), ".tmp");
}

absl::Status WriteTemporary(const FileCalls& calls, const std::filesystem::path& path,
                            const File& file, absl::string_view bytes) {
  if (!file.ok()) return WriteFailed(path, "create");
  // Tells other processes, which remove what dead ones left, that the writer lives.
  if (flock(file.get(), LOCK_EX) != 0) return WriteFailed(path, "lock");
  if (!WriteAll(calls, file.get(), bytes)) return WriteFailed(path, "write");
  if (calls.sync(file.get()) != 0) return WriteFailed(path, "sync");
  return absl::OkStatus();
}

std::optional<uint64_t> SizeOfRegular(const File& file) {
  struct stat info;
  if (!file.ok() || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return static_cast<uint64_t>(info.st_size);
}

// The next `size` bytes.
std::optional<std::string> ReadBytes(const File& file, uint64_t size) {
  std::string bytes(size, '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = read(file.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    done += count;
  }
  return bytes;
}

}  // namespace

File::File(const std::filesystem::path& path, int flags, mode_t mode, const FileCalls& calls)
    : fd_(calls.open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode)) {}

File::~File() {
  if (fd_ >= 0) close(fd_);
}

std::string ErrnoText() { return std::strerror(errno); }

std::optional<std::string> ReadWhole(const File& file, uint64_t limit) {
  const std::optional<uint64_t> size = SizeOfRegular(file);
  if (!size.has_value() || *size > limit) return std::nullopt;
  return ReadBytes(file, *size);
}

std::optional<std::string> ReadFront(const File& file, uint64_t limit) {
  const std::optional<uint64_t> size = SizeOfRegular(file);
  if (!size.has_value()) return std::nullopt;
  return ReadBytes(file, std::min(*size, limit));
}

bool WriteAll(const FileCalls& calls, int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = calls.write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes.remove_prefix(count);
  }
  return true;
}

bool SameFile(int fd, const std::filesystem::path& path) {
  struct stat open_file;
  struct stat named;
  return fstat(fd, &open_file) == 0 && lstat(path.c_str(), &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

void RemoveIfUnowned(const std::filesystem::path& path) {
  const File file(path, O_RDONLY | O_NONBLOCK);
  if (file.ok() && flock(file.get(), LOCK_EX | LOCK_NB) == 0 && SameFile(file.get(), path)) {
    unlink(path.c_str());
  }
}

absl::Status Publish(const FileCalls& calls, const std::filesystem::path& directory,
                     const std::string& name, absl::string_view bytes) {
  const std::filesystem::path temporary = TemporaryPath(directory, name);
  const File file(temporary, O_WRONLY | O_CREAT | O_EXCL, 0600, calls);
  absl::Status status = WriteTemporary(calls, temporary, file, bytes);
  if (status.ok() && calls.rename(temporary.c_str(), (directory / name).c_str()) != 0) {
    status = WriteFailed(temporary, "rename");
  }
  if (!status.ok()) {
    if (file.ok()) unlink(temporary.c_str());
    return status;
  }
  // The name must survive a power cut too. A directory that cannot be synced still holds the file.
  const File parent(directory, O_RDONLY | O_DIRECTORY);
  if (parent.ok()) (void)calls.sync(parent.get());
  return absl::OkStatus();
}

}  // namespace gemmd::jit

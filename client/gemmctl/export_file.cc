#include "client/gemmctl/export_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "client/gemmctl/arguments.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

absl::Status Refused(const std::string& path, const char* what) {
  return absl::UnavailableError(absl::StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

absl::Status Exists(const std::string& path) {
  return BadArgument(absl::StrCat("'", path, "' exists; --force replaces it"));
}

// One that was killed may have left a part of the same name.
constexpr int kPartNames = 100;
std::string PartName(const std::string& path, int i) {
  return absl::StrCat(path, ".part-", getpid(), i == 0 ? "" : absl::StrCat("-", i));
}

std::string OwnLink(int descriptor) { return absl::StrCat("/proc/self/fd/", descriptor); }

// A file without a name in `folder`, or -1: not every file system has such, and /proc gives it a name later.
int OpenUnnamed(const std::filesystem::path& folder) {
  const int descriptor = open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  if (descriptor < 0 || access(OwnLink(descriptor).c_str(), F_OK) == 0) return descriptor;
  close(descriptor);
  return -1;
}

// File systems without RENAME_NOREPLACE get the check without the promise.
absl::Status Rename(const std::string& part, const std::string& path, bool replace) {
  const unsigned flags = replace ? 0 : RENAME_NOREPLACE;
  if (renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, path.c_str(), flags) == 0) {
    return absl::OkStatus();
  }
  if (errno == EEXIST) return Exists(path);
  if (errno != EINVAL || replace) return Refused(path, "cannot be created");
  if (std::filesystem::exists(path)) return Exists(path);
  if (std::rename(part.c_str(), path.c_str()) != 0) return Refused(path, "cannot be created");
  return absl::OkStatus();
}

// A renamed file survives a crash once its folder is on disk too.
void SyncFolder(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  (void)fsync(descriptor);
  close(descriptor);
}

}  // namespace

absl::StatusOr<ExportFile> ExportFile::Create(const std::string& path, bool replace) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(status)) {
    return BadArgument(absl::StrCat("'", path, "' is a folder; the name of a file is needed"));
  }
  if (std::filesystem::exists(status) && !replace) return Exists(path);
  const std::filesystem::file_status named = std::filesystem::symlink_status(path, error);
  if (std::filesystem::exists(named) && !std::filesystem::is_regular_file(named)) {
    return BadArgument(absl::StrCat("'", path, "' is no regular file; it is not replaced"));
  }
  std::string part;
  int descriptor = OpenUnnamed(std::filesystem::absolute(path).parent_path());
  if (descriptor >= 0) return ExportFile(path, part, replace, descriptor);
  for (int i = 0; descriptor < 0 && i < kPartNames; ++i) {
    part = PartName(path, i);
    descriptor = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno != EEXIST) break;
  }
  if (descriptor < 0) return Refused(part, "cannot be created");
  return ExportFile(path, part, replace, descriptor);
}

ExportFile::~ExportFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  if (!part_.empty()) unlink(part_.c_str());
}

absl::Status ExportFile::Write(const void* data, size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = write(descriptor_, from, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Refused(path_, "cannot be written");
    from += written;
    size -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

// The file's first name: its own when it may not replace another, since a link never does; else one from
// which it is renamed.
absl::Status ExportFile::NameFirst() {
  const std::string own = OwnLink(descriptor_);
  for (int i = 0; i < kPartNames; ++i) {
    const std::string name = replace_ ? PartName(path_, i) : path_;
    if (linkat(AT_FDCWD, own.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      if (replace_) part_ = name;
      return absl::OkStatus();
    }
    if (errno != EEXIST) return Refused(path_, "cannot be created");
    if (!replace_) return Exists(path_);
  }
  return Refused(path_, "cannot be created");
}

absl::Status ExportFile::Commit() {
  if (fsync(descriptor_) != 0) return Refused(path_, "cannot be written");
  if (part_.empty()) GEMMD_RETURN_IF_ERROR(NameFirst());
  if (!part_.empty()) GEMMD_RETURN_IF_ERROR(Rename(part_, path_, replace_));
  close(std::exchange(descriptor_, -1));
  SyncFolder(path_);
  return absl::OkStatus();
}

}  // namespace gemmd::gemmctl

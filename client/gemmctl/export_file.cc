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
  // One that was killed may have left a part of the same name.
  constexpr int kNames = 100;
  std::string part;
  int descriptor = -1;
  for (int i = 0; descriptor < 0 && i < kNames; ++i) {
    part = absl::StrCat(path, ".part-", getpid(), i == 0 ? "" : absl::StrCat("-", i));
    descriptor = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno != EEXIST) break;
  }
  if (descriptor < 0) return Refused(part, "cannot be created");
  return ExportFile(path, part, replace, descriptor);
}

ExportFile::~ExportFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(part_.c_str());
}

absl::Status ExportFile::Write(const void* data, size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = write(descriptor_, from, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Refused(part_, "cannot be written");
    from += written;
    size -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status ExportFile::Commit() {
  if (fsync(descriptor_) != 0) return Refused(part_, "cannot be written");
  GEMMD_RETURN_IF_ERROR(Rename(part_, path_, replace_));
  close(std::exchange(descriptor_, -1));
  SyncFolder(path_);
  return absl::OkStatus();
}

}  // namespace gemmd::gemmctl

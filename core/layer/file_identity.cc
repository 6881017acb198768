#include "core/layer/file_identity.h"

#include <sys/stat.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status.h"

namespace gemmd {

absl::StatusOr<std::string> FileIdentity(const std::filesystem::path& directory) {
  std::error_code error;
  std::vector<std::string> files;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::filesystem::path& path = entry->path();
    if (path.extension() != ".json" && path.extension() != ".safetensors") continue;
    struct stat info;
    if (stat(path.c_str(), &info) != 0) {  // a dangling link is an error when it is read
      files.push_back(absl::StrCat(path.filename().string(), " leads nowhere"));
      continue;
    }
    files.push_back(absl::StrCat(path.filename().string(), " ", info.st_dev, " ", info.st_ino, " ",
                                 info.st_size, " ", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec,
                                 " ", info.st_ctim.tv_sec, ".", info.st_ctim.tv_nsec));
  }
  if (error) {
    return Error(absl::StatusCode::kNotFound, "CHECKPOINT_NOT_FOUND",
                 absl::StrCat(directory.string(), ": ", error.message()));
  }
  std::sort(files.begin(), files.end());
  return absl::StrCat(directory.string(), "\n", absl::StrJoin(files, "\n"));
}

}  // namespace gemmd

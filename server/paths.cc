#include "server/paths.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/exit_codes.h"
#include "server/settings.h"

namespace gemmd {
namespace {

std::string Absolute(const Environment& environment, const char* variable) {
  const std::string value = environment.get(variable).value_or("");
  return !value.empty() && value[0] == '/' ? value : "";
}

std::string WhyNoDefault(absl::string_view setting, absl::string_view variable) {
  return absl::StrCat("no default for ", setting, ": ", variable,
                      " is not an absolute path and this user is not root; set --", setting);
}

absl::Status SetDefault(Config& config, const char* name, const std::string& path) {
  const absl::Status status = FindSetting(name)->set(config, {path});
  if (status.ok()) return status;
  return Error(absl::StatusCode::kInvalidArgument, kBadConfig,
               absl::StrCat("default of ", name, ": ", status.message()));
}

absl::Status FillSocket(const Environment& environment, Config& config) {
  if (!config.socket.empty()) return absl::OkStatus();
  std::string directory = Absolute(environment, "XDG_RUNTIME_DIR");
  if (directory.empty() && environment.uid == 0) directory = "/run";
  if (directory.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, kBadConfig,
                 WhyNoDefault("socket", "XDG_RUNTIME_DIR"));
  }
  return SetDefault(config, "socket", directory + "/gemmd/gemmd.sock");
}

// Without a place kernels live in memory: the daemon serves, and says why.
void FillCache(const Environment& environment, Config& config) {
  if (!config.cache_dir.empty()) return;
  if (const std::string cache = Absolute(environment, "XDG_CACHE_HOME"); !cache.empty()) {
    config.cache_dir = std::filesystem::path(cache) / "gemmd";
  } else if (environment.uid == 0) {
    config.cache_dir = "/var/cache/gemmd";
  } else if (const std::string home = Absolute(environment, "HOME"); !home.empty()) {
    config.cache_dir = std::filesystem::path(home) / ".cache/gemmd";
  } else {
    config.no_cache_dir = WhyNoDefault("cache_dir", "HOME");
  }
}

}  // namespace

absl::Status FillDefaultPaths(const Environment& environment, Config& config) {
  GEMMD_RETURN_IF_ERROR(FillSocket(environment, config));
  if (config.session_socket.empty()) {
    const std::filesystem::path beside =
        std::filesystem::path(config.socket).parent_path() / "session.sock";
    GEMMD_RETURN_IF_ERROR(SetDefault(config, "session_socket", beside.string()));
  }
  if (config.session_socket == config.socket) {
    return Error(absl::StatusCode::kInvalidArgument, kBadConfig,
                 absl::StrCat("socket and session_socket are both ", config.socket));
  }
  FillCache(environment, config);
  return absl::OkStatus();
}

absl::Status MakeDirectory(const std::filesystem::path& directory) {
  std::error_code error;
  if (std::filesystem::is_directory(directory, error)) return absl::OkStatus();
  if (directory.has_parent_path() && directory.parent_path() != directory) {
    GEMMD_RETURN_IF_ERROR(MakeDirectory(directory.parent_path()));
  }
  const mode_t mode = geteuid() == 0 ? 0750 : 0700;
  if (mkdir(directory.c_str(), mode) == 0) {
    // mkdir's mode went through the umask.
    return chmod(directory.c_str(), mode) == 0
               ? absl::OkStatus()
               : SystemError(errno, absl::StrCat("cannot set the mode of ", directory.string()));
  }
  int why = errno;
  if (why == EEXIST && std::filesystem::is_directory(directory, error)) return absl::OkStatus();
  if (why == EEXIST && std::filesystem::is_symlink(directory, error) && !std::filesystem::exists(directory, error)) {
    return SystemError(ENOENT, absl::StrCat("cannot create directory ", directory.string(), ", a symbolic link to ",
                                            std::filesystem::read_symlink(directory, error).string()));
  }
  if (why == EEXIST) why = ENOTDIR;
  return SystemError(why, absl::StrCat("cannot create directory ", directory.string()));
}

}  // namespace gemmd

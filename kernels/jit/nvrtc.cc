#include "kernels/jit/nvrtc.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "kernels/jit/library_digest.h"

namespace gemmd::jit {
namespace {

constexpr const char* kLibraryNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

void AddFolder(const std::string& folder, std::vector<std::string>& candidates) {
  for (const char* name : kLibraryNames) candidates.push_back(absl::StrCat(folder, "/", name));
}

std::vector<std::string> Candidates() {
  std::vector<std::string> candidates;
  if (const char* chosen = std::getenv("GEMMD_NVRTC"); chosen != nullptr && *chosen != '\0') {
    std::error_code error;
    if (std::filesystem::is_directory(chosen, error)) {
      AddFolder(chosen, candidates);
    } else {
      candidates.push_back(chosen);
    }
    return candidates;
  }
  for (const char* name : kLibraryNames) candidates.push_back(name);
  if (const char* home = std::getenv("CUDA_HOME"); home != nullptr && *home != '\0') {
    AddFolder(absl::StrCat(home, "/lib64"), candidates);
  }
  AddFolder("/usr/local/cuda/lib64", candidates);
  return candidates;
}

std::vector<int> ArchitecturesOf(const NvrtcTable& table) {
  int count = 0;
  if (table.nvrtcGetNumSupportedArchs(&count) != NVRTC_SUCCESS || count <= 0) return {};
  std::vector<int> architectures(static_cast<size_t>(count));
  if (table.nvrtcGetSupportedArchs(architectures.data()) != NVRTC_SUCCESS) return {};
  return architectures;
}

// Empty, or why `library` cannot be used.
std::string Fill(void* library, NvrtcTable& table) {
#define GEMMD_FIND_NVRTC_FUNCTION(name)                                       \
  table.name = reinterpret_cast<decltype(table.name)>(dlsym(library, #name)); \
  if (table.name == nullptr) return "has no " #name;
  GEMMD_NVRTC_FUNCTIONS(GEMMD_FIND_NVRTC_FUNCTION)
#undef GEMMD_FIND_NVRTC_FUNCTION
  int major = 0;
  int minor = 0;
  if (table.nvrtcVersion(&major, &minor) != NVRTC_SUCCESS) return "does not tell its version";
  table.version_number = major * 100 + minor;
  if (table.version_number < 1208) {
    return absl::StrCat("is version ", major, ".", minor, ", gemmd needs 12.8 or later");
  }
  table.version = absl::StrCat(major, ".", minor);
  table.architectures = ArchitecturesOf(table);
  if (table.architectures.empty()) return "does not tell its architectures";
  table.digest = LibraryDigest(reinterpret_cast<const void*>(table.nvrtcVersion));
  if (table.digest.empty()) return "cannot be told apart from other builds: its file is unreadable";
  return "";
}

// Where the loader found the library.
std::optional<std::string> PathOf(const NvrtcTable& table) {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(table.nvrtcVersion), &info) == 0) return std::nullopt;
  return info.dli_fname;
}

// The compiler opens libnvrtc-builtins by its bare name when it first compiles, and has no run path: the
// loader finds a copy that is loaded already. Without one beside the library, it searches.
void LoadBuiltins(const NvrtcTable& table) {
  const std::string folder = std::filesystem::path(PathOf(table).value_or("")).parent_path();
  if (folder.empty()) return;
  const std::string path = absl::StrCat(folder, "/libnvrtc-builtins.so.", table.version);
  (void)dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

// Empty, or why `path` cannot be used.
std::string TryLoad(const std::string& path, NvrtcTable& table) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return reason != nullptr ? reason : absl::StrCat(path, " does not load");
  }
  const std::string problem = Fill(library, table);
  if (problem.empty()) {
    LoadBuiltins(table);
    table.path = PathOf(table).value_or(path);
    return "";
  }
  dlclose(library);
  return absl::StrCat(path, " ", problem);
}

}  // namespace

absl::StatusOr<NvrtcTable> LoadNvrtcFrom(const std::vector<std::string>& candidates) {
  std::vector<std::string> problems;
  for (const std::string& path : candidates) {
    NvrtcTable table;
    std::string problem = TryLoad(path, table);
    if (problem.empty()) return table;
    problems.push_back(std::move(problem));
  }
  return Error(absl::StatusCode::kUnavailable, "NVRTC_MISSING",
               absl::StrCat("no NVRTC library; set GEMMD_NVRTC to one, or to its folder. Tried: ",
                            absl::StrJoin(problems, "; ")));
}

absl::StatusOr<const NvrtcTable*> LoadNvrtc() {
  static Mutex mutex;
  static const NvrtcTable* loaded = nullptr;
  MutexLock lock(mutex);
  if (loaded == nullptr) {
    GEMMD_ASSIGN_OR_RETURN(NvrtcTable table, LoadNvrtcFrom(Candidates()));
    loaded = new NvrtcTable(std::move(table));
  }
  return loaded;
}

}  // namespace gemmd::jit

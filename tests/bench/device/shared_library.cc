#include "tests/bench/device/shared_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace gemmd::bench {
namespace {

std::vector<std::string> Candidates(const std::string& chosen,
                                    const std::vector<std::string>& names) {
  if (!chosen.empty()) return {chosen};
  std::vector<std::string> candidates = names;
  const char* home = std::getenv("CUDA_HOME");
  for (const std::string& root :
       {std::string(home != nullptr ? home : "/usr/local/cuda"), std::string("/usr/local/cuda")}) {
    for (const char* folder : {"/lib64/", "/lib/", "/extras/CUPTI/lib64/"}) {
      for (const std::string& name : names) candidates.push_back(absl::StrCat(root, folder, name));
    }
  }
  return candidates;
}

}  // namespace

absl::StatusOr<SharedLibrary> SharedLibrary::Load(const std::string& chosen,
                                                  const std::vector<std::string>& names) {
  std::string tried;
  for (const std::string& candidate : Candidates(chosen, names)) {
    void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle != nullptr) return SharedLibrary(handle, candidate);
    const char* reason = dlerror();
    absl::StrAppend(&tried, "\n  ", reason != nullptr ? reason : candidate);
  }
  return absl::UnavailableError(absl::StrCat("cannot load ", names.front(), "; tried:", tried));
}

void* SharedLibrary::Symbol(const char* name) const { return dlsym(handle_, name); }

absl::Status SharedLibrary::Missing(const char* name) const {
  return absl::UnavailableError(absl::StrCat(path_, " has no ", name));
}

}  // namespace gemmd::bench

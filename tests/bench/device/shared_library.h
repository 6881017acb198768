// What    A library loaded at run time, and its functions by name.
// Errors  Unavailable: none of the candidates loads (the message lists each with its reason), or a
//         function is missing.
// Threads Any. The library stays loaded until the process ends.
#ifndef GEMMD_TESTS_BENCH_DEVICE_SHARED_LIBRARY_H_
#define GEMMD_TESTS_BENCH_DEVICE_SHARED_LIBRARY_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gemmd::bench {

class SharedLibrary {
 public:
  // The first candidate that loads: `chosen` alone when it is not empty, else `names` in the
  // loader's own places and below the folders of a CUDA Toolkit.
  static absl::StatusOr<SharedLibrary> Load(const std::string& chosen,
                                            const std::vector<std::string>& names);

  template <typename Function>
  absl::Status Find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(Symbol(name));
    return function != nullptr ? absl::OkStatus() : Missing(name);
  }
  const std::string& path() const { return path_; }

 private:
  SharedLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* Symbol(const char* name) const;
  absl::Status Missing(const char* name) const;

  void* handle_;
  std::string path_;
};

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_DEVICE_SHARED_LIBRARY_H_

// What    Handle: move-only owner of one driver object; the destroying call comes from the table.
//         UniqueFd: move-only owner of one file descriptor.
// Errors  Teardown never throws and returns nothing: a failing destroy is reported to the teardown
//         reporter (standard error unless replaced).
// Threads A handle belongs to one thread at a time. SetTeardownReporter: at start of the process.
#ifndef GEMMD_KERNELS_CUDA_HANDLES_H_
#define GEMMD_KERNELS_CUDA_HANDLES_H_

#include <string>
#include <utility>

#include "kernels/cuda/driver.h"

namespace gemmd::cuda {

using TeardownReporter = void (*)(const std::string& message);
void SetTeardownReporter(TeardownReporter reporter);  // null = standard error

// Reports `result` of the destroying call `call` unless it succeeded, or the driver is already shut
// down because the process ends.
void ReportTeardown(const DriverTable& driver, CUresult result, const char* call);

template <typename Raw, auto DriverTable::*kDestroy>
class Handle {
 public:
  Handle() = default;
  Handle(const DriverTable& driver, Raw raw) : driver_(&driver), raw_(raw) {}
  Handle(Handle&& other) noexcept
      : driver_(other.driver_), raw_(std::exchange(other.raw_, Raw{})) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      Reset();
      driver_ = other.driver_;
      raw_ = std::exchange(other.raw_, Raw{});
    }
    return *this;
  }
  ~Handle() { Reset(); }

  Raw get() const { return raw_; }
  const DriverTable& driver() const { return *driver_; }
  explicit operator bool() const { return raw_ != Raw{}; }
  Raw Release() { return std::exchange(raw_, Raw{}); }
  void Reset() {
    const Raw raw = Release();
    if (raw != Raw{})
      ReportTeardown(*driver_, (driver_->*kDestroy)(raw), "destroying a driver object");
  }

 private:
  const DriverTable* driver_ = nullptr;
  Raw raw_{};
};

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd();

  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace gemmd::cuda

#endif  // GEMMD_KERNELS_CUDA_HANDLES_H_

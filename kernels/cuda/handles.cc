#include "kernels/cuda/handles.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace gemmd::cuda {
namespace {

void PrintToStandardError(const std::string& message) {
  std::fprintf(stderr, "gemmd: %s\n", message.c_str());
}

std::atomic<TeardownReporter> teardown_reporter{&PrintToStandardError};

}  // namespace

void SetTeardownReporter(TeardownReporter reporter) {
  teardown_reporter.store(reporter != nullptr ? reporter : &PrintToStandardError);
}

void ReportTeardown(const DriverTable& driver, CUresult result, const char* call) {
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) return;
  teardown_reporter.load()(absl::StrCat(call, ": ", ResultText(driver, result)));
}

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace gemmd::cuda

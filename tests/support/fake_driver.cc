#include "tests/support/fake_driver.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/driver.h"
#include "tests/support/fake_state.h"

namespace gemmd::cuda {
namespace {

FakeDriver::State* current = nullptr;

FakeDriver::State& Current() {
  if (current == nullptr) {
    std::fprintf(stderr, "a call of a FakeDriver that is gone\n");
    std::abort();
  }
  return *current;
}

}  // namespace

Call::Call(const char* name, Kind kind, bool needs_context)
    : state_(Current()), lock_(state_.mutex) {
  ++state_.calls[name];
  result_ = Injected(name, kind);
  if (result_ != CUDA_SUCCESS) {
    if (IsSticky(result_)) state_.sticky = result_;
    return;
  }
  if (state_.sticky != CUDA_SUCCESS) {
    result_ = state_.sticky;
  } else if (needs_context && !HasCurrentContext()) {
    result_ = CUDA_ERROR_INVALID_CONTEXT;
  }
}

CUresult Call::Injected(const std::string& name, Kind kind) {
  if (const auto found = state_.failures.find(name); found != state_.failures.end()) {
    FakeFailure& failure = found->second;
    if (failure.skip-- <= 0) {
      const CUresult result = failure.result;
      if (--failure.times == 0) state_.failures.erase(found);
      return result;
    }
  }
  if (kind == kTearsDown || state_.countdown == 0 || --state_.countdown > 0) return CUDA_SUCCESS;
  return state_.countdown_result;
}

std::pair<const CUdeviceptr, FakeBlock>* FakeDriver::State::Find(CUdeviceptr address) {
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return nullptr;
  auto& block = *--after;
  return address - block.first < block.second.size ? &block : nullptr;
}

FakeDriver::FakeDriver(std::vector<FakeGpu> gpus) : state_(std::make_unique<State>()) {
  if (current != nullptr) {
    std::fprintf(stderr, "two FakeDrivers at a time\n");
    std::abort();
  }
  state_->gpus = std::move(gpus);
  FillDeviceCalls(state_->table);
  FillMemoryCalls(state_->table);
  FillWorkCalls(state_->table);
  ClearThreadContexts();
  current = state_.get();
}

FakeDriver::~FakeDriver() {
  current = nullptr;
  ClearThreadContexts();
  for (const auto& [address, block] : state_->blocks) {
    munmap(reinterpret_cast<void*>(address), block.size);
    if (block.fd >= 0) close(block.fd);
  }
  for (const auto& [handle, memory] : state_->vmm) close(memory.fd);
  for (const auto& [data, size] : state_->host) munmap(data, size);
}

const DriverTable& FakeDriver::table() const { return state_->table; }

void FakeDriver::Fail(const std::string& call, CUresult result, int skip, int times) {
  const std::lock_guard lock(state_->mutex);
  state_->failures[call] = {result, skip, times};
}

void FakeDriver::FailNthAcquisition(int n, CUresult result) {
  const std::lock_guard lock(state_->mutex);
  state_->countdown = n;
  state_->countdown_result = result;
}

void FakeDriver::FailAttribute(CUdevice_attribute attribute, CUresult result) {
  const std::lock_guard lock(state_->mutex);
  state_->failing_attributes[attribute] = result;
}

void FakeDriver::ClearFailures() {
  const std::lock_guard lock(state_->mutex);
  state_->failures.clear();
  state_->failing_attributes.clear();
  state_->countdown = 0;
  state_->sticky = CUDA_SUCCESS;
}

int FakeDriver::Calls(const std::string& call) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->calls.find(call);
  return found == state_->calls.end() ? 0 : found->second;
}

std::string FakeDriver::Live() const {
  const std::lock_guard lock(state_->mutex);
  std::string text;
  for (const auto& [call, count] : state_->live) {
    if (count != 0) absl::StrAppend(&text, text.empty() ? "" : ", ", call, " ", count);
  }
  return text;
}

void FakeDriver::SetLegacyIpcCapable(bool capable) {
  const std::lock_guard lock(state_->mutex);
  state_->legacy_ipc = capable;
}

void FakeDriver::AllowOpeningOwnHandles(bool allow) {
  const std::lock_guard lock(state_->mutex);
  state_->open_own_handles = allow;
}

void FakeDriver::OnLaunch(std::function<CUresult(const FakeLaunch&)> callback) {
  const std::lock_guard lock(state_->mutex);
  state_->on_launch = std::move(callback);
}

void FakeDriver::SetKernels(std::vector<std::string> names) {
  const std::lock_guard lock(state_->mutex);
  state_->known_kernels.emplace(names.begin(), names.end());
}

}  // namespace gemmd::cuda

// What    Insides of FakeDriver, shared by the files that implement its calls.
// Threads State's fields are guarded by its mutex; Call holds it for the length of one driver call.
#ifndef GEMMD_TESTS_SUPPORT_FAKE_STATE_H_
#define GEMMD_TESTS_SUPPORT_FAKE_STATE_H_

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/fake_driver.h"

namespace gemmd::cuda {

struct FakeFailure {
  CUresult result;
  int skip;
  int times;
};

struct FakeBlock {  // one device allocation, mapping or address reservation
  std::string acquired_by;
  uint64_t size = 0;
  int fd = -1;  // memfd underneath; -1 for a reservation and for a mapping that shares another's
  uint64_t buffer_id = 0;
  bool legacy_ipc = true;
  bool mapped = false;      // of a reservation
  bool accessible = false;  // of a mapped reservation
};

struct FakeVmm {
  int fd = -1;
  uint64_t size = 0;
  bool imported = false;  // uses no memory of its own
};

struct FakeDriver::State {
  mutable std::recursive_mutex mutex;
  std::vector<FakeGpu> gpus;
  DriverTable table;
  std::map<std::string, FakeFailure> failures;
  std::map<int, CUresult> failing_attributes;
  int countdown = 0;  // acquisitions until the injected failure; 0 = none
  CUresult countdown_result = CUDA_SUCCESS;
  CUresult sticky = CUDA_SUCCESS;
  std::map<std::string, int> calls;
  std::map<std::string, int> live;  // by the acquiring call
  std::map<CUdeviceptr, FakeBlock> blocks;
  std::map<CUmemGenericAllocationHandle, FakeVmm> vmm;
  std::map<void*, uint64_t> host;
  std::set<void*> objects;  // streams, events, libraries
  std::map<CUkernel, std::string> kernels;
  std::optional<std::set<std::string>> known_kernels;
  uint64_t next_id = 1;
  uint64_t used_bytes = 0;
  bool legacy_ipc = true;
  bool open_own_handles = false;
  std::function<CUresult(const FakeLaunch&)> on_launch;

  // The block that `address` lies in, or null.
  std::pair<const CUdeviceptr, FakeBlock>* Find(CUdeviceptr address);
};

inline constexpr uint64_t kFakeGranularity = 2 << 20;

// Start of every fake call: counts it and decides whether it fails.
//   Call call("cuMemMap", Call::kAcquires);
//   if (call.failed()) return call.result();
class Call {
 public:
  enum Kind { kAcquires, kTearsDown };
  Call(const char* name, Kind kind, bool needs_context = false);

  bool failed() const { return result_ != CUDA_SUCCESS; }
  CUresult result() const { return result_; }
  FakeDriver::State& state() { return state_; }
  // Counts one object acquired by `acquiring_call`.
  void Acquired(const std::string& acquiring_call) { ++state_.live[acquiring_call]; }
  void GivenBack(const std::string& acquiring_call) { --state_.live[acquiring_call]; }

 private:
  CUresult Injected(const std::string& name, Kind kind);

  FakeDriver::State& state_;
  std::lock_guard<std::recursive_mutex> lock_;
  CUresult result_ = CUDA_SUCCESS;
};

bool HasCurrentContext();
void ClearThreadContexts();

void FillMemoryCalls(DriverTable& table);
void FillDeviceCalls(DriverTable& table);
void FillWorkCalls(DriverTable& table);

}  // namespace gemmd::cuda

#endif  // GEMMD_TESTS_SUPPORT_FAKE_STATE_H_

// What    A CUDA driver without a GPU, behind the same table as the real one: memory is host
//         memory, kernels are callbacks, and every call can be made to fail.
//           FakeDriver fake;
//           SetDriverForTesting(&fake.table());          // for code that calls LoadDriver()
//           fake.Fail("cuMemMap", CUDA_ERROR_UNKNOWN);   // the next cuMemMap
//           fake.FailNthAcquisition(3, ...);             // the third call that acquires something
//           EXPECT_EQ(fake.Live(), "");                  // everything given back
// Rules   It is as strict as the driver where gemmd could be wrong: calls that need a current
//         context refuse without one, a handle is not opened by the process that exported it, VMM
//         sizes must be multiples of the granularity, sticky errors stick, double frees fail. VMM
//         and IPC memory is a memfd underneath, so that two processes with a FakeDriver each really
//         share it (IPC handles name it as /proc/<pid>/fd/<fd>).
// Threads Every call is thread-safe. One FakeDriver at a time in a process.
#ifndef GEMMD_TESTS_SUPPORT_FAKE_DRIVER_H_
#define GEMMD_TESTS_SUPPORT_FAKE_DRIVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/driver.h"

namespace gemmd::cuda {

struct FakeGpu {
  std::string name = "Fake GPU";
  unsigned char uuid_seed = 1;  // bytes of the UUID: seed, seed + 1, ...
  int cc_major = 9;
  int cc_minor = 0;
  int sm_count = 132;
  int clock_khz = 1980000;
  uint64_t memory_bytes = uint64_t{1} << 30;
};

struct FakeLaunch {
  std::string kernel;  // lowered name
  CUlaunchConfig config{};
  unsigned cluster_x = 1;
  bool overlaps_previous = false;
  void** params = nullptr;  // valid inside the callback only
};

class FakeDriver {
 public:
  explicit FakeDriver(std::vector<FakeGpu> gpus = {FakeGpu{}});
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  const DriverTable& table() const;

  // Call number `skip` + 1 of `call` from now on, and `times` - 1 after it, return `result`.
  void Fail(const std::string& call, CUresult result, int skip = 0, int times = 1);
  // The `n`-th call from now on (1 = next) that can fail and is no teardown returns `result`, once.
  void FailNthAcquisition(int n, CUresult result);
  // Every device attribute query of `attribute` fails.
  void FailAttribute(CUdevice_attribute attribute, CUresult result);
  void ClearFailures();

  // Calls of `call` so far, failed ones included.
  int Calls(const std::string& call) const;
  // What is acquired and not given back, e.g. "cuMemAlloc 1, cuStreamCreate 2"; empty when nothing
  // is.
  std::string Live() const;

  // Memory made from now on cannot be named by IPC handle (as VMM and pool memory).
  void SetLegacyIpcCapable(bool capable);
  // Lets a process open its own handles, which the real driver refuses.
  void AllowOpeningOwnHandles(bool allow);
  // Runs in cuLaunchKernelEx; its result is the call's.
  void OnLaunch(std::function<CUresult(const FakeLaunch&)> callback);
  // Kernels that cuLibraryGetKernel finds; unset = every name.
  void SetKernels(std::vector<std::string> names);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace gemmd::cuda

#endif  // GEMMD_TESTS_SUPPORT_FAKE_DRIVER_H_

// What    The GPUs of this machine as the driver describes them. Needs no context.
// Errors  ListGpus fails only when the driver cannot count devices; a machine without GPUs gives an
//         empty list. A query that fails leaves its field at 0 or empty and is named in `unknown`.
// Threads Any.
#ifndef GEMMD_KERNELS_CUDA_DEVICE_INFO_H_
#define GEMMD_KERNELS_CUDA_DEVICE_INFO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/driver.h"

namespace gemmd::cuda {

struct DeviceInfo {
  int ordinal = 0;
  std::string uuid;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", "MIG-..." for a MIG instance
  std::string name;
  int cc_major = 0;
  int cc_minor = 0;
  std::string architecture;  // for NVRTC: "sm_75", "sm_89", "sm_90a", "sm_120a"
  int sm_count = 0;
  int clock_mhz = 0;  // the highest of the multiprocessors
  uint64_t memory_bytes = 0;
  int shared_bytes_per_block = 0;  // opt-in maximum
  int shared_bytes_per_sm = 0;
  uint64_t l2_bytes = 0;
  bool has_vmm = false;              // cuMemCreate with POSIX file descriptors
  bool integrated = false;           // shares memory with the host; no legacy CUDA IPC
  std::vector<std::string> unknown;  // queries that failed

  // OK, or why gemmd cannot use this GPU: no UUID, no compute capability, or older than Turing.
  absl::Status Usable() const;
};

absl::StatusOr<std::vector<DeviceInfo>> ListGpus(const DriverTable& driver);

// "sm_90a" for 9.0: architecture-specific features from 9.0 on, plain names before.
std::string ArchitectureName(int cc_major, int cc_minor);

// "GPU-00112233-4455-6677-8899-aabbccddeeff".
std::string FormatUuid(const CUuuid& uuid, bool is_mig);

}  // namespace gemmd::cuda

#endif  // GEMMD_KERNELS_CUDA_DEVICE_INFO_H_

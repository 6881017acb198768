// What    Which devices run a layer, with which kernels and which types of x. It is the daemon's own
//         selection, asked without a device, so that a checkpoint can be judged on any machine.
// Threads Pure functions.
#ifndef GEMMD_CLIENT_GEMMCTL_INSPECT_DEVICES_H_
#define GEMMD_CLIENT_GEMMCTL_INSPECT_DEVICES_H_

#include <string>
#include <vector>

#include "core/quant/standard_tensor.h"

namespace gemmd::gemmctl {

enum class KernelFamily { kNone, kReference, kGeneric, kSpecialised };

struct DeviceSupport {
  std::string device;  // "cpu", or an architecture such as "sm_90a"
  KernelFamily kernels = KernelFamily::kNone;
  std::vector<std::string> activations;  // types of x that a request may bring
  std::vector<std::string> specialised;  // those of them that have specialised kernels
  std::string why;  // not better: refused, or no specialised kernel; cpu: what becomes of x, where the layer
                    // asks for other activations

  friend bool operator==(const DeviceSupport&, const DeviceSupport&) = default;
};

const char* KernelFamilyName(KernelFamily family);  // "none", "reference", ...

// "cpu", then every architecture from Turing on, oldest first.
std::vector<DeviceSupport> DevicesFor(const StandardTensor& tensor);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_INSPECT_DEVICES_H_

// What    What happens to kernels while nobody waits for them, for logs; and how often, for metrics.
#ifndef GEMMD_KERNELS_KERNEL_EVENT_H_
#define GEMMD_KERNELS_KERNEL_EVENT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/contract/element_type.h"

namespace gemmd {

struct KernelEvent {
  enum class Kind : uint8_t {
    kReady,        // a specialised kernel serves
    kFailed,       // a specialised kernel is not to be had; the generic one goes on serving
    kQuarantined,  // a kernel of any kind failed its self-test
  };
  Kind kind = Kind::kReady;
  std::string kernel;   // its name
  absl::Status status;  // why, unless ready; DataLoss: the GPU's context is lost
  // Ready: the numerics (kernels/numerics.h) that batch-invariant requests of a layer may name from now
  // on, with x of this type.
  std::vector<uint64_t> armed = {};
  ElementType x_type = ElementType::kBFloat16;
};

// Called from any thread, without locks held; must not block.
using KernelObserver = std::function<void(const KernelEvent&)>;

// Since the start.
struct KernelCounts {
  uint64_t specialised = 0;
  uint64_t specialised_failed = 0;
  uint64_t self_tests = 0;  // done, passed or not
  uint64_t quarantined = 0;
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_KERNEL_EVENT_H_

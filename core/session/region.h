// What    Regions, and the arithmetic that decides whether a request stays inside of one.
// Shapes  A TensorRef is [rows, columns] or [elements]; a vector is one row or one column as asked.
// Errors  Resolve*: InvalidArgument REGION_OUT_OF_BOUNDS, STRIDE_TOO_SMALL, SHAPE_MISMATCH (rank or
//         negative extent), MISALIGNED_OFFSET; Unimplemented UNSUPPORTED_DTYPE. Every message names
//         the field, the value and the bound.
// Threads Resolve* are pure functions; they never overflow, whatever the client sends.
#ifndef GEMMD_CORE_SESSION_REGION_H_
#define GEMMD_CORE_SESSION_REGION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/exec/device.h"
#include "core/session/shared_mapping.h"
#include "core/types.h"

namespace gemmd {

// Bytes [address, address + size) of device memory.
struct Extent {
  uintptr_t address = 0;
  uint64_t size = 0;
};

enum class VectorMeaning : uint8_t { kRow, kColumn };

absl::StatusOr<MatrixView> ResolveMatrix(absl::string_view field, const TensorRef& ref,
                                         const Extent& region, VectorMeaning vector);

// `size` bytes from `offset`, both of the region; the whole rest is not implied by 0.
absl::StatusOr<Extent> ResolveBytes(absl::string_view field, uint64_t offset, uint64_t size,
                                    const Extent& region);

// One registered region; immutable. Requests in flight hold the memory, not the region.
struct Region {
  RegionRef ref;
  uint64_t session_id = 0;
  Device* device = nullptr;
  std::shared_ptr<SharedMapping> mapping;
  uint64_t offset = 0;  // inside the mapping
  uint64_t size = 0;
  std::string label;

  RegionInfo Info() const;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_SESSION_REGION_H_

#include "kernels/cuda/ipc.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/base/status.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/handles.h"

namespace gemmd::cuda {
namespace {

static_assert(sizeof(CUipcMemHandle) == kIpcHandleBytes);

const char* OpenHint(CUresult result) {
  switch (result) {
    case CUDA_ERROR_INVALID_CONTEXT:
      return "a process cannot open its own handle; was it exported by this process?";
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
      return "the memory is on a GPU this process does not see or cannot reach";
    case CUDA_ERROR_MAP_FAILED:
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "the address space or the GPU has no room for the mapping";
    default:
      return "does the exporter still live and hold the memory, and do both processes share the "
             "PID namespace (containers: hostPID) and see the same GPU?";
  }
}

absl::Status OpenFailed(const DriverTable& driver, CUresult result) {
  if (IsSticky(result)) return ToStatus(driver, result, "cuIpcOpenMemHandle");
  return Error(
      absl::StatusCode::kFailedPrecondition, "IPC_OPEN_FAILED",
      absl::StrCat("cuIpcOpenMemHandle: ", ResultText(driver, result), "; ", OpenHint(result)));
}

// Small allocations of a process share a block of device memory, each with a handle of its own. While another
// one's mapping of that block is being closed, or the block that lay there before is, the driver says
// ALREADY_MAPPED (seen on driver 580): the open is tried again.
CUresult OpenWhenUnmapped(const DriverTable& driver, const CUipcMemHandle& handle,
                          CUdeviceptr& address) {
  constexpr absl::Duration kPatience = absl::Seconds(1);
  constexpr absl::Duration kLongestPause = absl::Milliseconds(16);
  absl::Duration pause = absl::Milliseconds(1);
  const absl::Time deadline = absl::Now() + kPatience;
  for (;;) {
    const CUresult result =
        driver.cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result != CUDA_ERROR_ALREADY_MAPPED || absl::Now() >= deadline) return result;
    absl::SleepFor(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

absl::Status NotIpcCapable(uintptr_t pointer, absl::string_view why) {
  return Error(
      absl::StatusCode::kFailedPrecondition, "NOT_IPC_CAPABLE",
      absl::StrCat("memory at 0x", absl::Hex(pointer),
                   " cannot be shared by CUDA IPC handle: ", why,
                   ". Memory of VMM allocators (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True) "
                   "and of cudaMallocAsync pools has no handle; use cudaMalloc, or export a VMM "
                   "allocation by file descriptor"));
}

absl::Status CheckCapable(const DriverTable& driver, CUdeviceptr pointer) {
  int capable = 0;
  const CUresult result = driver.cuPointerGetAttribute(
      &capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pointer);
  if (IsSticky(result)) return ToStatus(driver, result, "cuPointerGetAttribute");
  if (result == CUDA_ERROR_INVALID_VALUE) {
    return NotIpcCapable(pointer, "the driver does not know it as CUDA memory");
  }
  GEMMD_RETURN_IF_ERROR(ToStatus(driver, result, "cuPointerGetAttribute"));
  if (!capable) return NotIpcCapable(pointer, "the driver says it is not legacy IPC capable");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<IpcMapping> IpcMapping::Open(const DriverTable& driver,
                                            absl::Span<const std::byte> handle,
                                            uint64_t allocation_size) {
  if (handle.size() != kIpcHandleBytes) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_HANDLE_SIZE",
                 absl::StrCat("a CUDA IPC handle has ", kIpcHandleBytes, " bytes, this one ",
                              handle.size()));
  }
  GEMMD_ASSIGN_OR_RETURN(CUcontext context, CurrentContext(driver));
  CUipcMemHandle raw;
  std::memcpy(&raw, handle.data(), sizeof(raw));
  CUdeviceptr address = 0;
  const CUresult result = OpenWhenUnmapped(driver, raw, address);
  if (result != CUDA_SUCCESS) return OpenFailed(driver, result);
  IpcMapping mapping(driver, context, address);
  GEMMD_RETURN_IF_ERROR(mapping.CheckSize(allocation_size));
  return mapping;
}

// The driver's figure bounds the region; what the exporter said may only narrow it.
absl::Status IpcMapping::CheckSize(uint64_t allocation_size) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  GEMMD_CUDA(*driver_, cuMemGetAddressRange, &base, &bytes, address_);
  const uint64_t before = address_ - base;
  const uint64_t usable = base <= address_ && before <= bytes ? bytes - before : 0;
  if (usable < allocation_size || usable == 0) {
    return Error(absl::StatusCode::kInvalidArgument, "REGION_OUT_OF_BOUNDS",
                 absl::StrCat("allocation_size is ", allocation_size, ", the allocation has ",
                              usable, " bytes"));
  }
  size_ = allocation_size != 0 ? allocation_size : usable;
  return absl::OkStatus();
}

IpcMapping::IpcMapping(IpcMapping&& other) noexcept
    : driver_(other.driver_),
      context_(other.context_),
      address_(std::exchange(other.address_, 0)),
      size_(other.size_) {}

IpcMapping& IpcMapping::operator=(IpcMapping&& other) noexcept {
  if (this != &other) {
    Reset();
    driver_ = other.driver_;
    context_ = other.context_;
    address_ = std::exchange(other.address_, 0);
    size_ = other.size_;
  }
  return *this;
}

void IpcMapping::Reset() {
  const CUdeviceptr address = std::exchange(address_, 0);
  if (address == 0) return;
  const ScopedContext scope(*driver_, context_);
  ReportTeardown(*driver_, driver_->cuIpcCloseMemHandle(address), "cuIpcCloseMemHandle");
}

absl::StatusOr<IpcExport> ExportIpc(const DriverTable& driver, uintptr_t pointer) {
  GEMMD_RETURN_IF_ERROR(CheckCapable(driver, pointer));
  CUdeviceptr base = 0;
  size_t bytes = 0;
  GEMMD_CUDA(driver, cuMemGetAddressRange, &base, &bytes, pointer);
  CUipcMemHandle raw;
  const CUresult result = driver.cuIpcGetMemHandle(&raw, pointer);
  if (IsSticky(result)) return ToStatus(driver, result, "cuIpcGetMemHandle");
  if (result != CUDA_SUCCESS) {
    return NotIpcCapable(pointer, absl::StrCat("cuIpcGetMemHandle: ", ResultText(driver, result)));
  }
  unsigned long long buffer_id = 0;
  GEMMD_CUDA(driver, cuPointerGetAttribute, &buffer_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer);
  int ordinal = -1;
  GEMMD_CUDA(driver, cuPointerGetAttribute, &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer);

  IpcExport exported;
  std::memcpy(exported.handle.data(), &raw, sizeof(raw));
  exported.base = base;
  exported.allocation_size = bytes;
  exported.offset = pointer - base;
  exported.buffer_id = buffer_id;
  exported.ordinal = ordinal;
  return exported;
}

}  // namespace gemmd::cuda

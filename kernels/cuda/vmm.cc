#include "kernels/cuda/vmm.h"

#include <fcntl.h>

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd::cuda {
namespace {

constexpr auto kFd = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUmemAllocationProp ExportableMemoryOf(int ordinal) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal;
  properties.requestedHandleTypes = kFd;
  return properties;
}

CUmemAccessDesc AccessOf(int ordinal, bool read_only) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = ordinal;
  access.flags = read_only ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

// What the driver says about a descriptor or a size that came from another process is no bug of
// ours.
absl::Status ImportStatus(const DriverTable& driver, CUresult result, int fd) {
  if (result == CUDA_SUCCESS || IsSticky(result) || result == CUDA_ERROR_OUT_OF_MEMORY) {
    return ToStatus(driver, result, "cuMemImportFromShareableHandle");
  }
  return Error(absl::StatusCode::kFailedPrecondition, "IPC_OPEN_FAILED",
               absl::StrCat("cuMemImportFromShareableHandle: ", ResultText(driver, result),
                            "; is descriptor ", fd,
                            " an exported VMM allocation of a GPU this process sees?"));
}

// Failures of a mapping that say nothing about the imported allocation.
bool IsOurs(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsDataLoss(status);
}

}  // namespace

absl::StatusOr<uint64_t> VmmRoundedSize(const DriverTable& driver, int ordinal, uint64_t bytes) {
  const CUmemAllocationProp properties = ExportableMemoryOf(ordinal);
  size_t granularity = 0;
  GEMMD_CUDA(driver, cuMemGetAllocationGranularity, &granularity, &properties,
             CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (granularity == 0 || bytes == 0 || bytes > std::numeric_limits<int64_t>::max() - granularity) {
    return Error(absl::StatusCode::kInvalidArgument, "REGION_OUT_OF_BOUNDS",
                 absl::StrCat("cannot allocate ", bytes, " bytes in units of ", granularity));
  }
  return (bytes + granularity - 1) / granularity * granularity;
}

absl::StatusOr<VmmRange> VmmRange::Map(const DriverTable& driver, int ordinal,
                                       CUmemGenericAllocationHandle handle, uint64_t size,
                                       bool read_only) {
  CUdeviceptr address = 0;
  GEMMD_CUDA(driver, cuMemAddressReserve, &address, size, /*alignment=*/0, /*addr=*/0, /*flags=*/0);
  VmmRange range(driver, address, size);
  GEMMD_CUDA(driver, cuMemMap, address, size, /*offset=*/0, handle, /*flags=*/0);
  range.mapped_ = true;
  const CUmemAccessDesc access = AccessOf(ordinal, read_only);
  GEMMD_CUDA(driver, cuMemSetAccess, address, size, &access, 1);
  return range;
}

VmmRange::VmmRange(VmmRange&& other) noexcept
    : driver_(other.driver_),
      address_(std::exchange(other.address_, 0)),
      size_(other.size_),
      mapped_(std::exchange(other.mapped_, false)) {}

VmmRange& VmmRange::operator=(VmmRange&& other) noexcept {
  if (this != &other) {
    Reset();
    driver_ = other.driver_;
    address_ = std::exchange(other.address_, 0);
    size_ = other.size_;
    mapped_ = std::exchange(other.mapped_, false);
  }
  return *this;
}

void VmmRange::Reset() {
  if (std::exchange(mapped_, false)) {
    ReportTeardown(*driver_, driver_->cuMemUnmap(address_, size_), "cuMemUnmap");
  }
  if (address_ != 0) {
    ReportTeardown(*driver_, driver_->cuMemAddressFree(address_, size_), "cuMemAddressFree");
    address_ = 0;
  }
}

absl::StatusOr<VmmAllocation> VmmAllocation::Create(const DriverTable& driver, int ordinal,
                                                    uint64_t bytes) {
  GEMMD_ASSIGN_OR_RETURN(const uint64_t size, VmmRoundedSize(driver, ordinal, bytes));
  const CUmemAllocationProp properties = ExportableMemoryOf(ordinal);
  CUmemGenericAllocationHandle raw = 0;
  GEMMD_CUDA(driver, cuMemCreate, &raw, size, &properties, /*flags=*/0);
  VmmHandle handle(driver, raw);
  GEMMD_ASSIGN_OR_RETURN(VmmRange range,
                         VmmRange::Map(driver, ordinal, raw, size, /*read_only=*/false));
  return VmmAllocation(std::move(handle), std::move(range));
}

absl::StatusOr<UniqueFd> VmmAllocation::ExportFd() const {
  int raw = -1;
  GEMMD_CUDA(handle_.driver(), cuMemExportToShareableHandle, &raw, handle_.get(), kFd, /*flags=*/0);
  UniqueFd fd(raw);
  fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  return fd;
}

absl::StatusOr<VmmMapping> VmmMapping::Import(const DriverTable& driver, int ordinal, int fd,
                                              uint64_t bytes, bool read_only) {
  GEMMD_ASSIGN_OR_RETURN(const uint64_t size, VmmRoundedSize(driver, ordinal, bytes));
  CUmemGenericAllocationHandle raw = 0;
  void* descriptor = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
  GEMMD_RETURN_IF_ERROR(
      ImportStatus(driver, driver.cuMemImportFromShareableHandle(&raw, descriptor, kFd), fd));
  const VmmHandle handle(driver, raw);  // the mapping keeps the memory by itself
  absl::StatusOr<VmmRange> range = VmmRange::Map(driver, ordinal, raw, size, read_only);
  if (range.ok()) return VmmMapping(*std::move(range));
  if (IsOurs(range.status())) return range.status();
  return Error(absl::StatusCode::kInvalidArgument, "REGION_OUT_OF_BOUNDS",
               absl::StrCat("cannot map ", size,
                            " bytes of the imported allocation; its size differs or another GPU "
                            "holds it: ",
                            range.status().message()));
}

}  // namespace gemmd::cuda

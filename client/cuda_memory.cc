#include "client/cuda_memory.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/cuda/device_info.h"
#include "kernels/cuda/ipc.h"

namespace gemmd::client {
namespace {

absl::StatusOr<int> OrdinalOfPointer(const cuda::DriverTable& driver, uintptr_t address) {
  int ordinal = -1;
  GEMMD_RETURN_IF_ERROR(Annotate(
      cuda::ToStatus(
          driver,
          driver.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address),
          "cuPointerGetAttribute"),
      absl::StrCat("address ", absl::Hex(address), " is no CUDA memory of this process")));
  return ordinal;
}

absl::StatusOr<cuda::DeviceInfo> FindGpu(const cuda::DriverTable& driver,
                                         const std::string& device) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<cuda::DeviceInfo> gpus, cuda::ListGpus(driver));
  for (const cuda::DeviceInfo& gpu : gpus) {
    if (absl::StrCat("cuda:", gpu.uuid) == device) return gpu;
  }
  return Error(absl::StatusCode::kNotFound, "WRONG_DEVICE",
               absl::StrCat("this process sees no GPU ", device,
                            "; CUDA_VISIBLE_DEVICES may hide it (", gpus.size(), " visible)"));
}

absl::StatusOr<std::string> DeviceId(const cuda::DriverTable& driver, int ordinal) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<cuda::DeviceInfo> gpus, cuda::ListGpus(driver));
  for (const cuda::DeviceInfo& gpu : gpus) {
    if (gpu.ordinal == ordinal) return absl::StrCat("cuda:", gpu.uuid);
  }
  return Error(absl::StatusCode::kNotFound, "WRONG_DEVICE",
               absl::StrCat("no GPU has ordinal ", ordinal));
}

// Runs `body` with the primary context of the GPU that holds `address`.
template <typename Body>
absl::Status WithContextOf(uintptr_t address, Body body) {
  GEMMD_ASSIGN_OR_RETURN(const cuda::DriverTable* driver, cuda::LoadDriver());
  GEMMD_ASSIGN_OR_RETURN(const int ordinal, OrdinalOfPointer(*driver, address));
  GEMMD_ASSIGN_OR_RETURN(const cuda::PrimaryContext context,
                         cuda::PrimaryContext::Retain(*driver, ordinal));
  const cuda::ScopedContext scope(context);
  GEMMD_RETURN_IF_ERROR(scope.status());
  return body(*driver);
}

}  // namespace

absl::StatusOr<CudaExport> ExportCuda(uintptr_t address, uint64_t bytes) {
  CudaExport exported;
  GEMMD_RETURN_IF_ERROR(
      WithContextOf(address, [&](const cuda::DriverTable& driver) -> absl::Status {
        GEMMD_ASSIGN_OR_RETURN(const cuda::IpcExport named, cuda::ExportIpc(driver, address));
        if (bytes == 0 || bytes > named.allocation_size - named.offset) {
          return Error(absl::StatusCode::kInvalidArgument, "REGION_OUT_OF_BOUNDS",
                       absl::StrCat(bytes, " bytes at offset ", named.offset,
                                    " of an allocation of ", named.allocation_size, " bytes"));
        }
        GEMMD_ASSIGN_OR_RETURN(exported.device, DeviceId(driver, named.ordinal));
        exported.memory.set_handle(named.handle.data(), named.handle.size());
        exported.memory.set_offset(named.offset);
        exported.memory.set_size(bytes);
        exported.memory.set_allocation_size(named.allocation_size);
        exported.memory.set_buffer_id(named.buffer_id);
        return absl::OkStatus();
      }));
  return exported;
}

absl::Status CopyToCuda(uintptr_t address, absl::Span<const std::byte> from) {
  if (from.empty()) return absl::OkStatus();
  return WithContextOf(address, [&](const cuda::DriverTable& driver) -> absl::Status {
    GEMMD_CUDA(driver, cuMemcpyHtoD, address, from.data(), from.size());
    GEMMD_CUDA(driver, cuCtxSynchronize);
    return absl::OkStatus();
  });
}

absl::Status CopyFromCuda(uintptr_t address, absl::Span<std::byte> to) {
  if (to.empty()) return absl::OkStatus();
  return WithContextOf(address, [&](const cuda::DriverTable& driver) -> absl::Status {
    GEMMD_CUDA(driver, cuMemcpyDtoH, to.data(), address, to.size());
    return absl::OkStatus();
  });
}

absl::StatusOr<CudaBuffer> CudaBuffer::Create(const std::string& device, uint64_t bytes) {
  GEMMD_ASSIGN_OR_RETURN(const cuda::DriverTable* driver, cuda::LoadDriver());
  GEMMD_ASSIGN_OR_RETURN(const cuda::DeviceInfo gpu, FindGpu(*driver, device));
  GEMMD_ASSIGN_OR_RETURN(cuda::PrimaryContext context,
                         cuda::PrimaryContext::Retain(*driver, gpu.ordinal));
  const cuda::ScopedContext scope(context);
  GEMMD_RETURN_IF_ERROR(scope.status());
  GEMMD_ASSIGN_OR_RETURN(cuda::DeviceBuffer buffer, cuda::DeviceBuffer::Create(*driver, bytes));
  return CudaBuffer(std::move(context), std::move(buffer), bytes);
}

}  // namespace gemmd::client

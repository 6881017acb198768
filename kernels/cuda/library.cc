#include "kernels/cuda/library.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd::cuda {

absl::StatusOr<LoadedLibrary> LoadedLibrary::Load(const DriverTable& driver,
                                                  absl::Span<const std::byte> cubin) {
  // The driver reads as many bytes as the ELF headers say; an empty buffer has none.
  if (cubin.empty()) {
    return Error(absl::StatusCode::kInternal, "DRIVER_ERROR", "cannot load an empty cubin");
  }
  CUlibrary raw = nullptr;
  GEMMD_CUDA(driver, cuLibraryLoadData, &raw, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr,
             0);
  return LoadedLibrary(Handle<CUlibrary, &DriverTable::cuLibraryUnload>(driver, raw));
}

absl::StatusOr<CUkernel> LoadedLibrary::GetKernel(const std::string& lowered_name) const {
  const DriverTable& driver = handle_.driver();
  CUkernel kernel = nullptr;
  const CUresult result = driver.cuLibraryGetKernel(&kernel, handle_.get(), lowered_name.c_str());
  if (result == CUDA_ERROR_NOT_FOUND) {
    return Error(absl::StatusCode::kNotFound, "NO_KERNEL",
                 absl::StrCat("the cubin has no kernel ", lowered_name));
  }
  GEMMD_RETURN_IF_ERROR(ToStatus(driver, result, "cuLibraryGetKernel"));
  CUfunction function = nullptr;
  GEMMD_CUDA(driver, cuKernelGetFunction, &function, kernel);
  return kernel;
}

absl::StatusOr<KernelResources> GetKernelResources(const DriverTable& driver, CUkernel kernel,
                                                   CUdevice device) {
  KernelResources resources;
  GEMMD_CUDA(driver, cuKernelGetAttribute, &resources.registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel,
             device);
  GEMMD_CUDA(driver, cuKernelGetAttribute, &resources.local_bytes,
             CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel, device);
  GEMMD_CUDA(driver, cuKernelGetAttribute, &resources.static_shared_bytes,
             CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel, device);
  GEMMD_CUDA(driver, cuKernelGetAttribute, &resources.max_threads,
             CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, device);
  return resources;
}

absl::Status SetMaxDynamicShared(const DriverTable& driver, CUkernel kernel, CUdevice device,
                                 int bytes) {
  GEMMD_CUDA(driver, cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes,
             kernel, device);
  return absl::OkStatus();
}

absl::StatusOr<int> MaxBlocksPerMultiprocessor(const DriverTable& driver, CUkernel kernel,
                                               int threads, int dynamic_shared_bytes) {
  CUfunction function = nullptr;
  GEMMD_CUDA(driver, cuKernelGetFunction, &function, kernel);
  int blocks = 0;
  GEMMD_CUDA(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function, threads,
             dynamic_shared_bytes);
  return blocks;
}

}  // namespace gemmd::cuda

// What    Table of CUDA driver functions, filled from libcuda.so.1 at run time; tests fill it with
//         fakes. Members carry the driver's own names and are called the same way:
//         driver.cuMemAlloc(&p, n). cuda.h renames many calls to a version (cuMemAlloc ->
//         cuMemAlloc_v2); declaration, lookup and call go through the same macro, so they always
//         agree.
// Errors  LoadDriver: Unavailable DRIVER_UNSUPPORTED: no libcuda, a call missing in it, or cuInit
//         failed. ToStatus is the only mapping from CUresult:
//           ResourceExhausted GPU_OOM            device memory is used up: evict or wait
//           DataLoss CONTEXT_LOST                sticky error: only ending the process cures it
//           Unavailable DRIVER_UNSUPPORTED       driver, module or MPS does not run (yet)
//           FailedPrecondition STREAM_CAPTURING  the call is not allowed while a stream is captured
//           FailedPrecondition DRIVER_UNSUPPORTED  this driver or GPU cannot do it
//           Internal DRIVER_ERROR                everything else: our bug, or unknown
// Threads LoadDriver is thread-safe; a table is immutable once it is in use.
// Source  CUDA driver API reference; "sticky" as its list of errors that leave a process
//         inconsistent.
#ifndef GEMMD_KERNELS_CUDA_DRIVER_H_
#define GEMMD_KERNELS_CUDA_DRIVER_H_

#include <cuda.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Every driver call gemmd uses. Adding one is adding a line.
#define GEMMD_CUDA_DRIVER_FUNCTIONS(X)           \
  /* Process and devices */                      \
  X(cuInit)                                      \
  X(cuDriverGetVersion)                          \
  X(cuGetErrorName)                              \
  X(cuGetErrorString)                            \
  X(cuDeviceGetCount)                            \
  X(cuDeviceGet)                                 \
  X(cuDeviceGetName)                             \
  X(cuDeviceGetUuid)                             \
  X(cuDeviceGetAttribute)                        \
  X(cuDeviceTotalMem)                            \
  X(cuMemGetInfo)                                \
  /* Contexts */                                 \
  X(cuDevicePrimaryCtxRetain)                    \
  X(cuDevicePrimaryCtxRelease)                   \
  X(cuCtxSetCurrent)                             \
  X(cuCtxGetCurrent)                             \
  X(cuCtxGetDevice)                              \
  X(cuCtxPushCurrent)                            \
  X(cuCtxPopCurrent)                             \
  X(cuCtxSynchronize)                            \
  /* Virtual memory management */                \
  X(cuMemGetAllocationGranularity)               \
  X(cuMemCreate)                                 \
  X(cuMemRelease)                                \
  X(cuMemAddressReserve)                         \
  X(cuMemAddressFree)                            \
  X(cuMemMap)                                    \
  X(cuMemUnmap)                                  \
  X(cuMemSetAccess)                              \
  X(cuMemExportToShareableHandle)                \
  X(cuMemImportFromShareableHandle)              \
  /* Plain memory */                             \
  X(cuMemAlloc)                                  \
  X(cuMemFree)                                   \
  X(cuMemHostAlloc)                              \
  X(cuMemFreeHost)                               \
  X(cuMemHostRegister)                           \
  X(cuMemHostUnregister)                         \
  X(cuMemHostGetDevicePointer)                   \
  X(cuMemcpyHtoD)                                \
  X(cuMemcpyDtoH)                                \
  X(cuMemcpyDtoD)                                \
  X(cuMemcpyHtoDAsync)                           \
  X(cuMemcpyDtoHAsync)                           \
  X(cuMemcpyDtoDAsync)                           \
  X(cuMemsetD8)                                  \
  X(cuMemsetD8Async)                             \
  X(cuMemsetD32Async)                            \
  /* Inter-process memory and pointers */        \
  X(cuIpcGetMemHandle)                           \
  X(cuIpcOpenMemHandle)                          \
  X(cuIpcCloseMemHandle)                         \
  X(cuMemGetAddressRange)                        \
  X(cuPointerGetAttribute)                       \
  X(cuPointerGetAttributes)                      \
  /* Streams and events */                       \
  X(cuStreamCreate)                              \
  X(cuStreamCreateWithPriority)                  \
  X(cuStreamDestroy)                             \
  X(cuStreamSynchronize)                         \
  X(cuStreamQuery)                               \
  X(cuStreamWaitEvent)                           \
  X(cuStreamIsCapturing)                         \
  X(cuEventCreate)                               \
  X(cuEventDestroy)                              \
  X(cuEventRecord)                               \
  X(cuEventSynchronize)                          \
  X(cuEventQuery)                                \
  X(cuEventElapsedTime)                          \
  /* Code */                                     \
  X(cuLibraryLoadData)                           \
  X(cuLibraryUnload)                             \
  X(cuLibraryGetKernel)                          \
  X(cuKernelGetFunction)                         \
  X(cuKernelGetAttribute)                        \
  X(cuKernelSetAttribute)                        \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
  X(cuTensorMapEncodeTiled)                      \
  X(cuLaunchKernelEx)

namespace gemmd::cuda {

struct DriverTable {
#define GEMMD_DECLARE_DRIVER_FUNCTION(name) decltype(&::name) name = nullptr;
  GEMMD_CUDA_DRIVER_FUNCTIONS(GEMMD_DECLARE_DRIVER_FUNCTION)
#undef GEMMD_DECLARE_DRIVER_FUNCTION
};

// The driver of this machine, loaded and initialised (cuInit) once per process; the result, good or
// bad, stays. The table lives until the process ends.
absl::StatusOr<const DriverTable*> LoadDriver();

// As LoadDriver, from a library of another name and without remembering it.
absl::StatusOr<DriverTable> LoadDriverLibrary(const char* library);

// From now on LoadDriver returns `driver`, which must outlive its users; null = the real one again.
void SetDriverForTesting(const DriverTable* driver);

// OK, or the error `call` met: "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2), out of memory".
absl::Status ToStatus(const DriverTable& driver, CUresult result, absl::string_view call);

// "CUDA_ERROR_OUT_OF_MEMORY (2), out of memory".
std::string ResultText(const DriverTable& driver, CUresult result);

// Whether every later call of this process on the context fails too.
bool IsSticky(CUresult result);

}  // namespace gemmd::cuda

// Early return of the Status of one driver call: GEMMD_CUDA(driver, cuMemFree, pointer).
#define GEMMD_CUDA(driver, call, ...) \
  GEMMD_RETURN_IF_ERROR(::gemmd::cuda::ToStatus((driver), (driver).call(__VA_ARGS__), #call))

#endif  // GEMMD_KERNELS_CUDA_DRIVER_H_

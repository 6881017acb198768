#include "kernels/cuda/driver.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd::cuda {
namespace {

// Two steps: the name is expanded by cuda.h's macros first, then quoted.
#define GEMMD_QUOTE(name) #name
#define GEMMD_SYMBOL(name) GEMMD_QUOTE(name)

std::atomic<const DriverTable*> testing_driver{nullptr};

absl::Status DriverUnsupported(absl::string_view message) {
  return Error(absl::StatusCode::kUnavailable, "DRIVER_UNSUPPORTED", message);
}

// Drivers older than the headers lack the newest version of some calls; those listed here behave
// the same in the version before.
const char* OlderSymbol(const char* symbol) {
  if (std::strcmp(symbol, "cuEventElapsedTime_v2") == 0) return "cuEventElapsedTime";
  if (std::strcmp(symbol, "cuDeviceGetUuid_v2") == 0) return "cuDeviceGetUuid";
  return nullptr;
}

void* FindSymbol(void* library, const char* symbol) {
  void* found = dlsym(library, symbol);
  const char* older = OlderSymbol(symbol);
  return found == nullptr && older != nullptr ? dlsym(library, older) : found;
}

std::string MissingSymbol(const DriverTable& driver, const char* library, const char* symbol) {
  int version = 0;
  const bool known =
      driver.cuDriverGetVersion != nullptr && driver.cuDriverGetVersion(&version) == CUDA_SUCCESS;
  return absl::StrCat(library, " has no ", symbol, "; its CUDA version is ",
                      known ? absl::StrCat(version / 1000, ".", version % 1000 / 10) : "unknown",
                      ", gemmd needs 12.0 or later");
}

absl::Status FillTable(void* library, const char* name, DriverTable& driver) {
#define GEMMD_FIND_DRIVER_FUNCTION(call)                                                          \
  driver.call = reinterpret_cast<decltype(driver.call)>(FindSymbol(library, GEMMD_SYMBOL(call))); \
  if (driver.call == nullptr) {                                                                   \
    return DriverUnsupported(MissingSymbol(driver, name, GEMMD_SYMBOL(call)));                    \
  }
  GEMMD_CUDA_DRIVER_FUNCTIONS(GEMMD_FIND_DRIVER_FUNCTION)
#undef GEMMD_FIND_DRIVER_FUNCTION
  return absl::OkStatus();
}

absl::StatusOr<const DriverTable*> LoadOnce() {
  absl::StatusOr<DriverTable> table = LoadDriverLibrary("libcuda.so.1");
  if (!table.ok()) return table.status();
  return new DriverTable(*table);
}

enum class Meaning { kOutOfMemory, kSticky, kNotRunning, kCapturing, kUnsupported, kOther };

Meaning MeaningOf(CUresult result) {
  switch (static_cast<int>(result)) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return Meaning::kOutOfMemory;
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_RPC_FAILURE:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
      return Meaning::kSticky;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_OPERATING_SYSTEM:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
    case CUDA_ERROR_MPS_CONNECTION_FAILED:
    case CUDA_ERROR_MPS_SERVER_NOT_READY:
    case CUDA_ERROR_MPS_MAX_CLIENTS_REACHED:
    case CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED:
      return Meaning::kNotRunning;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_CAPTURED_EVENT:
      return Meaning::kCapturing;
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_NOT_SUPPORTED:
      return Meaning::kUnsupported;
    default:
      return Meaning::kOther;
  }
}

}  // namespace

absl::StatusOr<DriverTable> LoadDriverLibrary(const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    return DriverUnsupported(
        absl::StrCat("cannot load the CUDA driver: ", reason != nullptr ? reason : library));
  }
  DriverTable driver;
  GEMMD_RETURN_IF_ERROR(FillTable(handle, library, driver));
  const CUresult result = driver.cuInit(0);
  if (result != CUDA_SUCCESS) {
    return DriverUnsupported(absl::StrCat("cuInit: ", ResultText(driver, result)));
  }
  return driver;
}

absl::StatusOr<const DriverTable*> LoadDriver() {
  if (const DriverTable* driver = testing_driver.load()) return driver;
  static const auto* loaded = new absl::StatusOr<const DriverTable*>(LoadOnce());
  return *loaded;
}

void SetDriverForTesting(const DriverTable* driver) { testing_driver.store(driver); }

std::string ResultText(const DriverTable& driver, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.cuGetErrorName == nullptr || driver.cuGetErrorName(result, &name) != CUDA_SUCCESS) {
    name = nullptr;
  }
  if (driver.cuGetErrorString == nullptr ||
      driver.cuGetErrorString(result, &text) != CUDA_SUCCESS) {
    text = nullptr;
  }
  return absl::StrCat(name != nullptr ? name : "unknown CUDA error", " (", static_cast<int>(result),
                      ")", text != nullptr ? ", " : "", text != nullptr ? text : "");
}

bool IsSticky(CUresult result) { return MeaningOf(result) == Meaning::kSticky; }

absl::Status ToStatus(const DriverTable& driver, CUresult result, absl::string_view call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const std::string message = absl::StrCat(call, ": ", ResultText(driver, result));
  switch (MeaningOf(result)) {
    case Meaning::kOutOfMemory:
      return Error(absl::StatusCode::kResourceExhausted, "GPU_OOM", message);
    case Meaning::kSticky:
      return Error(absl::StatusCode::kDataLoss, "CONTEXT_LOST", message);
    case Meaning::kNotRunning:
      return DriverUnsupported(message);
    case Meaning::kCapturing:
      return Error(absl::StatusCode::kFailedPrecondition, "STREAM_CAPTURING", message);
    case Meaning::kUnsupported:
      return Error(absl::StatusCode::kFailedPrecondition, "DRIVER_UNSUPPORTED", message);
    case Meaning::kOther:
      break;
  }
  return Error(absl::StatusCode::kInternal, "DRIVER_ERROR", message);
}

}  // namespace gemmd::cuda

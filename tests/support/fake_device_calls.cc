// Calls of FakeDriver about the process, devices and contexts.
#include <algorithm>
#include <cstring>

#include "tests/support/fake_state.h"

namespace gemmd::cuda {
namespace {

thread_local std::vector<CUcontext> context_stack;

// Contexts are the numbers 1, 2, ... of their devices.
CUcontext ContextOf(CUdevice device) {
  return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device + 1));
}

bool IsDevice(FakeDriver::State& state, CUdevice device) {
  return device >= 0 && device < static_cast<int>(state.gpus.size());
}

CUresult Init(unsigned) { return Call("cuInit", Call::kAcquires).result(); }

CUresult DriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return Call("cuDriverGetVersion", Call::kAcquires).result();
}

CUresult GetErrorName(CUresult result, const char** name) {
  switch (result) {
    case CUDA_SUCCESS:
      *name = "CUDA_SUCCESS";
      return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_VALUE:
      *name = "CUDA_ERROR_INVALID_VALUE";
      return CUDA_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
      *name = "CUDA_ERROR_OUT_OF_MEMORY";
      return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_CONTEXT:
      *name = "CUDA_ERROR_INVALID_CONTEXT";
      return CUDA_SUCCESS;
    case CUDA_ERROR_ILLEGAL_ADDRESS:
      *name = "CUDA_ERROR_ILLEGAL_ADDRESS";
      return CUDA_SUCCESS;
    default:
      *name = nullptr;
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult GetErrorString(CUresult result, const char** text) {
  *text = result == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : nullptr;
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult DeviceGetCount(int* count) {
  Call call("cuDeviceGetCount", Call::kAcquires);
  *count = static_cast<int>(call.state().gpus.size());
  return call.result();
}

CUresult DeviceGet(CUdevice* device, int ordinal) {
  Call call("cuDeviceGet", Call::kAcquires);
  if (call.failed()) return call.result();
  *device = ordinal;
  return IsDevice(call.state(), ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult DeviceGetName(char* name, int size, CUdevice device) {
  Call call("cuDeviceGetName", Call::kAcquires);
  if (call.failed()) return call.result();
  std::strncpy(name, call.state().gpus[device].name.c_str(), size);
  return CUDA_SUCCESS;
}

CUresult DeviceGetUuid(CUuuid* uuid, CUdevice device) {
  Call call("cuDeviceGetUuid", Call::kAcquires);
  if (call.failed()) return call.result();
  for (int i = 0; i < 16; ++i) {
    uuid->bytes[i] = static_cast<char>(call.state().gpus[device].uuid_seed + i);
  }
  return CUDA_SUCCESS;
}

int AttributeOf(const FakeGpu& gpu, CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return gpu.cc_major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return gpu.cc_minor;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return gpu.sm_count;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return gpu.clock_khz;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return 227 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return 228 << 10;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return 50 << 20;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      return 1;
    default:
      return 0;
  }
}

CUresult DeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  Call call("cuDeviceGetAttribute", Call::kAcquires);
  if (call.failed()) return call.result();
  const auto& failing = call.state().failing_attributes;
  if (const auto found = failing.find(attribute); found != failing.end()) return found->second;
  *value = AttributeOf(call.state().gpus[device], attribute);
  return CUDA_SUCCESS;
}

CUresult DeviceTotalMem(size_t* bytes, CUdevice device) {
  Call call("cuDeviceTotalMem", Call::kAcquires);
  if (call.failed()) return call.result();
  *bytes = call.state().gpus[device].memory_bytes;
  return CUDA_SUCCESS;
}

CUresult RetainPrimary(CUcontext* context, CUdevice device) {
  Call call("cuDevicePrimaryCtxRetain", Call::kAcquires);
  if (call.failed()) return call.result();
  if (!IsDevice(call.state(), device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = ContextOf(device);
  call.Acquired("cuDevicePrimaryCtxRetain");
  return CUDA_SUCCESS;
}

CUresult ReleasePrimary(CUdevice) {
  Call call("cuDevicePrimaryCtxRelease", Call::kTearsDown);
  call.GivenBack("cuDevicePrimaryCtxRetain");
  return call.result();
}

CUresult SetCurrent(CUcontext context) {
  Call call("cuCtxSetCurrent", Call::kAcquires);
  if (call.failed()) return call.result();
  if (!context_stack.empty()) context_stack.pop_back();
  if (context != nullptr) context_stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult GetCurrent(CUcontext* context) {
  Call call("cuCtxGetCurrent", Call::kAcquires);
  *context = context_stack.empty() ? nullptr : context_stack.back();
  return call.result();
}

CUresult GetDevice(CUdevice* device) {
  Call call("cuCtxGetDevice", Call::kAcquires, true);
  if (call.failed()) return call.result();
  *device = static_cast<CUdevice>(reinterpret_cast<uintptr_t>(context_stack.back())) - 1;
  return CUDA_SUCCESS;
}

CUresult PushCurrent(CUcontext context) {
  Call call("cuCtxPushCurrent", Call::kTearsDown);  // used by teardown too
  if (!call.failed()) context_stack.push_back(context);
  return call.result();
}

CUresult PopCurrent(CUcontext* context) {
  Call call("cuCtxPopCurrent", Call::kTearsDown);
  if (context_stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = context_stack.back();
  context_stack.pop_back();
  return call.result();
}

CUresult Synchronize() { return Call("cuCtxSynchronize", Call::kAcquires, true).result(); }

}  // namespace

bool HasCurrentContext() { return !context_stack.empty(); }

void ClearThreadContexts() { context_stack.clear(); }

void FillDeviceCalls(DriverTable& table) {
  table.cuInit = &Init;
  table.cuDriverGetVersion = &DriverGetVersion;
  table.cuGetErrorName = &GetErrorName;
  table.cuGetErrorString = &GetErrorString;
  table.cuDeviceGetCount = &DeviceGetCount;
  table.cuDeviceGet = &DeviceGet;
  table.cuDeviceGetName = &DeviceGetName;
  table.cuDeviceGetUuid = &DeviceGetUuid;
  table.cuDeviceGetAttribute = &DeviceGetAttribute;
  table.cuDeviceTotalMem = &DeviceTotalMem;
  table.cuDevicePrimaryCtxRetain = &RetainPrimary;
  table.cuDevicePrimaryCtxRelease = &ReleasePrimary;
  table.cuCtxSetCurrent = &SetCurrent;
  table.cuCtxGetCurrent = &GetCurrent;
  table.cuCtxGetDevice = &GetDevice;
  table.cuCtxPushCurrent = &PushCurrent;
  table.cuCtxPopCurrent = &PopCurrent;
  table.cuCtxSynchronize = &Synchronize;
}

}  // namespace gemmd::cuda

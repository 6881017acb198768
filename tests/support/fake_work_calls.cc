// Calls of FakeDriver about work: copies, streams, events, code, launches. Everything runs at once,
// on the calling thread, so streams are always idle.
#include <cstring>

#include "tests/support/fake_state.h"

namespace gemmd::cuda {
namespace {

template <typename Object>
CUresult CreateObject(const char* name, Object* object) {
  Call call(name, Call::kAcquires, true);
  if (call.failed()) return call.result();
  *object = reinterpret_cast<Object>(call.state().next_id++);
  call.state().objects.insert(*object);
  call.Acquired(name);
  return CUDA_SUCCESS;
}

CUresult DestroyObject(const char* name, const char* acquired_by, void* object) {
  Call call(name, Call::kTearsDown);
  if (call.state().objects.erase(object) == 0) return CUDA_ERROR_INVALID_HANDLE;
  call.GivenBack(acquired_by);
  return call.result();
}

CUresult Copy(const char* name, void* to, const void* from, size_t size) {
  Call call(name, Call::kAcquires, true);
  if (!call.failed()) std::memcpy(to, from, size);
  return call.result();
}

void* Host(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

CUresult Set8(const char* name, CUdeviceptr address, unsigned char value, size_t count) {
  Call call(name, Call::kAcquires, true);
  if (!call.failed()) std::memset(Host(address), value, count);
  return call.result();
}

CUresult Set32(CUdeviceptr address, unsigned value, size_t count, CUstream) {
  Call call("cuMemsetD32Async", Call::kAcquires, true);
  if (call.failed()) return call.result();
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(static_cast<char*>(Host(address)) + 4 * i, &value, sizeof(value));
  }
  return CUDA_SUCCESS;
}

void FillCopies(DriverTable& table) {
  table.cuMemcpyHtoD = [](CUdeviceptr to, const void* from, size_t size) {
    return Copy("cuMemcpyHtoD", Host(to), from, size);
  };
  table.cuMemcpyDtoH = [](void* to, CUdeviceptr from, size_t size) {
    return Copy("cuMemcpyDtoH", to, Host(from), size);
  };
  table.cuMemcpyDtoD = [](CUdeviceptr to, CUdeviceptr from, size_t size) {
    return Copy("cuMemcpyDtoD", Host(to), Host(from), size);
  };
  table.cuMemcpyHtoDAsync = [](CUdeviceptr to, const void* from, size_t size, CUstream) {
    return Copy("cuMemcpyHtoDAsync", Host(to), from, size);
  };
  table.cuMemcpyDtoHAsync = [](void* to, CUdeviceptr from, size_t size, CUstream) {
    return Copy("cuMemcpyDtoHAsync", to, Host(from), size);
  };
  table.cuMemcpyDtoDAsync = [](CUdeviceptr to, CUdeviceptr from, size_t size, CUstream) {
    return Copy("cuMemcpyDtoDAsync", Host(to), Host(from), size);
  };
  table.cuMemsetD8 = [](CUdeviceptr address, unsigned char value, size_t count) {
    return Set8("cuMemsetD8", address, value, count);
  };
  table.cuMemsetD8Async = [](CUdeviceptr address, unsigned char value, size_t count, CUstream) {
    return Set8("cuMemsetD8Async", address, value, count);
  };
  table.cuMemsetD32Async = &Set32;
}

void FillStreams(DriverTable& table) {
  table.cuStreamCreate = [](CUstream* stream, unsigned) {
    return CreateObject("cuStreamCreate", stream);
  };
  table.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
    return CreateObject("cuStreamCreate", stream);
  };
  table.cuStreamDestroy = [](CUstream stream) {
    return DestroyObject("cuStreamDestroy", "cuStreamCreate", stream);
  };
  table.cuStreamSynchronize = [](CUstream) {
    return Call("cuStreamSynchronize", Call::kAcquires).result();
  };
  table.cuStreamQuery = [](CUstream) { return Call("cuStreamQuery", Call::kAcquires).result(); };
  table.cuStreamWaitEvent = [](CUstream, CUevent, unsigned) {
    return Call("cuStreamWaitEvent", Call::kAcquires).result();
  };
  table.cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return Call("cuStreamIsCapturing", Call::kAcquires).result();
  };
}

void FillEvents(DriverTable& table) {
  table.cuEventCreate = [](CUevent* event, unsigned) {
    return CreateObject("cuEventCreate", event);
  };
  table.cuEventDestroy = [](CUevent event) {
    return DestroyObject("cuEventDestroy", "cuEventCreate", event);
  };
  table.cuEventRecord = [](CUevent, CUstream) {
    return Call("cuEventRecord", Call::kAcquires).result();
  };
  table.cuEventSynchronize = [](CUevent) {
    return Call("cuEventSynchronize", Call::kAcquires).result();
  };
  table.cuEventQuery = [](CUevent) { return Call("cuEventQuery", Call::kAcquires).result(); };
  table.cuEventElapsedTime = [](float* milliseconds, CUevent, CUevent) {
    *milliseconds = 1.5f;
    return Call("cuEventElapsedTime", Call::kAcquires).result();
  };
}

CUresult LibraryLoad(CUlibrary* library, const void*, CUjit_option*, void**, unsigned,
                     CUlibraryOption*, void**, unsigned) {
  return CreateObject("cuLibraryLoadData", library);
}

CUresult LibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  Call call("cuLibraryGetKernel", Call::kAcquires);
  if (call.failed()) return call.result();
  if (call.state().objects.count(library) == 0) return CUDA_ERROR_INVALID_HANDLE;
  const auto& known = call.state().known_kernels;
  if (known.has_value() && known->count(name) == 0) return CUDA_ERROR_NOT_FOUND;
  *kernel = reinterpret_cast<CUkernel>(call.state().next_id++);
  call.state().kernels[*kernel] = name;
  return CUDA_SUCCESS;
}

CUresult KernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel, CUdevice) {
  Call call("cuKernelGetAttribute", Call::kAcquires);
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
           : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS            ? 64
                                                                : 0;
  return call.result();
}

void ReadAttributes(const CUlaunchConfig& config, FakeLaunch& launch) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      launch.cluster_x = attribute.value.clusterDim.x;
    }
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
      launch.overlaps_previous = attribute.value.programmaticStreamSerializationAllowed != 0;
    }
  }
}

CUresult Launch(const CUlaunchConfig* config, CUfunction function, void** params, void**) {
  FakeLaunch launch;
  std::function<CUresult(const FakeLaunch&)> callback;
  {
    Call call("cuLaunchKernelEx", Call::kAcquires, true);
    if (call.failed()) return call.result();
    const auto kernel = call.state().kernels.find(reinterpret_cast<CUkernel>(function));
    if (kernel == call.state().kernels.end()) return CUDA_ERROR_INVALID_HANDLE;
    launch.kernel = kernel->second;
    callback = call.state().on_launch;
  }
  launch.config = *config;
  launch.params = params;
  ReadAttributes(*config, launch);
  return callback ? callback(launch) : CUDA_SUCCESS;
}

void FillCode(DriverTable& table) {
  table.cuLibraryLoadData = &LibraryLoad;
  table.cuLibraryUnload = [](CUlibrary library) {
    return DestroyObject("cuLibraryUnload", "cuLibraryLoadData", library);
  };
  table.cuLibraryGetKernel = &LibraryGetKernel;
  table.cuKernelGetFunction = [](CUfunction* function, CUkernel kernel) {
    *function = reinterpret_cast<CUfunction>(kernel);
    return Call("cuKernelGetFunction", Call::kAcquires, true).result();
  };
  table.cuKernelGetAttribute = &KernelGetAttribute;
  table.cuKernelSetAttribute = [](CUfunction_attribute, int, CUkernel, CUdevice) {
    return Call("cuKernelSetAttribute", Call::kAcquires).result();
  };
  table.cuOccupancyMaxActiveBlocksPerMultiprocessor = [](int* blocks, CUfunction, int, size_t) {
    *blocks = 2;
    return Call("cuOccupancyMaxActiveBlocksPerMultiprocessor", Call::kAcquires, true).result();
  };
  table.cuTensorMapEncodeTiled = [](CUtensorMap* map, auto...) {
    std::memset(map, 0, sizeof(*map));
    return Call("cuTensorMapEncodeTiled", Call::kAcquires).result();
  };
  table.cuLaunchKernelEx = &Launch;
}

}  // namespace

void FillWorkCalls(DriverTable& table) {
  FillCopies(table);
  FillStreams(table);
  FillEvents(table);
  FillCode(table);
}

}  // namespace gemmd::cuda

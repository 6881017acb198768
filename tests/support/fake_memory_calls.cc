// Calls of FakeDriver about memory: plain, virtual memory management, inter-process.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "tests/support/fake_state.h"

namespace gemmd::cuda {
namespace {

constexpr char kIpcMagic[] = "fake-ipc";

// Contents of a CUipcMemHandle of this driver.
struct FakeIpcHandle {
  char magic[8];
  int pid;
  int fd;
  uint64_t size;
};
static_assert(sizeof(FakeIpcHandle) <= CU_IPC_HANDLE_SIZE);

void* MapFd(int fd, uint64_t size) {
  return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

int CreateMemfd(uint64_t size) {
  const int fd = memfd_create("fake-gpu", MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(size)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

bool Fits(FakeDriver::State& state, uint64_t size) {
  return size <= state.gpus[0].memory_bytes - state.used_bytes;
}

CUresult MemGetInfo(size_t* free_bytes, size_t* total) {
  Call call("cuMemGetInfo", Call::kAcquires, true);
  if (call.failed()) return call.result();
  *total = call.state().gpus[0].memory_bytes;
  *free_bytes = *total - call.state().used_bytes;
  return CUDA_SUCCESS;
}

// Adds a block over the memfd `fd`, which it takes over.
CUresult AddBlock(Call& call, CUdeviceptr* address, const char* acquired_by, int fd,
                  uint64_t size) {
  void* data = MapFd(fd, size);
  if (data == MAP_FAILED) {
    close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = reinterpret_cast<CUdeviceptr>(data);
  FakeBlock& block = call.state().blocks[*address];
  block.acquired_by = acquired_by;
  block.size = size;
  block.fd = fd;
  block.buffer_id = call.state().next_id++;
  block.legacy_ipc = call.state().legacy_ipc;
  call.Acquired(acquired_by);
  return CUDA_SUCCESS;
}

// Removes the block that starts at `address` if `acquired_by` made it.
CUresult RemoveBlock(Call& call, CUdeviceptr address, const char* acquired_by) {
  auto& blocks = call.state().blocks;
  const auto found = blocks.find(address);
  if (found == blocks.end() || found->second.acquired_by != acquired_by) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  munmap(reinterpret_cast<void*>(address), found->second.size);
  if (found->second.fd >= 0) close(found->second.fd);
  blocks.erase(found);
  call.GivenBack(acquired_by);
  return call.result();
}

CUresult MemAlloc(CUdeviceptr* address, size_t size) {
  Call call("cuMemAlloc", Call::kAcquires, true);
  if (call.failed()) return call.result();
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!Fits(call.state(), size)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int fd = CreateMemfd(size);
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = AddBlock(call, address, "cuMemAlloc", fd, size);
  if (result == CUDA_SUCCESS) call.state().used_bytes += size;
  return result;
}

CUresult MemFree(CUdeviceptr address) {
  Call call("cuMemFree", Call::kTearsDown, true);
  if (call.result() == CUDA_ERROR_INVALID_CONTEXT) return call.result();
  const auto* block = call.state().Find(address);
  if (block != nullptr) call.state().used_bytes -= block->second.size;
  return RemoveBlock(call, address, "cuMemAlloc");
}

CUresult HostAlloc(void** data, size_t size, unsigned) {
  Call call("cuMemHostAlloc", Call::kAcquires, true);
  if (call.failed()) return call.result();
  *data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*data == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  call.state().host[*data] = size;
  call.Acquired("cuMemHostAlloc");
  return CUDA_SUCCESS;
}

CUresult FreeHost(void* data) {
  Call call("cuMemFreeHost", Call::kTearsDown, true);
  const auto found = call.state().host.find(data);
  if (found == call.state().host.end()) return CUDA_ERROR_INVALID_VALUE;
  munmap(data, found->second);
  call.state().host.erase(found);
  call.GivenBack("cuMemHostAlloc");
  return call.result();
}

CUresult HostRegister(void*, size_t, unsigned) {
  Call call("cuMemHostRegister", Call::kAcquires, true);
  if (!call.failed()) call.Acquired("cuMemHostRegister");
  return call.result();
}

CUresult HostUnregister(void*) {
  Call call("cuMemHostUnregister", Call::kTearsDown, true);
  call.GivenBack("cuMemHostRegister");
  return call.result();
}

CUresult HostGetDevicePointer(CUdeviceptr* address, void* data, unsigned) {
  *address = reinterpret_cast<CUdeviceptr>(data);
  return Call("cuMemHostGetDevicePointer", Call::kAcquires, true).result();
}

CUresult GetGranularity(size_t* granularity, const CUmemAllocationProp*,
                        CUmemAllocationGranularity_flags) {
  *granularity = kFakeGranularity;
  return Call("cuMemGetAllocationGranularity", Call::kAcquires).result();
}

CUresult MemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp*,
                   unsigned long long) {
  Call call("cuMemCreate", Call::kAcquires);
  if (call.failed()) return call.result();
  if (size == 0 || size % kFakeGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!Fits(call.state(), size)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int fd = CreateMemfd(size);
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = call.state().next_id++;
  call.state().vmm[*handle] = {fd, size, /*imported=*/false};
  call.state().used_bytes += size;
  call.Acquired("cuMemCreate");
  return CUDA_SUCCESS;
}

CUresult MemRelease(CUmemGenericAllocationHandle handle) {
  Call call("cuMemRelease", Call::kTearsDown);
  const auto found = call.state().vmm.find(handle);
  if (found == call.state().vmm.end()) return CUDA_ERROR_INVALID_VALUE;
  close(found->second.fd);
  if (!found->second.imported) call.state().used_bytes -= found->second.size;
  call.state().vmm.erase(found);
  call.GivenBack("cuMemCreate");
  return call.result();
}

CUresult AddressReserve(CUdeviceptr* address, size_t size, size_t, CUdeviceptr,
                        unsigned long long) {
  Call call("cuMemAddressReserve", Call::kAcquires);
  if (call.failed()) return call.result();
  if (size == 0 || size % kFakeGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  void* data = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(data);
  FakeBlock& block = call.state().blocks[*address];
  block.acquired_by = "cuMemAddressReserve";
  block.size = size;
  block.buffer_id = call.state().next_id++;
  block.legacy_ipc = false;
  call.Acquired("cuMemAddressReserve");
  return CUDA_SUCCESS;
}

CUresult AddressFree(CUdeviceptr address, size_t size) {
  Call call("cuMemAddressFree", Call::kTearsDown);
  const auto* block = call.state().Find(address);
  if (block == nullptr || block->second.size != size || block->second.mapped) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return RemoveBlock(call, address, "cuMemAddressReserve");
}

FakeBlock* Reservation(Call& call, CUdeviceptr address, size_t size) {
  auto* block = call.state().Find(address);
  const bool ok = block != nullptr && block->first == address && block->second.size == size &&
                  block->second.acquired_by == "cuMemAddressReserve";
  return ok ? &block->second : nullptr;
}

CUresult MemMap(CUdeviceptr address, size_t size, size_t offset,
                CUmemGenericAllocationHandle handle, unsigned long long) {
  Call call("cuMemMap", Call::kAcquires);
  if (call.failed()) return call.result();
  FakeBlock* block = Reservation(call, address, size);
  const auto memory = call.state().vmm.find(handle);
  if (block == nullptr || block->mapped || memory == call.state().vmm.end() || offset != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (size != memory->second.size) return CUDA_ERROR_NOT_SUPPORTED;  // as driver 580 on an H200
  mmap(reinterpret_cast<void*>(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->second.fd,
       0);
  block->mapped = true;
  call.Acquired("cuMemMap");
  return CUDA_SUCCESS;
}

CUresult MemUnmap(CUdeviceptr address, size_t size) {
  Call call("cuMemUnmap", Call::kTearsDown);
  FakeBlock* block = Reservation(call, address, size);
  if (block == nullptr || !block->mapped) return CUDA_ERROR_INVALID_VALUE;
  mmap(reinterpret_cast<void*>(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
       -1, 0);
  block->mapped = block->accessible = false;
  call.GivenBack("cuMemMap");
  return call.result();
}

CUresult SetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* access, size_t count) {
  Call call("cuMemSetAccess", Call::kAcquires);
  if (call.failed()) return call.result();
  FakeBlock* block = Reservation(call, address, size);
  if (block == nullptr || !block->mapped || count != 1) return CUDA_ERROR_INVALID_VALUE;
  const bool writable = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  mprotect(reinterpret_cast<void*>(address), size, PROT_READ | (writable ? PROT_WRITE : 0));
  block->accessible = true;
  return CUDA_SUCCESS;
}

CUresult ExportHandle(void* exported, CUmemGenericAllocationHandle handle,
                      CUmemAllocationHandleType, unsigned long long) {
  Call call("cuMemExportToShareableHandle", Call::kAcquires);
  if (call.failed()) return call.result();
  const auto found = call.state().vmm.find(handle);
  if (found == call.state().vmm.end()) return CUDA_ERROR_INVALID_VALUE;
  const int fd = dup(found->second.fd);
  std::memcpy(exported, &fd, sizeof(fd));
  return fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult ImportHandle(CUmemGenericAllocationHandle* handle, void* descriptor,
                      CUmemAllocationHandleType) {
  Call call("cuMemImportFromShareableHandle", Call::kAcquires);
  if (call.failed()) return call.result();
  const int fd =
      fcntl(static_cast<int>(reinterpret_cast<intptr_t>(descriptor)), F_DUPFD_CLOEXEC, 0);
  const off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;
  if (size <= 0) {
    if (fd >= 0) close(fd);
    return CUDA_ERROR_INVALID_VALUE;
  }
  *handle = call.state().next_id++;
  call.state().vmm[*handle] = {fd, static_cast<uint64_t>(size), /*imported=*/true};
  call.Acquired("cuMemCreate");
  return CUDA_SUCCESS;
}

CUresult IpcGet(CUipcMemHandle* handle, CUdeviceptr address) {
  Call call("cuIpcGetMemHandle", Call::kAcquires, true);
  if (call.failed()) return call.result();
  const auto* block = call.state().Find(address);
  if (block == nullptr || !block->second.legacy_ipc) return CUDA_ERROR_INVALID_VALUE;
  FakeIpcHandle contents{{}, getpid(), block->second.fd, block->second.size};
  std::memcpy(contents.magic, kIpcMagic, sizeof(contents.magic));
  std::memset(handle, 0, sizeof(*handle));
  std::memcpy(handle, &contents, sizeof(contents));
  return CUDA_SUCCESS;
}

CUresult IpcOpen(CUdeviceptr* address, CUipcMemHandle handle, unsigned) {
  Call call("cuIpcOpenMemHandle", Call::kAcquires, true);
  if (call.failed()) return call.result();
  FakeIpcHandle contents;
  std::memcpy(&contents, &handle, sizeof(contents));
  if (std::memcmp(contents.magic, kIpcMagic, sizeof(contents.magic)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (contents.pid == getpid() && !call.state().open_own_handles) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const std::string path =
      "/proc/" + std::to_string(contents.pid) + "/fd/" + std::to_string(contents.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  return AddBlock(call, address, "cuIpcOpenMemHandle", fd, contents.size);
}

CUresult IpcClose(CUdeviceptr address) {
  Call call("cuIpcCloseMemHandle", Call::kTearsDown, true);
  if (call.result() == CUDA_ERROR_INVALID_CONTEXT) return call.result();
  return RemoveBlock(call, address, "cuIpcOpenMemHandle");
}

CUresult GetAddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  Call call("cuMemGetAddressRange", Call::kAcquires);
  if (call.failed()) return call.result();
  const auto* block = call.state().Find(address);
  if (block == nullptr) return CUDA_ERROR_NOT_FOUND;
  *base = block->first;
  *size = block->second.size;
  return CUDA_SUCCESS;
}

CUresult PointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  Call call("cuPointerGetAttribute", Call::kAcquires);
  if (call.failed()) return call.result();
  const auto* block = call.state().Find(address);
  if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int capable = block->second.legacy_ipc;
  const int ordinal = 0;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      std::memcpy(value, &capable, sizeof(capable));
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      std::memcpy(value, &ordinal, sizeof(ordinal));
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      std::memcpy(value, &block->second.buffer_id, sizeof(uint64_t));
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult PointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values,
                              CUdeviceptr address) {
  for (unsigned i = 0; i < count; ++i) {
    const CUresult result = PointerGetAttribute(values[i], attributes[i], address);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

void FillMemoryCalls(DriverTable& table) {
  table.cuMemGetInfo = &MemGetInfo;
  table.cuMemAlloc = &MemAlloc;
  table.cuMemFree = &MemFree;
  table.cuMemHostAlloc = &HostAlloc;
  table.cuMemFreeHost = &FreeHost;
  table.cuMemHostRegister = &HostRegister;
  table.cuMemHostUnregister = &HostUnregister;
  table.cuMemHostGetDevicePointer = &HostGetDevicePointer;
  table.cuMemGetAllocationGranularity = &GetGranularity;
  table.cuMemCreate = &MemCreate;
  table.cuMemRelease = &MemRelease;
  table.cuMemAddressReserve = &AddressReserve;
  table.cuMemAddressFree = &AddressFree;
  table.cuMemMap = &MemMap;
  table.cuMemUnmap = &MemUnmap;
  table.cuMemSetAccess = &SetAccess;
  table.cuMemExportToShareableHandle = &ExportHandle;
  table.cuMemImportFromShareableHandle = &ImportHandle;
  table.cuIpcGetMemHandle = &IpcGet;
  table.cuIpcOpenMemHandle = &IpcOpen;
  table.cuIpcCloseMemHandle = &IpcClose;
  table.cuMemGetAddressRange = &GetAddressRange;
  table.cuPointerGetAttribute = &PointerGetAttribute;
  table.cuPointerGetAttributes = &PointerGetAttributes;
}

}  // namespace gemmd::cuda

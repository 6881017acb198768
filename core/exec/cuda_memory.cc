#include "core/exec/cuda_memory.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "kernels/cuda/ipc.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/vmm.h"

namespace gemmd {
namespace {

// (GPU, handle bytes) -> mapping. An entry is opened and closed under its own lock: a close that
// hangs because the exporter dies holds up only those who ask for the same handle.
class IpcTable {
 public:
  using Key = std::pair<int, std::string>;
  struct Entry {
    Mutex mutex;
    std::optional<cuda::IpcMapping> mapping ABSL_GUARDED_BY(mutex);
    int users = 0;  // guarded by the table's mutex
  };

  // Lives until the process ends: mappings may be released by any static destructor before that.
  static IpcTable& Get() {
    static IpcTable& table = *new IpcTable;
    return table;
  }

  absl::StatusOr<std::shared_ptr<Entry>> Acquire(const Key& key, const CudaGpu& gpu,
                                                 uint64_t allocation_size) {
    const std::shared_ptr<Entry> entry = Join(key);
    const absl::Status opened = OpenOnce(*entry, key, gpu, allocation_size);
    if (opened.ok()) return entry;
    Release(key, entry);
    return opened;
  }

  void Release(const Key& key, const std::shared_ptr<Entry>& entry) {
    if (!Leave(*entry)) return;
    MutexLock entry_lock(entry->mutex);
    if (IsUsed(*entry)) return;  // someone came while we waited: the mapping goes on
    entry->mapping.reset();
    MutexLock lock(mutex_);
    if (entry->users == 0) entries_.erase(key);
  }

 private:
  std::shared_ptr<Entry> Join(const Key& key) {
    MutexLock lock(mutex_);
    std::shared_ptr<Entry>& entry = entries_[key];
    if (entry == nullptr) entry = std::make_shared<Entry>();
    ++entry->users;
    return entry;
  }
  // Whether the last user left.
  bool Leave(Entry& entry) {
    MutexLock lock(mutex_);
    return --entry.users == 0;
  }
  bool IsUsed(const Entry& entry) {
    MutexLock lock(mutex_);
    return entry.users > 0;
  }

  static absl::Status OpenOnce(Entry& entry, const Key& key, const CudaGpu& gpu,
                               uint64_t allocation_size) {
    MutexLock lock(entry.mutex);
    if (!entry.mapping.has_value()) {
      const absl::Span<const std::byte> handle(
          reinterpret_cast<const std::byte*>(key.second.data()), key.second.size());
      GEMMD_ASSIGN_OR_RETURN(entry.mapping,
                             cuda::IpcMapping::Open(gpu.driver, handle, allocation_size));
    }
    if (allocation_size <= entry.mapping->size()) return absl::OkStatus();
    return Error(absl::StatusCode::kInvalidArgument, "REGION_OUT_OF_BOUNDS",
                 absl::StrCat("allocation_size ", allocation_size, " is beyond the allocation's ",
                              entry.mapping->size(), " bytes"));
  }

  Mutex mutex_;
  std::map<Key, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
};

class IpcMemory : public Memory {
 public:
  IpcMemory(std::shared_ptr<CudaGpu> gpu, IpcTable::Key key, std::shared_ptr<IpcTable::Entry> entry)
      : gpu_(std::move(gpu)), key_(std::move(key)), entry_(std::move(entry)) {
    MutexLock lock(entry_->mutex);
    address_ = entry_->mapping->address();
    size_ = entry_->mapping->size();
  }
  ~IpcMemory() override {
    const cuda::ScopedContext scope(gpu_->context);
    IpcTable::Get().Release(key_, entry_);
  }
  uintptr_t address() const override { return address_; }
  uint64_t size() const override { return size_; }
  const char* kind() const override { return "cuda_ipc"; }

 private:
  const std::shared_ptr<CudaGpu> gpu_;
  const IpcTable::Key key_;
  const std::shared_ptr<IpcTable::Entry> entry_;
  uintptr_t address_ = 0;
  uint64_t size_ = 0;
};

// Memory whose owner is `Owned`, released with the context current.
template <typename Owned>
class OwnedMemory : public Memory {
 public:
  OwnedMemory(std::shared_ptr<CudaGpu> gpu, Owned owned, uint64_t size, const char* kind)
      : gpu_(std::move(gpu)), owned_(std::move(owned)), size_(size), kind_(kind) {}
  ~OwnedMemory() override {
    const cuda::ScopedContext scope(gpu_->context);
    owned_.reset();
  }
  uintptr_t address() const override { return owned_->address(); }
  uint64_t size() const override { return size_; }
  const char* kind() const override { return kind_; }

 private:
  const std::shared_ptr<CudaGpu> gpu_;
  std::optional<Owned> owned_;
  const uint64_t size_;
  const char* const kind_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Memory>> OpenIpcMemory(std::shared_ptr<CudaGpu> gpu,
                                                      absl::Span<const std::byte> handle,
                                                      uint64_t allocation_size) {
  if (handle.size() != cuda::kIpcHandleBytes) {
    return Error(
        absl::StatusCode::kInvalidArgument, "BAD_HANDLE_SIZE",
        absl::StrCat("the handle has ", handle.size(), " bytes, expected ", cuda::kIpcHandleBytes));
  }
  IpcTable::Key key{gpu->ordinal,
                    std::string(reinterpret_cast<const char*>(handle.data()), handle.size())};
  GEMMD_ASSIGN_OR_RETURN(std::shared_ptr<IpcTable::Entry> entry,
                         IpcTable::Get().Acquire(key, *gpu, allocation_size));
  return std::make_unique<IpcMemory>(std::move(gpu), std::move(key), std::move(entry));
}

absl::StatusOr<std::unique_ptr<Memory>> ImportVmmMemory(std::shared_ptr<CudaGpu> gpu, int fd,
                                                        uint64_t size) {
  GEMMD_ASSIGN_OR_RETURN(cuda::VmmMapping mapping,
                         cuda::VmmMapping::Import(gpu->driver, gpu->ordinal, fd, size,
                                                  /*read_only=*/false));
  const uint64_t mapped = mapping.size();
  return std::make_unique<OwnedMemory<cuda::VmmMapping>>(std::move(gpu), std::move(mapping), mapped,
                                                         "vmm");
}

absl::StatusOr<std::unique_ptr<Memory>> AllocateDeviceMemory(std::shared_ptr<CudaGpu> gpu,
                                                             uint64_t size) {
  GEMMD_ASSIGN_OR_RETURN(cuda::DeviceBuffer buffer, cuda::DeviceBuffer::Create(gpu->driver, size));
  return std::make_unique<OwnedMemory<cuda::DeviceBuffer>>(std::move(gpu), std::move(buffer), size,
                                                           "daemon");
}

}  // namespace gemmd

#include "core/exec/cpu_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

class Mapping : public Memory {
 public:
  Mapping(void* address, uint64_t size, const char* kind)
      : address_(address), size_(size), kind_(kind) {}
  ~Mapping() override { munmap(address_, static_cast<size_t>(size_)); }
  uintptr_t address() const override { return reinterpret_cast<uintptr_t>(address_); }
  uint64_t size() const override { return size_; }
  const char* kind() const override { return kind_; }

 private:
  void* const address_;
  const uint64_t size_;
  const char* const kind_;
};

absl::Status OutOfBounds(absl::string_view message) {
  return Error(absl::StatusCode::kInvalidArgument, "REGION_OUT_OF_BOUNDS", message);
}

absl::Status CheckSize(uint64_t size) {
  constexpr auto kLargest = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (size == 0) return OutOfBounds("size is 0, expected at least 1 byte");
  if (size > kLargest) return OutOfBounds(absl::StrCat("size ", size, " is beyond 2^63"));
  return absl::OkStatus();
}

absl::Status CheckFile(int fd, uint64_t size) {
  struct stat info;
  if (fstat(fd, &info) != 0) {
    return Error(absl::StatusCode::kFailedPrecondition, "IPC_OPEN_FAILED",
                 absl::StrCat("fstat of the passed descriptor: ", std::strerror(errno)));
  }
  const int seals = S_ISREG(info.st_mode) ? fcntl(fd, F_GET_SEALS) : -1;
  if (seals < 0) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_IPC_CAPABLE",
                 "the passed descriptor is not a memfd");
  }
  if ((seals & F_SEAL_SHRINK) == 0) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_IPC_CAPABLE",
                 "the passed memfd is not sealed against shrinking (F_SEAL_SHRINK)");
  }
  if (size > static_cast<uint64_t>(info.st_size)) {
    return OutOfBounds(
        absl::StrCat("size ", size, " is beyond the memfd's ", info.st_size, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Memory>> MapMemfd(int fd, uint64_t size) {
  GEMMD_RETURN_IF_ERROR(CheckSize(size));
  GEMMD_RETURN_IF_ERROR(CheckFile(fd, size));
  void* address =
      mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    return Error(absl::StatusCode::kFailedPrecondition, "IPC_OPEN_FAILED",
                 absl::StrCat("mapping ", size, " bytes of the memfd: ", std::strerror(errno)));
  }
  return std::make_unique<Mapping>(address, size, "memfd");
}

absl::StatusOr<std::unique_ptr<Memory>> AllocateHostMemory(uint64_t size) {
  GEMMD_RETURN_IF_ERROR(CheckSize(size));
  void* address = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    return Error(
        absl::StatusCode::kResourceExhausted, "GPU_OOM",
        absl::StrCat("allocating ", size, " bytes on the CPU device: ", std::strerror(errno)));
  }
  return std::make_unique<Mapping>(address, size, "daemon");
}

}  // namespace gemmd

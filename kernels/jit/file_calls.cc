#include "kernels/jit/file_calls.h"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace gemmd::jit {
namespace {

int Open(const char* path, int flags, mode_t mode) { return open(path, flags, mode); }

long FileSystemType(const char* path) {
  struct statfs info;
  return statfs(path, &info) == 0 ? static_cast<long>(static_cast<uint32_t>(info.f_type)) : -1;
}

}  // namespace

const FileCalls& SystemFileCalls() {
  static constexpr FileCalls kCalls = {&Open, &write, &fsync, &rename, &FileSystemType};
  return kCalls;
}

const char* NetworkFileSystemName(long type) {
  switch (type) {
    case 0x6969:
      return "NFS";
    case 0x517B:
    case 0xFE534D42:
    case 0xFF534D42:
      return "SMB";
    case 0x00C36400:
      return "Ceph";
    case 0x0BD00BD0:
      return "Lustre";
    case 0x47504653:
      return "GPFS";
    case 0x19830326:
      return "BeeGFS";
    case 0x5346414F:
      return "AFS";
    default:
      return nullptr;
  }
}

}  // namespace gemmd::jit

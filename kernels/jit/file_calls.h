// What    The file-system calls that a cache makes when it writes, as a table: tests put in a full
//         disk, a crash at one step, or a network file system.
// Threads The table is constant; the calls are the system's.
#ifndef GEMMD_KERNELS_JIT_FILE_CALLS_H_
#define GEMMD_KERNELS_JIT_FILE_CALLS_H_

#include <sys/types.h>

#include <cstddef>

namespace gemmd::jit {

// Each as the call of its name: -1 and errno on failure.
struct FileCalls {
  int (*open)(const char* path, int flags, mode_t mode);
  ssize_t (*write)(int fd, const void* bytes, size_t size);
  int (*sync)(int fd);
  int (*rename)(const char* from, const char* to);
  // statfs().f_type of the file system that holds `path`, or -1.
  long (*file_system_type)(const char* path);
};

const FileCalls& SystemFileCalls();

// "NFS", "SMB" ... for a file system shared between machines, where flock and rename promise less;
// else nullptr.
const char* NetworkFileSystemName(long type);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_FILE_CALLS_H_

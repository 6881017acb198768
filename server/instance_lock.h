// What    Exclusive ownership of one Unix socket path: flock on "<path>.lock", held while the daemon lives.
//         Under the lock a stale socket file is removed; without it nothing at the path is touched.
// Errors  ALREADY_RUNNING: another process holds the lock, or listens at the path without one.
//         CANNOT_CREATE: something that is no socket is in the way. NOT_PERMITTED.
#ifndef GEMMD_SERVER_INSTANCE_LOCK_H_
#define GEMMD_SERVER_INSTANCE_LOCK_H_

#include <string>

#include "absl/status/statusor.h"

namespace gemmd {

class InstanceLock {
 public:
  static absl::StatusOr<InstanceLock> Acquire(const std::string& socket_path);

  InstanceLock(InstanceLock&& other) noexcept;
  InstanceLock& operator=(InstanceLock&&) = delete;
  // Removes the socket file, then gives up the lock. The lock file stays: removing it would let a third
  // process lock another file of the same name.
  ~InstanceLock();

 private:
  InstanceLock(std::string socket_path, int fd);
  std::string socket_path_;
  int fd_;
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_INSTANCE_LOCK_H_

// What    Host memory that another process can map: a memfd, sealed against any change of its size.
// Why     A memfd that could shrink would kill the daemon with SIGBUS; the daemon refuses unsealed
//         ones.
// Errors  InvalidArgument for size 0; ResourceExhausted when the system refuses.
// Threads Immutable after Create; the bytes are the caller's to synchronise.
#ifndef GEMMD_CLIENT_HOST_ARENA_H_
#define GEMMD_CLIENT_HOST_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace gemmd::client {

class HostArena {
 public:
  static absl::StatusOr<std::shared_ptr<HostArena>> Create(uint64_t bytes, const std::string& name);
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  int fd() const { return fd_; }

 private:
  HostArena(int fd, std::byte* data, uint64_t size) : fd_(fd), data_(data), size_(size) {}
  int fd_;
  std::byte* data_;
  uint64_t size_;
};

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_HOST_ARENA_H_

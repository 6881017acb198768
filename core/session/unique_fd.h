// What    Owner of one file descriptor.
#ifndef GEMMD_CORE_SESSION_UNIQUE_FD_H_
#define GEMMD_CORE_SESSION_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace gemmd {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_SESSION_UNIQUE_FD_H_

#include "kernels/jit/key_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "kernels/jit/files.h"

namespace gemmd::jit {

// The owner unlinks the file before it gives the lock back, so a lock on a file that lost its name
// is worth nothing: take the name's present file instead.
KeyLock::KeyLock(std::filesystem::path path) : path_(std::move(path)) {
  for (int attempt = 0; attempt < 8; ++attempt) {
    const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      state_ = errno == EWOULDBLOCK ? State::kBusy : State::kUnavailable;
      close(fd);
      return;
    }
    if (SameFile(fd, path_)) {
      fd_ = fd;
      state_ = State::kHeld;
      return;
    }
    close(fd);
  }
  state_ = State::kBusy;
}

KeyLock::KeyLock(KeyLock&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), state_(other.state_) {}

KeyLock::~KeyLock() {
  if (fd_ < 0) return;
  unlink(path_.c_str());
  close(fd_);
}

}  // namespace gemmd::jit

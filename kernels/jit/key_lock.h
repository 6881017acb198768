// What    Exclusive right between processes to build one key, or to tidy up: flock on a file that
//         is gone afterwards. The system frees it when its process dies.
// Threads One object, one thread.
#ifndef GEMMD_KERNELS_JIT_KEY_LOCK_H_
#define GEMMD_KERNELS_JIT_KEY_LOCK_H_

#include <filesystem>

namespace gemmd::jit {

class KeyLock {
 public:
  enum class State {
    kHeld,         // ours
    kBusy,         // another process, or another cache of this one, has it
    kUnavailable,  // the directory takes no locks: go on without
  };
  explicit KeyLock(std::filesystem::path path);  // tries once, never waits
  KeyLock(KeyLock&& other) noexcept;
  KeyLock& operator=(KeyLock&&) = delete;
  ~KeyLock();

  State state() const { return state_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  State state_ = State::kUnavailable;
};

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_KEY_LOCK_H_

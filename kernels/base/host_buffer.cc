#include "kernels/base/host_buffer.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <list>
#include <new>

#include "kernels/base/mutex.h"

namespace gemmd {
namespace {

struct Block {
  std::byte* data = nullptr;
  size_t capacity = 0;
};

// Large blocks come from mmap, in whole steps.
constexpr size_t kStep = size_t{64} << 10;

// For AddressSanitizer: nobody may touch a block that is kept.
void Forbid(const Block& block) { ASAN_POISON_MEMORY_REGION(block.data, block.capacity); }
void Allow(const Block& block) { ASAN_UNPOISON_MEMORY_REGION(block.data, block.capacity); }

void Unmap(const Block& block) {
  Allow(block);
  munmap(block.data, block.capacity);
}

// Blocks that nobody uses, those given up first in front.
class KeptBlocks {
 public:
  static KeptBlocks& Get() {
    static auto* const kept = new KeptBlocks;  // buffers outlive static objects
    return *kept;
  }

  // The block given up last that holds `capacity` bytes and not a quarter more; none: no data.
  Block Take(size_t capacity) {
    MutexLock lock(mutex_);
    for (auto it = blocks_.end(); it != blocks_.begin();) {
      --it;
      if (it->capacity < capacity || it->capacity - capacity > capacity / 4) continue;
      const Block block = *it;
      bytes_ -= block.capacity;
      blocks_.erase(it);
      Allow(block);
      return block;
    }
    return {};
  }

  void Keep(const Block& block) {
    std::list<Block> surplus;
    Forbid(block);
    {
      MutexLock lock(mutex_);
      blocks_.push_back(block);
      bytes_ += block.capacity;
      while (bytes_ > HostBuffer::kMostKept) {
        bytes_ -= blocks_.front().capacity;
        surplus.splice(surplus.end(), blocks_, blocks_.begin());
      }
    }
    for (const Block& old : surplus) Unmap(old);
  }

  void Release() {
    std::list<Block> all;
    {
      MutexLock lock(mutex_);
      all.swap(blocks_);
      bytes_ = 0;
    }
    for (const Block& block : all) Unmap(block);
  }

  size_t bytes() {
    MutexLock lock(mutex_);
    return bytes_;
  }

 private:
  Mutex mutex_;
  std::list<Block> blocks_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

Block AllocateLarge(size_t capacity) {
  if (capacity > std::numeric_limits<ptrdiff_t>::max() - kStep) throw std::bad_alloc();
  capacity = (capacity + kStep - 1) / kStep * kStep;
  const Block kept = KeptBlocks::Get().Take(capacity);
  if (kept.data != nullptr) return kept;
  // All pages at once: half the time of one fault for each, and they will all be written. Huge pages were
  // faster still where the kernel had them at hand, and five times slower where it had not.
  void* const memory = mmap(nullptr, capacity, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<std::byte*>(memory), capacity};
}

Block Allocate(size_t capacity) {
  if (capacity == 0) return {};
  if (capacity >= HostBuffer::kLargeBlock) return AllocateLarge(capacity);
  auto* const data = static_cast<std::byte*>(std::malloc(capacity));
  if (data == nullptr) throw std::bad_alloc();
  return {data, capacity};
}

void GiveUp(const Block& block) {
  if (block.capacity >= HostBuffer::kLargeBlock) {
    KeptBlocks::Get().Keep(block);
  } else {
    std::free(block.data);
  }
}

}  // namespace

HostBuffer::~HostBuffer() { GiveUp({data_, capacity_}); }

HostBuffer HostBuffer::Uninitialized(size_t size) {
  const Block block = Allocate(size);
  HostBuffer buffer;
  buffer.data_ = block.data;
  buffer.capacity_ = block.capacity;
  buffer.size_ = size;
  return buffer;
}

void HostBuffer::reserve(size_t capacity) {
  if (capacity <= capacity_) return;
  HostBuffer larger = Uninitialized(capacity);
  if (size_ > 0) std::memcpy(larger.data_, data_, size_);
  larger.size_ = size_;
  swap(larger);
}

void HostBuffer::resize(size_t size, std::byte value) {
  const size_t before = size_;
  if (size > before) {
    GrowFor(size - before);
    std::fill(begin() + before, end(), value);
  }
  size_ = size;
}

void HostBuffer::push_back(std::byte byte) {
  GrowFor(1);
  back() = byte;
}

void HostBuffer::GrowFor(size_t count) {
  if (count > capacity_ - size_) {
    if (count > std::numeric_limits<ptrdiff_t>::max() - size_) throw std::bad_alloc();
    // What is built in one step has no spare memory; what grows doubles.
    reserve(std::max(size_ + count, size_ == 0 ? 0 : 2 * capacity_));
  }
  size_ += count;
}

void HostBuffer::ReleaseKeptMemory() { KeptBlocks::Get().Release(); }

size_t HostBuffer::kept_bytes() { return KeptBlocks::Get().bytes(); }

}  // namespace gemmd

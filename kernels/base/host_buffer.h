// What    Bytes of host memory, for tensors on their way to a device: used like std::vector<std::byte>, but
//         memory that is going to be written anyway need not be cleared first, and the pages of large
//         buffers are used again.
// Why     Clearing and first touching pages took most of the time of loading a checkpoint
//         (tests/bench/loading/README.md).
// Memory  From kLargeBlock on, memory that buffers give up is kept for the next ones, at most kMostKept bytes
//         of it, until ReleaseKeptMemory.
// Errors  std::bad_alloc, as std::vector.
// Threads As std::vector; what is kept is shared by all threads.
#ifndef GEMMD_KERNELS_BASE_HOST_BUFFER_H_
#define GEMMD_KERNELS_BASE_HOST_BUFFER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <utility>

namespace gemmd {

class HostBuffer {
 public:
  static constexpr size_t kLargeBlock = size_t{1} << 20;
  static constexpr size_t kMostKept = size_t{256} << 20;

  using value_type = std::byte;
  using size_type = size_t;
  using difference_type = ptrdiff_t;
  using reference = std::byte&;
  using const_reference = const std::byte&;
  using iterator = std::byte*;
  using const_iterator = const std::byte*;

  HostBuffer() = default;
  explicit HostBuffer(size_t size, std::byte value = std::byte{0}) : HostBuffer(Uninitialized(size)) {
    std::fill(begin(), end(), value);
  }
  template <typename Iterator, typename = typename std::iterator_traits<Iterator>::iterator_category>
  HostBuffer(Iterator first, Iterator last) {
    insert(end(), first, last);
  }
  HostBuffer(std::initializer_list<std::byte> bytes) : HostBuffer(bytes.begin(), bytes.end()) {}
  HostBuffer(const HostBuffer& other) : HostBuffer(other.begin(), other.end()) {}
  HostBuffer(HostBuffer&& other) noexcept { swap(other); }
  HostBuffer& operator=(HostBuffer other) noexcept {
    swap(other);
    return *this;
  }
  ~HostBuffer();

  // Of any content: for memory that is written as a whole.
  static HostBuffer Uninitialized(size_t size);

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  iterator begin() { return data_; }
  iterator end() { return data_ + size_; }
  const_iterator begin() const { return data_; }
  const_iterator end() const { return data_ + size_; }
  std::byte& operator[](size_t index) { return data_[index]; }
  const std::byte& operator[](size_t index) const { return data_[index]; }
  std::byte& front() { return data_[0]; }
  const std::byte& front() const { return data_[0]; }
  std::byte& back() { return data_[size_ - 1]; }
  const std::byte& back() const { return data_[size_ - 1]; }

  void reserve(size_t capacity);
  void resize(size_t size, std::byte value = std::byte{0});  // new bytes are `value`
  void clear() { size_ = 0; }
  void assign(size_t size, std::byte value) { *this = HostBuffer(size, value); }
  template <typename Iterator, typename = typename std::iterator_traits<Iterator>::iterator_category>
  void assign(Iterator first, Iterator last) {
    *this = HostBuffer(first, last);
  }
  void push_back(std::byte byte);
  void pop_back() { --size_; }
  // The bytes inserted are not this buffer's.
  template <typename Iterator>
  iterator insert(const_iterator position, Iterator first, Iterator last) {
    const auto at = position - data_;
    const size_t behind = size_ - static_cast<size_t>(at);
    GrowFor(static_cast<size_t>(std::distance(first, last)));
    std::byte* const gap = data_ + at;
    std::move_backward(gap, gap + behind, end());
    std::copy(first, last, gap);
    return gap;
  }
  void swap(HostBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  friend bool operator==(const HostBuffer& a, const HostBuffer& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

  // Gives the kept memory back to the system.
  static void ReleaseKeptMemory();
  static size_t kept_bytes();

 private:
  // Makes the buffer `count` bytes longer; the new ones have any content.
  void GrowFor(size_t count);

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_BASE_HOST_BUFFER_H_

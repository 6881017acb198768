#include "kernels/base/host_buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <thread>
#include <vector>

namespace gemmd {
namespace {

constexpr size_t kLarge = 4 * HostBuffer::kLargeBlock;

std::vector<std::byte> BytesOf(const HostBuffer& buffer) { return {buffer.begin(), buffer.end()}; }

TEST(HostBufferTest, BehavesLikeAVectorUnderTheSameSteps) {
  uint32_t random = 1;
  const auto next = [&random](uint32_t below) {
    random = random * 1664525 + 1013904223;
    return (random >> 8) % below;
  };
  HostBuffer buffer;
  std::vector<std::byte> vector;
  for (int step = 0; step < 2000; ++step) {
    const auto value = static_cast<std::byte>(next(256));
    switch (next(6)) {
      case 0:
        buffer.push_back(value);
        vector.push_back(value);
        break;
      case 1: {
        const std::vector<std::byte> some(next(50), value);
        const auto at = static_cast<ptrdiff_t>(next(static_cast<uint32_t>(vector.size()) + 1));
        EXPECT_EQ(buffer.insert(buffer.begin() + at, some.begin(), some.end()) - buffer.begin(), at);
        vector.insert(vector.begin() + at, some.begin(), some.end());
        break;
      }
      case 2: {
        const size_t size = next(300);
        buffer.resize(size);
        vector.resize(size);
        break;
      }
      case 3: {
        HostBuffer copy = buffer;
        EXPECT_TRUE(copy == buffer);
        if (!copy.empty()) copy[0] ^= std::byte{1};
        EXPECT_EQ(copy == buffer, copy.empty());
        buffer.swap(copy);
        copy = std::move(buffer);
        buffer = HostBuffer(vector.begin(), vector.end());
        break;
      }
      case 4:
        buffer.reserve(next(400));
        break;
      default:
        if (next(20) == 0) {
          buffer.clear();
          vector.clear();
        }
    }
    ASSERT_EQ(BytesOf(buffer), vector) << "step " << step;
  }
}

TEST(HostBufferTest, IsClearedUnlessAskedOtherwise) {
  for (int round = 0; round < 2; ++round) {  // the second round gets memory that was used
    HostBuffer buffer(kLarge);
    for (size_t i = 0; i < kLarge; i += 4001) ASSERT_EQ(buffer[i], std::byte{0});
    std::memset(buffer.data(), 0xa5, kLarge);
    buffer.resize(kLarge / 2);
    buffer.resize(kLarge);
    EXPECT_EQ(buffer[kLarge / 2 - 1], std::byte{0xa5});
    for (size_t i = kLarge / 2; i < kLarge; i += 4001) ASSERT_EQ(buffer[i], std::byte{0});
  }
}

TEST(HostBufferTest, UsesTheMemoryOfALargeBufferAgain) {
  HostBuffer::ReleaseKeptMemory();
  const std::byte* memory = nullptr;
  {
    const HostBuffer buffer = HostBuffer::Uninitialized(kLarge);
    memory = buffer.data();
  }
  EXPECT_EQ(HostBuffer::kept_bytes(), kLarge);
  {
    const HostBuffer smaller = HostBuffer::Uninitialized(kLarge / 2);
    EXPECT_NE(smaller.data(), memory) << "half of the block would lie idle";
    const HostBuffer same = HostBuffer::Uninitialized(kLarge - 100000);
    EXPECT_EQ(same.data(), memory);
    EXPECT_EQ(HostBuffer::kept_bytes(), 0u);
  }
  HostBuffer::ReleaseKeptMemory();
  EXPECT_EQ(HostBuffer::kept_bytes(), 0u);
}

TEST(HostBufferTest, KeepsNoMoreThanTheLimitAndTheNewestOfIt) {
  HostBuffer::ReleaseKeptMemory();
  constexpr size_t kPart = HostBuffer::kMostKept / 4;
  const std::byte* last = nullptr;
  {
    std::vector<HostBuffer> buffers;
    for (int i = 0; i < 6; ++i) buffers.push_back(HostBuffer::Uninitialized(kPart));
    while (!buffers.empty()) {
      last = buffers.back().data();
      buffers.pop_back();
      EXPECT_LE(HostBuffer::kept_bytes(), HostBuffer::kMostKept);
    }
  }
  EXPECT_EQ(HostBuffer::kept_bytes(), HostBuffer::kMostKept);
  EXPECT_EQ(HostBuffer::Uninitialized(kPart).data(), last);
  { const HostBuffer too_large = HostBuffer::Uninitialized(HostBuffer::kMostKept + 1); }
  EXPECT_LE(HostBuffer::kept_bytes(), HostBuffer::kMostKept);
  HostBuffer::ReleaseKeptMemory();
}

TEST(HostBufferTest, ThrowsWhatAVectorThrowsWhenThereIsNoSuchMemory) {
  EXPECT_THROW(HostBuffer::Uninitialized(SIZE_MAX), std::bad_alloc);
  EXPECT_THROW(HostBuffer::Uninitialized(SIZE_MAX / 2), std::bad_alloc);
  HostBuffer buffer(3, std::byte{7});
  EXPECT_THROW(buffer.resize(SIZE_MAX / 2), std::bad_alloc);
  EXPECT_EQ(buffer, HostBuffer(3, std::byte{7})) << "unchanged";
}

TEST(HostBufferTest, ThreadsNeverShareABlock) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread] {
      for (int round = 0; round < 50; ++round) {
        HostBuffer buffer = HostBuffer::Uninitialized(HostBuffer::kLargeBlock);
        std::memset(buffer.data(), thread + 1, buffer.size());
        const HostBuffer moved = std::move(buffer);
        for (size_t i = 0; i < moved.size(); i += 4096) {
          ASSERT_EQ(moved[i], static_cast<std::byte>(thread + 1));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  HostBuffer::ReleaseKeptMemory();
}

}  // namespace
}  // namespace gemmd

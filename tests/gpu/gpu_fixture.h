// What    Fixture of tests that need a GPU: the first GPU as a Device, random numbers with a
//         printed seed (GEMMD_TEST_SEED repeats a run), layers loaded in parallel because each
//         needs compilations.
// How     GEMMD_CACHE_DIR keeps compiled kernels for the next run. GEMMD_TEST_DEVICE=cpu runs the
//         same cases on the CPU device: it checks the tests themselves. GEMMD_TEST_NO_SELF_TEST=1
//         leaves out the self-tests of kernels, for tools that make them slow.
#ifndef GEMMD_TESTS_GPU_GPU_FIXTURE_H_
#define GEMMD_TESTS_GPU_GPU_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/exec/cuda_device.h"
#include "tests/kernels/device_runner.h"

namespace gemmd::testing {

// GEMMD_TEST_SEED, or one of this run; printed once.
uint64_t TestSeed();

class GpuTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();

  void SetUp() override {
    if (devices_ == nullptr || devices_->empty()) GTEST_SKIP() << "no GPU: " << why_not_;
    runner_ = std::make_unique<DeviceRunner>(*devices_->front());
  }

  Device& device() { return *devices_->front(); }
  DeviceRunner& runner() { return *runner_; }

  std::vector<std::shared_ptr<DeviceLayer>> LoadAll(const std::vector<StandardTensor>& tensors) {
    std::vector<std::shared_ptr<DeviceLayer>> layers(tensors.size());
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t i = next++; i < tensors.size(); i = next++) layers[i] = runner_->Load(tensors[i]);
    };
    std::vector<std::thread> threads;
    const unsigned count = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
    for (unsigned i = 0; i < count; ++i) threads.emplace_back(work);
    for (std::thread& thread : threads) thread.join();
    return layers;
  }

  Random random_{TestSeed()};

 private:
  static inline std::vector<std::unique_ptr<Device>>* devices_ = nullptr;
  static inline std::string why_not_ = "no CUDA driver, or no GPU that gemmd can use";
  std::unique_ptr<DeviceRunner> runner_;
};

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_GPU_GPU_FIXTURE_H_

#include "tests/gpu/gpu_fixture.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/time/clock.h"
#include "core/exec/cpu_device.h"

namespace gemmd::testing {

uint64_t TestSeed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("GEMMD_TEST_SEED");
    const uint64_t value = given != nullptr
                               ? std::strtoull(given, nullptr, 10)
                               : static_cast<uint64_t>(absl::ToUnixMicros(absl::Now()));
    std::printf("GEMMD_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

void GpuTest::SetUpTestSuite() {
  if (devices_ != nullptr) return;
  const char* kind = std::getenv("GEMMD_TEST_DEVICE");
  if (kind != nullptr && std::strcmp(kind, "cpu") == 0) {
    devices_ = new std::vector<std::unique_ptr<Device>>;
    devices_->push_back(CreateCpuDevice({}));
    return;
  }
  const char* cache = std::getenv("GEMMD_CACHE_DIR");
  const bool self_test = std::getenv("GEMMD_TEST_NO_SELF_TEST") == nullptr;
  auto devices =
      CreateCudaDevices({.cache_directory = cache == nullptr ? "" : cache, .self_test = self_test});
  if (!devices.ok()) {
    why_not_ = devices.status().ToString();
    return;
  }
  // Kept until the process ends: every suite uses the same device and its compiled kernels.
  devices_ = new std::vector<std::unique_ptr<Device>>(*std::move(devices));
  for (const auto& device : *devices_) {
    const DeviceDescription& description = device->description();
    std::printf("%s: %s, %s, %d SMs\n", description.id.c_str(), description.name.c_str(),
                description.architecture.c_str(), description.multiprocessors);
  }
}

void GpuTest::TearDownTestSuite() {}

}  // namespace gemmd::testing

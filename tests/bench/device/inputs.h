// What    Activations and their scales on the GPU, once per type and K for the largest M; the first
//         m rows serve every smaller M. The host's copy of a row is there for the reference.
// Shapes  x [most_m, k] and x scales float32 [most_m, columns], row-major and dense.
// Errors  As cuda::DeviceBuffer and the driver.
// Threads One thread, with the context current.
#ifndef GEMMD_TESTS_BENCH_DEVICE_INPUTS_H_
#define GEMMD_TESTS_BENCH_DEVICE_INPUTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/quant/standard_tensor.h"
#include "kernels/cuda/memory.h"
#include "tests/bench/host/bench_format.h"

namespace gemmd::bench {

class Inputs {
 public:
  Inputs(const cuda::DriverTable& driver, int64_t most_m, uint64_t seed)
      : driver_(&driver), most_m_(most_m), seed_(seed) {}

  struct Matrix {
    uintptr_t address = 0;
    const std::byte* host = nullptr;
    int64_t row_bytes = 0;
  };
  absl::StatusOr<Matrix> Activations(const NumberFormat& type, int64_t k);
  absl::StatusOr<Matrix> Scales(const NumberFormat& type, int64_t columns);

 private:
  struct Entry {
    Buffer host;
    cuda::DeviceBuffer device;
  };
  absl::StatusOr<Matrix> Place(const std::string& key, Buffer host, int64_t row_bytes);
  static std::string Key(const char* kind, const NumberFormat& type, int64_t columns);

  const cuda::DriverTable* driver_;
  int64_t most_m_;
  uint64_t seed_;
  std::map<std::string, Entry> entries_;
};

// A copy of one row.
Buffer HostRow(const Inputs::Matrix& matrix, int64_t row);

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_DEVICE_INPUTS_H_

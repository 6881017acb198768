#include "tests/bench/device/inputs.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "tests/bench/host/random_inputs.h"

namespace gemmd::bench {

std::string Inputs::Key(const char* kind, const NumberFormat& type, int64_t columns) {
  return absl::StrCat(kind, " ", static_cast<int>(type.kind), " ", type.bits, " ",
                      type.exponent_bits, " ", columns);
}

absl::StatusOr<Inputs::Matrix> Inputs::Place(const std::string& key, Buffer host,
                                             int64_t row_bytes) {
  GEMMD_ASSIGN_OR_RETURN(cuda::DeviceBuffer device,
                         cuda::DeviceBuffer::Create(*driver_, host.size()));
  GEMMD_CUDA(*driver_, cuMemcpyHtoD, device.address(), host.data(), host.size());
  const auto placed = entries_.emplace(key, Entry{std::move(host), std::move(device)}).first;
  return Matrix{placed->second.device.address(), placed->second.host.data(), row_bytes};
}

absl::StatusOr<Inputs::Matrix> Inputs::Activations(const NumberFormat& type, int64_t k) {
  const std::string key = Key("x", type, k);
  const int64_t row_bytes = k * type.bits / 8;
  if (const auto found = entries_.find(key); found != entries_.end()) {
    return Matrix{found->second.device.address(), found->second.host.data(), row_bytes};
  }
  return Place(key, RandomActivations(type, most_m_ * k, seed_ + entries_.size()), row_bytes);
}

absl::StatusOr<Inputs::Matrix> Inputs::Scales(const NumberFormat& type, int64_t columns) {
  const std::string key = Key("scale", type, columns);
  const int64_t row_bytes = columns * 4;
  if (const auto found = entries_.find(key); found != entries_.end()) {
    return Matrix{found->second.device.address(), found->second.host.data(), row_bytes};
  }
  const std::vector<float> scales =
      RandomActivationScales(type, most_m_ * columns, seed_ + entries_.size());
  Buffer bytes(scales.size() * 4);
  std::memcpy(bytes.data(), scales.data(), bytes.size());
  return Place(key, std::move(bytes), row_bytes);
}

Buffer HostRow(const Inputs::Matrix& matrix, int64_t row) {
  const std::byte* begin = matrix.host + row * matrix.row_bytes;
  return Buffer(begin, begin + matrix.row_bytes);
}

}  // namespace gemmd::bench

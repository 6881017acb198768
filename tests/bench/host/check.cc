#include "tests/bench/host/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "absl/types/span.h"
#include "core/quant/reference.h"
#include "tests/bench/host/random_inputs.h"

namespace gemmd::bench {
namespace {

constexpr int64_t kMostColumns = 256;
constexpr double kLargestRatio16 = 1.25;
constexpr double kLargestExcess8 = 1e-3;

double Decode(const NumberFormat& type, const std::byte* element) {
  if (type == kInt8) return static_cast<double>(std::to_integer<int8_t>(*element));
  uint32_t code = 0;
  std::memcpy(&code, element, type.bits / 8);
  return DecodeNumber(type, code);
}

double Round(const NumberFormat& type, double value) {
  return DecodeNumber(type, EncodeNumber(type, value));
}

// One sampled row of x with its scales applied.
std::vector<double> DecodeActivations(const BenchFormat& format, int64_t k, const Buffer& row,
                                      const std::vector<float>& scales) {
  std::vector<double> values(static_cast<size_t>(k));
  const int64_t group = format.x_scale_group > 0 ? format.x_scale_group : k;
  for (int64_t i = 0; i < k; ++i) {
    const double scale = scales.empty() ? 1 : static_cast<double>(scales[i / group]);
    values[i] = Decode(format.x, row.data() + i * (format.x.bits / 8)) * scale;
  }
  return values;
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

std::vector<int64_t> SampleRows(int64_t extent, int64_t most, uint64_t seed) {
  std::set<int64_t> rows;
  if (extent <= most) {
    for (int64_t i = 0; i < extent; ++i) rows.insert(i);
  } else {
    rows = {0, extent - 1};
    FastRandom random(seed);
    while (static_cast<int64_t>(rows.size()) < most) {
      rows.insert(static_cast<int64_t>(random.Next() % static_cast<uint64_t>(extent)));
    }
  }
  return {rows.begin(), rows.end()};
}

SampleChecker::SampleChecker(const BenchFormat& format, const StandardTensor& tensor, uint64_t seed)
    : format_(format), n_(tensor.shape.n), k_(tensor.shape.k) {
  for (const int64_t index : SampleRows(n_, kMostColumns, seed)) {
    Column column{index, std::vector<double>(static_cast<size_t>(k_)), {}};
    DequantizeRow(tensor, 0, index, absl::MakeSpan(column.exact));
    if (format_.x.bits == 16) {
      column.control = column.exact;
      for (double& weight : column.control) weight = Round(format_.x, weight);
    }
    columns_.push_back(std::move(column));
  }
}

int64_t SampleChecker::CountUnwritten(const Buffer& y) const {
  const uint32_t infinity = ((1u << format_.y.exponent_bits) - 1) << format_.y.mantissa_bits;
  int64_t count = 0;
  for (size_t at = 0; at + 2 <= y.size(); at += 2) {
    uint16_t code;
    std::memcpy(&code, y.data() + at, 2);
    count += (code & 0x7fffu) > infinity;
  }
  return count;
}

CheckResult SampleChecker::Compare(const std::vector<Buffer>& x,
                                   const std::vector<std::vector<float>>& x_scales,
                                   const std::vector<Buffer>& y) const {
  CheckResult result;
  double norm = 0, error = 0, control_error = 0;
  for (size_t row = 0; row < x.size(); ++row) {
    const std::vector<double> values = DecodeActivations(
        format_, k_, x[row], x_scales.empty() ? std::vector<float>() : x_scales[row]);
    for (const Column& column : columns_) {
      const double want = Dot(values, column.exact);
      const double control =
          Round(format_.y, column.control.empty() ? want : Dot(values, column.control));
      const double got = Decode(format_.y, y[row].data() + column.index * (format_.y.bits / 8));
      norm += want * want;
      error += (got - want) * (got - want);
      control_error += (control - want) * (control - want);
      ++result.elements;
    }
    result.inspected += n_;
    result.unwritten += CountUnwritten(y[row]);
  }
  result.error = std::sqrt(error / norm);
  result.control_error = std::sqrt(control_error / norm);
  const double bar = format_.x.bits == 16 ? kLargestRatio16 * result.control_error
                                          : result.control_error + kLargestExcess8;
  result.passed = result.unwritten == 0 && result.error <= bar;  // false for NaN
  return result;
}

}  // namespace gemmd::bench

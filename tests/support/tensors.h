// What    Host matrices for tests, and what random_tensor.h makes. Values are small, so that sums
//         stay exact or nearly so.
#ifndef GEMMD_TESTS_SUPPORT_TENSORS_H_
#define GEMMD_TESTS_SUPPORT_TENSORS_H_

#include <cstring>
#include <functional>
#include <vector>

#include "core/exec/device.h"
#include "tests/support/random_tensor.h"

namespace gemmd::testing {

// A row-major matrix in host memory with `padding` unused elements after each row.
class HostMatrix {
 public:
  HostMatrix(const NumberFormat& type, int64_t rows, int64_t columns, int64_t padding = 0)
      : type_(type), rows_(rows), columns_(columns), stride_(columns + padding) {
    bytes_.assign(static_cast<size_t>(rows * stride_ * type.bits / 8 + 64), std::byte{0xa5});
  }

  MatrixView view() {
    MatrixView view;
    view.address = reinterpret_cast<uintptr_t>(bytes_.data());
    view.type = type_;
    view.is_signed_int = type_.kind == NumberKind::kInteger;
    view.rows = rows_;
    view.columns = columns_;
    view.row_stride = stride_;
    return view;
  }

  void SetCode(int64_t row, int64_t column, uint32_t code) {
    std::memcpy(At(row, column), &code, static_cast<size_t>(type_.bits / 8));
  }
  uint32_t Code(int64_t row, int64_t column) {
    uint32_t code = 0;
    std::memcpy(&code, At(row, column), static_cast<size_t>(type_.bits / 8));
    return code;
  }
  void Set(int64_t row, int64_t column, double value) {
    const bool integer = type_.kind == NumberKind::kInteger;
    SetCode(
        row, column,
        integer ? static_cast<uint32_t>(static_cast<int32_t>(value)) : EncodeNumber(type_, value));
  }
  double Get(int64_t row, int64_t column) {
    const uint32_t code = Code(row, column);
    if (type_.kind != NumberKind::kInteger) return DecodeNumber(type_, code);
    return type_.bits == 8 ? static_cast<int8_t>(code) : static_cast<int32_t>(code);
  }
  void Fill(const std::function<double(int64_t, int64_t)>& value) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < columns_; ++c) Set(r, c, value(r, c));
    }
  }
  void FillRandom(Random& random) {
    Fill([&](int64_t, int64_t) { return static_cast<double>(Uniform(random, -16, 16)) / 8; });
  }
  void FillIntegers(Random& random) {
    Fill([&](int64_t, int64_t) { return static_cast<double>(Uniform(random, -4, 4)); });
  }

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::byte* At(int64_t row, int64_t column) {
    return bytes_.data() + (row * stride_ + column) * type_.bits / 8;
  }

  const NumberFormat type_;
  const int64_t rows_;
  const int64_t columns_;
  const int64_t stride_;
  std::vector<std::byte> bytes_;
};

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_SUPPORT_TENSORS_H_

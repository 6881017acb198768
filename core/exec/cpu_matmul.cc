#include "core/exec/cpu_matmul.h"

#include <cblas.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "core/quant/reference.h"

namespace gemmd {

Scratch::Scratch(int64_t count) {
  constexpr size_t kAlignment = 64;
  const size_t bytes = (static_cast<size_t>(count) * sizeof(double) + kAlignment - 1) / kAlignment;
  data_.reset(
      static_cast<double*>(std::aligned_alloc(kAlignment, bytes * kAlignment + kAlignment)));
  if (data_ == nullptr) throw std::bad_alloc();
}

void Scratch::Free::operator()(double* data) const { std::free(data); }

int64_t WeightBlockRows(int64_t n, int64_t k) {
  constexpr int64_t kBlockBytes = int64_t{4} << 20;
  const int64_t fitting = kBlockBytes / (PaddedColumns(k) * static_cast<int64_t>(sizeof(double)));
  return std::min(n, std::clamp<int64_t>(fitting, 8, 256));
}

void DequantizeRows(const StandardTensor& tensor, int64_t expert, absl::Span<const int64_t> rows,
                    double* w) {
  const int64_t k = tensor.shape.k;
  for (size_t i = 0; i < rows.size(); ++i) {
    double* row = w + static_cast<int64_t>(i) * PaddedColumns(k);
    DequantizeRow(tensor, expert, rows[i], absl::MakeSpan(row, static_cast<size_t>(k)));
  }
}

void ZeroPadding(double* x, int64_t rows, int64_t k) {
  const int64_t ld = PaddedColumns(k);
  std::fill(x + rows * ld, x + PaddedRows(rows) * ld, 0.0);
}

namespace {

// Tokens are the columns' fast dimension (the BLAS's M), so every call computes whole register
// tiles. Small products go tile by tile: for them some BLAS versions choose their kernel by the
// total size.
void MultiplyMatrix(const double* x, int64_t rows, const double* w, int64_t n, int64_t k,
                    double* out) {
  constexpr int64_t kSmallWeights = int64_t{1} << 17;
  const int64_t padded = PaddedRows(rows);
  const int64_t step = n * k < kSmallWeights ? 16 : padded;
  const int ld = static_cast<int>(PaddedColumns(k));
  for (int64_t first = 0; first < padded; first += step) {
    cblas_dgemm(CblasColMajor, CblasTrans, CblasNoTrans, static_cast<int>(step),
                static_cast<int>(n), static_cast<int>(k), 1.0, x + first * ld, ld, w, ld, 0.0,
                out + first, static_cast<int>(padded));
  }
}

void MultiplyRowByRow(const double* x, int64_t rows, const double* w, int64_t n, int64_t k,
                      double* out) {
  const int64_t ld = PaddedColumns(k);
  const int64_t padded = PaddedRows(rows);
  Scratch product(n);
  for (int64_t m = 0; m < rows; ++m) {
    std::fill_n(product.data(), n, 0.0);
    cblas_dgemv(CblasRowMajor, CblasNoTrans, static_cast<int>(n), static_cast<int>(k), 1.0, w,
                static_cast<int>(ld), x + m * ld, 1, 0.0, product.data(), 1);
    for (int64_t i = 0; i < n; ++i) out[i * padded + m] = product.data()[i];
  }
}

}  // namespace

void Multiply(Order order, const double* x, int64_t rows, const double* w, int64_t n, int64_t k,
              double* out) {
  // Zeroed first: some BLAS versions multiply the old output by beta = 0, which keeps a NaN.
  std::fill_n(out, PaddedRows(rows) * n, 0.0);
  if (order == Order::kMatrix) return MultiplyMatrix(x, rows, w, n, k, out);
  MultiplyRowByRow(x, rows, w, n, k, out);
}

void UseOneBlasThread() { openblas_set_num_threads(1); }

}  // namespace gemmd

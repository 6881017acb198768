#include "core/exec/cpu_gemm.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/exec/cpu_numbers.h"
#include "core/exec/cpu_quantize.h"
#include "core/exec/cpu_stop.h"
#include "core/quant/hadamard.h"
#include "core/quant/input_scale.h"
#include "core/quant/reference.h"

namespace gemmd {
namespace {

// Rows of x held as doubles at a time, together with their products with `block_rows` weight rows.
int64_t RowsAtATime(int64_t m, int64_t k, int64_t block_rows) {
  constexpr int64_t kInput = (int64_t{64} << 20) / int64_t{sizeof(double)};
  constexpr int64_t kOutput = (int64_t{16} << 20) / int64_t{sizeof(double)};
  const int64_t fitting = std::min(kInput / PaddedColumns(k), kOutput / block_rows);
  return std::min(m, std::max<int64_t>(fitting, 16));
}

// The layer's static activation scale; 1 without one.
double StaticScale(const StandardTensor& tensor) {
  if (tensor.activation_scale.size() < sizeof(float)) return 1.0;
  float scale;
  std::memcpy(&scale, tensor.activation_scale.data(), sizeof(scale));
  return static_cast<double>(scale);
}

// The layer's static zero point of activations; 0 without one.
double StaticZeroPoint(const StandardTensor& tensor) {
  if (tensor.activation_zero_point.size() < sizeof(int16_t)) return 0.0;
  int16_t zero_point;
  std::memcpy(&zero_point, tensor.activation_zero_point.data(), sizeof(zero_point));
  return static_cast<double>(zero_point);
}

// Exact: a float32 times an 8-bit number has at most 32 significant bits. But for the transform.
void ApplyScales(const StandardTensor& tensor, const GemmCall& call, int64_t row, double* values) {
  const int64_t k = call.x.columns;
  const absl::Span<double> whole = absl::MakeSpan(values, static_cast<size_t>(k));
  if (MultipliesInput(tensor, call.x.type)) MultiplyInputScale(tensor, 0, whole);
  if (call.hadamard_block > 0) TransformByHadamard(call.hadamard_block, whole);
  if (QuantizesX(tensor, call.x.type)) {
    QuantizeX(tensor, whole);
    return;
  }
  if (!call.x_scale.has_value()) {
    if (call.x.type.bits != 8) return;
    const double zero_point = StaticZeroPoint(tensor);
    const double scale = StaticScale(tensor);
    std::for_each(values, values + k, [=](double& v) { v = (v - zero_point) * scale; });
    return;
  }
  std::vector<double> scales(static_cast<size_t>(call.x_scale->columns));
  ReadRow(*call.x_scale, row, scales.data());
  const int64_t group = scales.size() == 1 ? k : tensor.spec.activation_group;
  for (int64_t column = 0; column < k; ++column) {
    values[column] *= scales[static_cast<size_t>(column / group)];
  }
}

struct Block {
  int64_t first_column;  // of y
  int64_t columns;
  int64_t first_row;
  int64_t rows;
};

// Adds bias and rounds one block of the transposed product into y.
void StoreBlock(const StandardTensor& tensor, const MatrixView& y, const Block& block,
                const double* product) {
  std::vector<double> bias(static_cast<size_t>(block.columns));
  for (int64_t i = 0; i < block.columns; ++i) {
    bias[static_cast<size_t>(i)] = Bias(tensor, 0, block.first_column + i);
  }
  const bool has_bias = tensor.spec.bias.present();
  std::vector<double> row(static_cast<size_t>(block.columns));
  for (int64_t m = 0; m < block.rows; ++m) {
    for (int64_t i = 0; i < block.columns; ++i) {
      const double value = product[i * PaddedRows(block.rows) + m];
      row[static_cast<size_t>(i)] = has_bias ? value + bias[static_cast<size_t>(i)] : value;
    }
    WriteRow(y, block.first_row + m, block.first_column, row.data(), block.columns);
  }
}

}  // namespace

void ReadActivations(ThreadPool& pool, const StandardTensor& tensor, const GemmCall& call,
                     int64_t first, int64_t rows, double* out) {
  const int64_t ld = PaddedColumns(call.x.columns);
  constexpr int64_t kRowsPerTask = 16;
  pool.ParallelFor((rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task) {
    const int64_t end = std::min(rows, (task + 1) * kRowsPerTask);
    for (int64_t m = task * kRowsPerTask; m < end; ++m) {
      ReadRow(call.x, first + m, out + m * ld);
      ApplyScales(tensor, call, first + m, out + m * ld);
    }
  });
}

absl::Status RunCpuGemm(ThreadPool& pool, const StandardTensor& tensor, const GemmCall& call) {
  const auto [experts, n, k] = tensor.shape;
  const int64_t m = call.x.rows;
  if (m == 0) return absl::OkStatus();
  const Order order = call.batch_invariant ? Order::kRowByRow : Order::kMatrix;
  const int64_t block_rows = WeightBlockRows(n, k);
  const int64_t slab = RowsAtATime(m, k, block_rows);
  StopCheck stop(call.stop);
  Scratch x(PaddedRows(slab) * PaddedColumns(k));
  for (int64_t first = 0; first < m; first += slab) {
    if (stop.stopped()) return stop.status();
    const int64_t rows = std::min(slab, m - first);
    ReadActivations(pool, tensor, call, first, rows, x.data());
    ZeroPadding(x.data(), rows, k);
    pool.ParallelFor((n + block_rows - 1) / block_rows, [&, n = n, k = k](int64_t index) {
      if (stop.stopped()) return;
      const Block block{index * block_rows, std::min(block_rows, n - index * block_rows), first,
                        rows};
      std::vector<int64_t> weight_rows(static_cast<size_t>(block.columns));
      std::iota(weight_rows.begin(), weight_rows.end(), block.first_column);
      Scratch w(block.columns * PaddedColumns(k));
      Scratch product(block.columns * PaddedRows(rows));
      DequantizeRows(tensor, 0, weight_rows, w.data());
      Multiply(order, x.data(), rows, w.data(), block.columns, k, product.data());
      StoreBlock(tensor, call.y, block, product.data());
    });
  }
  return stop.status();
}

CallReport ReportFor(const NumberFormat& wanted, const NumberFormat& x, Order order,
                     const std::string& why) {
  CallReport report;
  report.kernel = order == Order::kMatrix ? "cpu_dgemm" : "cpu_dgemv";
  report.activation_used = x;
  if (wanted.present() && !(wanted == x)) {
    report.reason = absl::StrCat("the layer asks for ", FormatName(wanted),
                                 " activations; x is ", FormatName(x), " and is used as it is");
    if (wanted.bits < x.bits) absl::StrAppend(&report.reason, ": ", why);
  }
  return report;
}

}  // namespace gemmd

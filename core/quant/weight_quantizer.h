// What    Quantizes weights that come row by row: a layer needs no copy of itself in float32.
// Memory  The result, and of one expert at a time its blocks of scales (24 bytes each) and its rows
//         (16 bytes each); a row of float32 for each thread.
// Rules   README.md, "Scale rules".
// Errors  InvalidArgument NOT_FINITE naming the first weight; Cancelled.
// Threads Run() belongs to one thread; `parallel` calls `read` from several. `progress` is called by the thread of
//         Run() only.
#ifndef GEMMD_CORE_QUANT_WEIGHT_QUANTIZER_H_
#define GEMMD_CORE_QUANT_WEIGHT_QUANTIZER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/quant/code_encoder.h"
#include "core/quant/scale_rule.h"
#include "core/quant/slice.h"
#include "core/quant/standard_tensor.h"
#include "kernels/base/mutex.h"

namespace gemmd {

// How a long quantization is run, and told of.
struct QuantizeWork {
  // Calls body(i) once for every i in [0, count) and returns when all are done; null: one after the other.
  std::function<void(int64_t count, const std::function<void(int64_t)>& body)> parallel;
  // Called first, then after every 16 Mi weights or less. Passes over rows, done and in all, two of each row.
  // Returns false to cancel. May be null.
  std::function<bool(int64_t done, int64_t total)> progress;
};

// Sums over all weights, in double precision.
struct QuantizationError {
  double error_square = 0;   // of what was rounded off
  double weight_square = 0;  // of what was there

  double relative() const;  // Frobenius; 0 where all weights are 0
  void Add(const QuantizationError& other);
};

class WeightQuantizer {
 public:
  using Read = std::function<void(int64_t expert, int64_t row, absl::Span<float> out)>;

  // `out` has a valid spec, shape and scale_columns; its buffers have their sizes.
  WeightQuantizer(Read read, ScaleRule rule, const QuantizeWork& work, StandardTensor& out);

  absl::Status Run();

  const QuantizationError& error() const { return error_; }

 private:
  struct NotFinite {
    int64_t row = 0;
    int64_t column = 0;
    float value = 0;
  };

  int64_t Cell(int64_t row, int64_t column) const {
    return row / block_n_ * out_.scale_columns + column;
  }
  absl::Span<const float> BlockOfRow(absl::Span<const float> row, int64_t column) const;
  static std::optional<NotFinite> FirstNotFinite(absl::Span<const float> row_values, int64_t row);
  absl::Status Report();  // Cancelled
  // `body` for all pieces, rows, blocks; Cancelled.
  absl::Status Parallel(int64_t count, int64_t at_a_time, const std::function<void(int64_t)>& body);
  absl::Status ForRows(const std::function<void(Range)>& body);
  absl::Status ForCells(const std::function<void(int64_t)>& body);
  absl::Status Expert(int64_t expert);
  absl::Status CollectRanges(int64_t expert);
  void RangesOf(int64_t expert, Range rows);
  double Ideal(const ValueRange& range) const;
  absl::Status SetScales(int64_t expert);
  void SetSecondary(int64_t expert);
  float SecondaryOf(int64_t first, int64_t last) const;
  void SetScale(int64_t expert, int64_t cell);
  void SetZeroPoint(int64_t cell, int64_t index);
  uint32_t Finite(uint32_t code, int64_t cell) const;
  void SetRow(int64_t expert, int64_t row, absl::Span<const float> values, absl::Span<uint8_t> codes);
  void SetWideRow(int64_t row, absl::Span<const float> values, std::byte* to);
  void AddError(absl::Span<const float> values, const uint8_t* codes, int64_t cell,
                QuantizationError& error) const;

  const Read read_;
  const ScaleRule rule_;
  const QuantizeWork& work_;
  StandardTensor& out_;
  const QuantSpec& spec_;
  const bool asymmetric_;
  const bool powers_;  // scales are powers of two
  const bool wide_;    // weights of 16 and 32 bits
  const int64_t block_n_;
  const int64_t block_k_;
  std::optional<CodeEncoder> encoder_;
  QuantizationError error_;
  std::atomic<int64_t> passes_done_{0};  // over rows

  Mutex mutex_;
  std::optional<NotFinite> not_finite_ ABSL_GUARDED_BY(mutex_);  // the first
  // Of one expert's blocks, as all that follows.
  std::vector<ValueRange> ranges_;
  std::vector<double> ideal_;
  std::vector<float> secondary_;  // per row
  std::vector<float> factors_;    // scale times secondary scale
  std::vector<float> zero_points_;
  std::vector<QuantizationError> row_errors_;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_WEIGHT_QUANTIZER_H_

#include "core/quant/weight_quantizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/quant/bit_row.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

constexpr int64_t kWeightsAtATime = int64_t{1} << 18;  // that one thread takes
constexpr int64_t kCellsAtATime = int64_t{1} << 14;
constexpr int64_t kPiecesAtATime = 64;  // between two looks at `progress`, of that many weights; fewer of longer rows
constexpr int64_t kPasses = 2;  // over the weights: ranges, then codes
constexpr double kLargestFloat = std::numeric_limits<float>::max();
constexpr double kEnlarged = 0x1p64;
constexpr double kSmallestFloat = std::numeric_limits<float>::denorm_min();
constexpr double kSmallestNormal = std::numeric_limits<float>::min();
constexpr float kNearTheEnd = 0x1p125f;  // of float32: a code may stand for more

template <typename T>
void Store(T value, int64_t index, Buffer& buffer) {
  std::memcpy(buffer.data() + index * sizeof(value), &value, sizeof(value));
}

void StoreScale(const NumberFormat& format, uint32_t code, int64_t index, Buffer& buffer) {
  switch (format.bits) {
    case 8:
      return Store(static_cast<uint8_t>(code), index, buffer);
    case 16:
      return Store(static_cast<uint16_t>(code), index, buffer);
    default:
      return Store(code, index, buffer);
  }
}

// Floats as integers of the same order; -0 lies below 0.
int32_t OrderOf(float value) {
  const auto bits = std::bit_cast<int32_t>(value);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
float FromOrder(int32_t order) { return std::bit_cast<float>(order ^ ((order >> 31) & 0x7fffffff)); }

// As RangeOf where all are finite; else one end is not. Integers are compared: the processor's vectors do many.
ValueRange QuickRangeOf(absl::Span<const float> values) {
  int32_t low = 0;
  int32_t high = 0;
  for (const float value : values) {
    const int32_t order = OrderOf(value);
    low = std::min(low, order);
    high = std::max(high, order);
  }
  return {FromOrder(low) + 0.0f, FromOrder(high)};
}

bool IsFinite(const ValueRange& range) { return std::isfinite(range.low) && std::isfinite(range.high); }

// Of weights whose scale has few bits left in float32, or none.
ValueRange Enlarged(const ValueRange& range) {
  return {static_cast<float>(range.low * kEnlarged), static_cast<float>(range.high * kEnlarged)};
}

int64_t BlockOf(int64_t block, int64_t extent) { return block == 0 ? extent : std::min(block, extent); }

}  // namespace

double QuantizationError::relative() const {
  return weight_square > 0 ? std::sqrt(error_square / weight_square) : 0;
}

void QuantizationError::Add(const QuantizationError& other) {
  error_square += other.error_square;
  weight_square += other.weight_square;
}

WeightQuantizer::WeightQuantizer(Read read, ScaleRule rule, const QuantizeWork& work,
                                 StandardTensor& out)
    : read_(std::move(read)),
      rule_(rule),
      work_(work),
      out_(out),
      spec_(out.spec),
      asymmetric_(spec_.zero_point != ZeroPointKind::kNone),
      powers_(spec_.scale == kFloat8E8M0),
      wide_(spec_.weight.bits > 8),
      block_n_(BlockOf(spec_.scale_block_n, out.shape.n)),
      block_k_(BlockOf(spec_.scale_block_k, out.shape.k)) {
  if (!wide_) encoder_.emplace(spec_.weight, rule, asymmetric_);
}

absl::Status WeightQuantizer::Run() {
  GEMMD_RETURN_IF_ERROR(Report());
  for (int64_t expert = 0; expert < out_.shape.experts; ++expert) {
    GEMMD_RETURN_IF_ERROR(Expert(expert));
  }
  return absl::OkStatus();
}

// In pieces, between which the caller may cancel.
absl::Status WeightQuantizer::Parallel(int64_t count, int64_t at_a_time,
                                       const std::function<void(int64_t)>& body) {
  for (int64_t first = 0; first < count; first += at_a_time) {
    const int64_t pieces = std::min(at_a_time, count - first);
    if (work_.parallel != nullptr && pieces > 1) {
      work_.parallel(pieces, [&](int64_t i) { body(first + i); });
    } else {
      for (int64_t i = 0; i < pieces; ++i) body(first + i);
    }
    GEMMD_RETURN_IF_ERROR(Report());
  }
  return absl::OkStatus();
}

absl::Status WeightQuantizer::Report() {
  if (work_.progress == nullptr) return absl::OkStatus();
  if (work_.progress(passes_done_, kPasses * out_.shape.experts * out_.shape.n)) return absl::OkStatus();
  return Error(absl::StatusCode::kCancelled, "CANCELLED", "the quantization was cancelled");
}

absl::Status WeightQuantizer::Expert(int64_t expert) {
  GEMMD_RETURN_IF_ERROR(CollectRanges(expert));
  secondary_.assign(out_.shape.n, 1);
  factors_.assign(ranges_.size(), 1);
  zero_points_.assign(ranges_.size(), 0);
  if (spec_.scale.present()) GEMMD_RETURN_IF_ERROR(SetScales(expert));
  row_errors_.assign(out_.shape.n, {});
  GEMMD_RETURN_IF_ERROR(ForRows([this, expert](Range rows) {
    std::vector<float> values(out_.shape.k);
    std::vector<uint8_t> codes(out_.shape.k);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      read_(expert, row, absl::MakeSpan(values));
      SetRow(expert, row, values, absl::MakeSpan(codes));
    }
    passes_done_ += rows.end - rows.begin;
  }));
  for (const QuantizationError& error : row_errors_) error_.Add(error);
  return absl::OkStatus();
}

absl::Status WeightQuantizer::ForRows(const std::function<void(Range)>& body) {
  const int64_t n = out_.shape.n;
  const int64_t rows = std::max<int64_t>(1, kWeightsAtATime / out_.shape.k);
  const int64_t at_a_time = std::max<int64_t>(1, kPiecesAtATime * kWeightsAtATime / (rows * out_.shape.k));
  return Parallel((n + rows - 1) / rows, at_a_time, [&](int64_t piece) {
    body({piece * rows, std::min(n, (piece + 1) * rows)});
  });
}

absl::Status WeightQuantizer::ForCells(const std::function<void(int64_t)>& body) {
  const auto cells = static_cast<int64_t>(ranges_.size());
  return Parallel((cells + kCellsAtATime - 1) / kCellsAtATime, kPiecesAtATime, [&](int64_t piece) {
    const int64_t end = std::min(cells, (piece + 1) * kCellsAtATime);
    for (int64_t cell = piece * kCellsAtATime; cell < end; ++cell) body(cell);
  });
}

absl::Status WeightQuantizer::CollectRanges(int64_t expert) {
  ranges_.assign(spec_.ScaleRows(out_.shape.n) * out_.scale_columns, ValueRange());
  GEMMD_RETURN_IF_ERROR(ForRows([this, expert](Range rows) {
    RangesOf(expert, rows);
    passes_done_ += rows.end - rows.begin;
  }));
  MutexLock lock(mutex_);
  if (!not_finite_.has_value()) return absl::OkStatus();
  const std::string of_expert = out_.shape.experts > 1 ? absl::StrCat("expert ", expert, ", ") : "";
  return Error(absl::StatusCode::kInvalidArgument, "NOT_FINITE",
               absl::StrCat("weight of ", of_expert, "row ", not_finite_->row, ", column ",
                            not_finite_->column, " is ", not_finite_->value));
}

// Other rows may share the blocks of these.
void WeightQuantizer::RangesOf(int64_t expert, Range rows) {
  const int64_t first = Cell(rows.begin, 0);
  std::vector<ValueRange> ranges(Cell(rows.end - 1, out_.scale_columns) - first);
  std::vector<float> values(out_.shape.k);
  std::optional<NotFinite> not_finite;
  for (int64_t row = rows.begin; row < rows.end && !not_finite.has_value(); ++row) {
    read_(expert, row, absl::MakeSpan(values));
    for (int64_t column = 0; column < out_.scale_columns; ++column) {
      const ValueRange range = QuickRangeOf(BlockOfRow(values, column));
      ValueRange& of_block = ranges[Cell(row, column) - first];
      of_block = {std::min(of_block.low, range.low), std::max(of_block.high, range.high)};
      if (!IsFinite(range)) not_finite = FirstNotFinite(values, row);
      if (not_finite.has_value()) break;
    }
  }
  MutexLock lock(mutex_);
  for (size_t i = 0; i < ranges.size(); ++i) {
    ValueRange& all = ranges_[first + i];
    all = {std::min(all.low, ranges[i].low), std::max(all.high, ranges[i].high)};
  }
  if (not_finite.has_value() && (!not_finite_.has_value() || not_finite->row < not_finite_->row)) {
    not_finite_ = not_finite;
  }
}

// Weights of 16 and 32 bits are not scaled.
double WeightQuantizer::Ideal(const ValueRange& range) const {
  if (wide_) return 1;
  if (powers_ && !asymmetric_) return PowerScale(range, spec_.weight, rule_);
  // One bit with a zero point: the span may be more than float32 has.
  double ideal = std::min<double>(IdealScale(range, spec_.weight, rule_, asymmetric_), kLargestFloat);
  if (ideal < kSmallestNormal) ideal = IdealScale(Enlarged(range), spec_.weight, rule_, asymmetric_) / kEnlarged;
  return powers_ && ideal > 0 ? RoundUpToPower(ideal) : ideal;
}

absl::Status WeightQuantizer::SetScales(int64_t expert) {
  ideal_.resize(ranges_.size());
  GEMMD_RETURN_IF_ERROR(ForCells([this](int64_t cell) { ideal_[cell] = Ideal(ranges_[cell]); }));
  SetSecondary(expert);
  return ForCells([this, expert](int64_t cell) { SetScale(expert, cell); });
}

// The largest scale of `first` to `last` becomes the largest of the scale's type, or 1 where that
// type has range enough.
float WeightQuantizer::SecondaryOf(int64_t first, int64_t last) const {
  if (wide_) return 1;
  const double largest = *std::max_element(ideal_.begin() + first, ideal_.begin() + last);
  const double top = spec_.scale.kind == NumberKind::kFloat && spec_.scale.bits == 8
                         ? LargestValue(spec_.scale)
                         : 1;
  if (largest == 0) return 1;
  return static_cast<float>(std::clamp(largest / top, kSmallestFloat, kLargestFloat));
}

void WeightQuantizer::SetSecondary(int64_t expert) {
  if (spec_.secondary_scale == SecondaryScaleKind::kTensor) {
    const float value = SecondaryOf(0, static_cast<int64_t>(ideal_.size()));
    secondary_.assign(out_.shape.n, value);
    Store(value, expert, out_.secondary_scales);
  } else if (spec_.secondary_scale == SecondaryScaleKind::kChannel) {
    for (int64_t row = 0; row < out_.shape.n; ++row) {
      const int64_t first = Cell(row, 0);
      const bool shared = row % block_n_ != 0;
      secondary_[row] = shared ? secondary_[row - 1] : SecondaryOf(first, first + out_.scale_columns);
      Store(secondary_[row], expert * out_.shape.n + row, out_.secondary_scales);
    }
  }
}

void WeightQuantizer::SetScale(int64_t expert, int64_t cell) {
  const float secondary = secondary_[cell / out_.scale_columns * block_n_];
  const double ideal = ideal_[cell] / secondary;
  uint32_t code = EncodeScale(spec_.scale, ideal > 0 ? ideal : 1.0);
  const auto factor = [&] { return static_cast<float>(DecodeNumber(spec_.scale, code) * secondary); };
  while (!std::isfinite(factor())) --code;  // both were rounded up near the end of float32
  if (factor() == 0) code = EncodeScale(spec_.scale, kSmallestFloat / secondary);
  const int64_t index = expert * static_cast<int64_t>(ranges_.size()) + cell;
  StoreScale(spec_.scale, code, index, out_.scales);
  factors_[cell] = factor();
  if (asymmetric_) SetZeroPoint(cell, index);
}

void WeightQuantizer::SetZeroPoint(int64_t cell, int64_t index) {
  float exact = -ranges_[cell].low / factors_[cell];
  while (!std::isfinite(exact * factors_[cell])) exact = std::nextafter(exact, 0.0f);  // what code 0 stands for
  if (spec_.zero_point == ZeroPointKind::kFloat) {
    zero_points_[cell] = exact;
    Store(exact, index, out_.zero_points);
    return;
  }
  const float largest = static_cast<float>((1 << spec_.weight.bits) - 1);
  zero_points_[cell] = std::clamp(std::nearbyint(exact), 0.0f, largest);
  Store(static_cast<int16_t>(zero_points_[cell]), index, out_.zero_points);
}

// Near the end of float32 the nearest value may lie beyond it: then the next one towards zero, which is finite at the
// latest.
uint32_t WeightQuantizer::Finite(uint32_t code, int64_t cell) const {
  const bool is_integer = spec_.weight.kind == NumberKind::kInteger;
  double zero_point = is_integer ? 1 << (spec_.weight.bits - 1) : 0;
  if (asymmetric_) zero_point = zero_points_[cell];
  const auto is_finite = [&] {
    const double number = DecodeNumber(spec_.weight, code) - zero_point;
    return std::isfinite(static_cast<float>(number * factors_[cell]));
  };
  const uint32_t step = is_integer && code < zero_point ? 1 : -1;  // floats: sign and magnitude
  while (!is_finite()) code += step;
  return code;
}

void WeightQuantizer::SetRow(int64_t expert, int64_t row, absl::Span<const float> values,
                             absl::Span<uint8_t> codes) {
  const int64_t at = (expert * out_.shape.n + row) * spec_.RowWords(out_.shape.k) * 4;
  if (wide_) return SetWideRow(row, values, out_.codes.data() + at);
  for (int64_t column = 0; column < out_.scale_columns; ++column) {
    const int64_t cell = Cell(row, column);
    const absl::Span<const float> block = BlockOfRow(values, column);
    uint8_t* const to = codes.data() + column * block_k_;
    encoder_->Encode(block, factors_[cell], zero_points_[cell], to);
    if (std::max(-ranges_[cell].low, ranges_[cell].high) >= kNearTheEnd) {
      for (size_t i = 0; i < block.size(); ++i) {
        if (std::abs(block[i]) >= kNearTheEnd) to[i] = static_cast<uint8_t>(Finite(to[i], cell));
      }
    }
    AddError(block, to, cell, row_errors_[row]);
  }
  PackBitRow(codes, spec_.weight.bits, out_.codes.data() + at);
}

void WeightQuantizer::AddError(absl::Span<const float> values, const uint8_t* codes, int64_t cell,
                               QuantizationError& error) const {
  const double factor = factors_[cell];
  const double zero_point = zero_points_[cell];  // 0 without zero points
  double error_square = 0;
  double weight_square = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    const double lost = value - (encoder_->Value(codes[i]) - zero_point) * factor;
    error_square += lost * lost;
    weight_square += value * value;
  }
  error.Add({error_square, weight_square});
}

// 16 and 32 bits.
void WeightQuantizer::SetWideRow(int64_t row, absl::Span<const float> values, std::byte* to) {
  const auto largest = static_cast<float>(LargestValue(spec_.weight));
  const int bytes = spec_.weight.bits / 8;
  for (size_t i = 0; i < values.size(); ++i, to += bytes) {
    const int64_t cell = Cell(row, static_cast<int64_t>(i) / block_k_);
    const float quotient = std::clamp(values[i] / factors_[cell], -largest, largest);
    uint32_t code = EncodeNumber(spec_.weight, quotient);
    if (std::abs(values[i]) >= kNearTheEnd) code = Finite(code, cell);
    std::memcpy(to, &code, static_cast<size_t>(bytes));
    const double lost = values[i] - DecodeNumber(spec_.weight, code) * factors_[cell];
    row_errors_[row].Add({lost * lost, double{values[i]} * values[i]});
  }
}

absl::Span<const float> WeightQuantizer::BlockOfRow(absl::Span<const float> row, int64_t column) const {
  return row.subspan(column * block_k_, block_k_);
}

std::optional<WeightQuantizer::NotFinite> WeightQuantizer::FirstNotFinite(
    absl::Span<const float> row_values, int64_t row) {
  const auto found = std::find_if(row_values.begin(), row_values.end(),
                                  [](float value) { return !std::isfinite(value); });
  return NotFinite{row, found - row_values.begin(), *found};
}

}  // namespace gemmd

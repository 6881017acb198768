#include "kernels/self_test_problem.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/contract/element_format.h"
#include "kernels/select/sm90_config.h"

namespace gemmd {
namespace {

constexpr int64_t kPeriodN = 17;
constexpr int64_t kPeriodM = 13;
constexpr int64_t kColumns = 1024;  // of K, for each block of a cluster
constexpr int64_t kPartOfTile = 24;
constexpr int64_t kRowsShort = 3;       // of a tile along M
constexpr int kLargestFloatWeight = 8;  // sums stay exact in the 14 bits of the FP8 matrix unit
constexpr int kXValues[] = {-1, 0, 0, 1, 0, 0, 2, 0};

// Looks random, depends on all three.
uint32_t Mix(int64_t a, int64_t b, int64_t c) {
  uint64_t h = static_cast<uint64_t>(a) * 0x9e3779b97f4a7c15u ^
               static_cast<uint64_t>(b) * 0xbf58476d1ce4e5b9u ^
               static_cast<uint64_t>(c + 1) * 0x94d049bb133111ebu;
  h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
  h = (h ^ h >> 27) * 0x94d049bb133111ebu;
  return static_cast<uint32_t>(h >> 32);
}

int64_t LargestPowerOfTwoIn(int64_t value, int64_t most) {
  int64_t power = 1;
  while (power < most && value % (2 * power) == 0) power *= 2;
  return power;
}

// Code of an integer that `format`, a float or exponent, holds exactly.
uint32_t CodeOfInteger(const NumberFormat& format, int value) {
  if (value == 0) return 0;
  const auto magnitude = static_cast<uint32_t>(std::abs(value));
  const uint32_t sign = value < 0 ? 1u << (format.bits - 1) : 0u;
  if (format.exponent_bits == 0) return sign | magnitude;
  int exponent = 0;
  while (magnitude >> (exponent + 1) != 0) ++exponent;
  const uint32_t mantissa =
      ((magnitude << format.mantissa_bits) >> exponent) - (1u << format.mantissa_bits);
  return sign | static_cast<uint32_t>(exponent + format.bias()) << format.mantissa_bits | mantissa;
}

// The number of a float's code, when it is a small integer.
std::optional<int> SmallInteger(const NumberFormat& format, uint32_t code) {
  const uint32_t ones = (1u << (format.bits - 1)) - 1;
  const uint32_t magnitude = code & ones;
  const int field = static_cast<int>(magnitude >> format.mantissa_bits);
  const auto mantissa = static_cast<int>(magnitude & ((1u << format.mantissa_bits) - 1));
  if (format.special == SpecialValues::kNanOnly && magnitude == ones) return std::nullopt;
  if (format.special == SpecialValues::kIeee && field == (1 << format.exponent_bits) - 1) {
    return std::nullopt;
  }
  double value = magnitude;
  if (format.exponent_bits > 0) {
    const int whole = field == 0 ? mantissa : (1 << format.mantissa_bits) + mantissa;
    value = std::ldexp(whole, std::max(field, 1) - format.bias() - format.mantissa_bits);
  }
  if (value != std::floor(value) || value > kLargestFloatWeight) return std::nullopt;
  return static_cast<int>(code == magnitude ? value : -value);
}

// Codes that weights are made of, and the integers they stand for before a zero point.
struct CodeBook {
  std::vector<uint32_t> codes;
  std::vector<int> values;
};

// `half_sums`: sums of so many of them stay integers of 11 bits.
CodeBook CodesOf(const NumberFormat& weight, bool half_sums) {
  CodeBook book;
  const auto add = [&book](uint32_t code, int value) {
    book.codes.push_back(code);
    book.values.push_back(value);
  };
  if (weight.bits > 8) {
    for (const int value : {-2, -1, 0, 1, 2, 3, 5}) add(CodeOfInteger(weight, value), value);
    return book;
  }
  for (uint32_t code = 0; code < 1u << weight.bits; ++code) {
    if (weight.kind == NumberKind::kInteger) {
      const int value = static_cast<int>(code);
      const int half = 1 << (weight.bits - 1);
      if (!half_sums || std::abs(value - half) <= kLargestFloatWeight) add(code, value);
    } else if (const std::optional<int> value = SmallInteger(weight, code)) {
      add(code, *value);
    }
  }
  return book;
}

void Append(SelfTestProblem::Bytes& bytes, uint32_t code, int size) {
  for (int i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>(code >> 8 * i));
}

void AppendNumber(SelfTestProblem::Bytes& bytes, const NumberFormat& format, int value) {
  const bool is_twos_complement = format.kind == NumberKind::kInteger;
  Append(bytes, is_twos_complement ? static_cast<uint32_t>(value) : CodeOfInteger(format, value),
         format.bits / 8);
}

int64_t SmallGroup(int64_t group, int64_t k) {
  if (group == 0 || group >= k) return 0;
  const int64_t power = LargestPowerOfTwoIn(group, 512);
  return power >= 16 ? power : std::min<int64_t>(group, 48);
}

QuantSpec SmallSpec(const SelfTestSubject& subject) {
  QuantSpec spec = subject.spec;
  spec.scale_block_k = SmallGroup(spec.scale_block_k, subject.shape.k);
  // Kernels may count on blocks of whole tiles (Sm90Config::shares_scales).
  constexpr int64_t kTileRows = 128;
  if (spec.scale_block_n > 1) {
    spec.scale_block_n = spec.scale_block_n % kTileRows == 0
                             ? kTileRows
                             : std::min<int64_t>(spec.scale_block_n, 40);
  }
  if (subject.takes_group_scales && spec.activation_group % 128 == 0) spec.activation_group = 128;
  return spec;
}

LayerShape SmallShape(const GemmKernel& kernel, const SelfTestSubject& subject) {
  const bool is_indexed = kernel.row_mapping == RowMapping::kIndexed;
  return {is_indexed && !subject.has_packed_codes ? 2 : 1, kernel.block_n + kPartOfTile,
          std::min(subject.shape.k, kColumns * kernel.cluster)};
}

// Whether a layer of `spec` and `shape` is served by the same program.
bool PacksAlike(const SelfTestSubject& subject, const QuantSpec& spec, const LayerShape& shape) {
  const Sm90Packing wanted = Sm90PackingOf(subject.spec, subject.shape);
  const Sm90Packing got = Sm90PackingOf(spec, shape);
  return got.group_scale == wanted.group_scale &&
         got.layout.scale_step == wanted.layout.scale_step &&
         got.layout.whole_unit_bytes() == wanted.layout.whole_unit_bytes() &&
         Sm90TakesXScales(spec, shape) == subject.takes_group_scales;
}

// Fills in a problem whose spec, shape, rows and x_type are set.
class Maker {
 public:
  Maker(SelfTestProblem& problem, bool half_sums)
      : problem_(problem),
        spec_(problem.spec),
        shape_(problem.shape),
        book_(CodesOf(spec_.weight, half_sums)),
        groups_(problem.group_scale_columns == 0
                    ? 0
                    : (shape_.k + problem.group_scale_columns - 1) / problem.group_scale_columns) {}

  void Make() {
    MakeCodes();
    MakeGrid();
    MakeRest();
    MakeActivations();
    MakeProducts();
  }

  void MakeSlots(int block_m) {
    problem_.row_offsets = {0};
    problem_.tile_offsets = {0};
    for (int64_t expert = 0; expert < shape_.experts; ++expert) {
      for (int64_t slot = expert; slot < problem_.rows; slot += shape_.experts) {
        problem_.sorted_slots.push_back(static_cast<uint32_t>(slot));
      }
      const auto end = static_cast<int64_t>(problem_.sorted_slots.size());
      const int64_t rows = end - problem_.row_offsets.back();
      problem_.row_offsets.push_back(end);
      problem_.tile_offsets.push_back(problem_.tile_offsets.back() +
                                      (rows + block_m - 1) / block_m);
    }
  }

 private:
  size_t BookIndex(int64_t expert, int64_t n, int64_t k) const {
    return Mix(expert, n % kPeriodN, k) % book_.codes.size();
  }
  int32_t GroupIndex(int64_t expert, int64_t k) const {
    return static_cast<int32_t>(Mix(expert, kPeriodN, k) %
                                static_cast<uint64_t>(problem_.scale_columns));
  }
  int64_t ScaleColumn(int64_t expert, int64_t k) const {
    if (spec_.has_group_index) return GroupIndex(expert, k);
    return spec_.scale_block_k == 0 ? 0 : k / spec_.scale_block_k;
  }
  int ZeroPoint(int64_t scale_column) const {
    if (spec_.weight.kind != NumberKind::kInteger) return 0;
    const int half = 1 << (spec_.weight.bits - 1);
    return spec_.zero_point == ZeroPointKind::kNone ? half
                                                    : half - static_cast<int>(scale_column % 2);
  }
  int Scale(int64_t scale_row, int64_t scale_column) const {
    return spec_.scale.present() ? 1 + static_cast<int>((scale_row + scale_column) % 2) : 1;
  }
  int Secondary(int64_t expert, int64_t n) const {
    switch (spec_.secondary_scale) {
      case SecondaryScaleKind::kNone:
        return 1;
      case SecondaryScaleKind::kTensor:
        return expert == 0 ? 2 : 1;
      case SecondaryScaleKind::kChannel:
        break;
    }
    return 1 + static_cast<int>(n % kPeriodN % 2);
  }
  int Bias(int64_t n) const {
    return spec_.bias.present() ? static_cast<int>(n % kPeriodN) - 8 : 0;
  }
  static int X(int64_t row, int64_t k) {
    return kXValues[Mix(-1, row % kPeriodM, k) % std::size(kXValues)];
  }
  int XScale(int64_t row, int64_t group) const {
    return groups_ == 0 ? 1 : 1 + static_cast<int>((row % kPeriodM + group) % 2);
  }
  int XScaleAt(int64_t row, int64_t k) const {
    return groups_ == 0 ? 1 : XScale(row, k / problem_.group_scale_columns);
  }

  void MakeCodes() {
    const int64_t row_bytes = spec_.RowWords(shape_.k) * 4;
    problem_.codes.resize(static_cast<size_t>(shape_.experts * shape_.n * row_bytes));
    for (int64_t expert = 0; expert < shape_.experts; ++expert) {
      std::byte* const rows = problem_.codes.data() + expert * shape_.n * row_bytes;
      for (int64_t n = 0; n < shape_.n; ++n) {
        if (n >= kPeriodN) {
          std::memcpy(rows + n * row_bytes, rows + n % kPeriodN * row_bytes,
                      static_cast<size_t>(row_bytes));
        } else {
          MakeRow(expert, n, rows + n * row_bytes);
        }
      }
    }
  }

  void MakeRow(int64_t expert, int64_t n, std::byte* row) const {
    const int bits = spec_.weight.bits;
    for (int64_t k = 0; k < shape_.k; ++k) {
      const int64_t first = k * bits;
      uint64_t code = uint64_t{book_.codes[BookIndex(expert, n, k)]} << (first % 8);
      for (int64_t byte = first / 8; byte <= (first + bits - 1) / 8; ++byte, code >>= 8) {
        row[byte] |= static_cast<std::byte>(code);
      }
    }
  }

  void MakeGrid() {
    for (int64_t cell = 0; cell < shape_.experts * spec_.ScaleRows(shape_.n); ++cell) {
      const int64_t row = cell % spec_.ScaleRows(shape_.n);
      for (int64_t column = 0; column < problem_.scale_columns; ++column) {
        if (spec_.scale.present()) {
          AppendNumber(problem_.scales, spec_.scale, Scale(row, column));
        }
        if (spec_.zero_point == ZeroPointKind::kInteger) {
          Append(problem_.zero_points, static_cast<uint32_t>(ZeroPoint(column)), 2);
        } else if (spec_.zero_point == ZeroPointKind::kFloat) {
          AppendNumber(problem_.zero_points, kFloat32, ZeroPoint(column));
        }
      }
    }
  }

  void MakeRest() {
    for (int64_t expert = 0; expert < shape_.experts; ++expert) {
      if (spec_.secondary_scale == SecondaryScaleKind::kTensor) {
        AppendNumber(problem_.secondary_scales, kFloat32, Secondary(expert, 0));
      }
      for (int64_t n = 0; n < shape_.n; ++n) {
        if (spec_.secondary_scale == SecondaryScaleKind::kChannel) {
          AppendNumber(problem_.secondary_scales, kFloat32, Secondary(expert, n));
        }
        if (spec_.bias.present()) AppendNumber(problem_.bias, spec_.bias, Bias(n));
      }
      for (int64_t k = 0; spec_.has_group_index && k < shape_.k; ++k) {
        Append(problem_.group_index, static_cast<uint32_t>(GroupIndex(expert, k)), 4);
      }
    }
  }

  void MakeActivations() {
    const NumberFormat format = FormatOf(problem_.x_type);
    for (int64_t row = 0; row < problem_.rows; ++row) {
      for (int64_t k = 0; k < shape_.k; ++k) AppendNumber(problem_.x, format, X(row, k));
      for (int64_t group = 0; group < groups_; ++group) {
        AppendNumber(problem_.group_scales, kFloat32, XScale(row, group));
      }
    }
  }

  int Weight(int64_t expert, int64_t scale_row, int64_t n, int64_t k) const {
    const int64_t column = ScaleColumn(expert, k);
    return (book_.values[BookIndex(expert, n, k)] - ZeroPoint(column)) * Scale(scale_row, column);
  }

  // Scales alternate with the row of scales: two products for each period of N.
  void MakeProducts() {
    const auto k_size = static_cast<size_t>(shape_.k);
    std::vector<std::vector<int>> x(kPeriodM, std::vector<int>(k_size));
    for (int64_t row = 0; row < kPeriodM; ++row) {
      for (size_t k = 0; k < k_size; ++k) {
        const auto column = static_cast<int64_t>(k);
        x[static_cast<size_t>(row)][k] = X(row, column) * XScaleAt(row, column);
      }
    }
    std::vector<int> weights(k_size);
    for (int64_t expert = 0; expert < shape_.experts; ++expert) {
      for (int64_t scale_row = 0; scale_row < 2; ++scale_row) {
        for (int64_t n = 0; n < kPeriodN; ++n) {
          for (size_t k = 0; k < k_size; ++k) {
            weights[k] = Weight(expert, scale_row, n, static_cast<int64_t>(k));
          }
          for (const std::vector<int>& row : x) {
            const int sum = std::inner_product(row.begin(), row.end(), weights.begin(), 0);
            problem_.products.push_back(static_cast<float>(sum * Secondary(expert, n) + Bias(n)));
          }
        }
      }
    }
  }

  SelfTestProblem& problem_;
  const QuantSpec& spec_;
  const LayerShape& shape_;
  const CodeBook book_;
  const int64_t groups_;  // of x with group scales
};

absl::Status Impossible(const GemmKernel& kernel) {
  return Error(absl::StatusCode::kInternal, "SELF_TEST_IMPOSSIBLE",
               absl::StrCat("no small layer is packed as ", kernel.name, " reads it"));
}

}  // namespace

float SelfTestProblem::Expected(int64_t row, int64_t column) const {
  const int64_t expert = row % shape.experts;
  const int64_t scale_row = spec.scale_block_n == 0 ? 0 : column / spec.scale_block_n % 2;
  const int64_t of_n = (expert * 2 + scale_row) * kPeriodN + column % kPeriodN;
  return products[static_cast<size_t>(of_n * kPeriodM + row % kPeriodM)];
}

absl::StatusOr<SelfTestProblem> MakeSelfTestProblem(const GemmKernel& kernel,
                                                    const SelfTestSubject& subject) {
  SelfTestProblem problem;
  problem.spec = SmallSpec(subject);
  problem.shape = SmallShape(kernel, subject);
  if (subject.is_packed && !PacksAlike(subject, problem.spec, problem.shape)) {
    return Impossible(kernel);
  }
  problem.scale_columns = problem.spec.ScaleColumns(problem.shape.k);
  problem.x_type = subject.x_type;
  problem.rows = std::max<int64_t>(1, kernel.block_m - kRowsShort);
  if (subject.takes_group_scales) problem.group_scale_columns = problem.spec.activation_group;
  Maker maker(problem, subject.half_sums);
  maker.Make();
  if (kernel.row_mapping == RowMapping::kIndexed) maker.MakeSlots(kernel.block_m);
  if (subject.is_packed || subject.has_packed_codes) {
    GEMMD_ASSIGN_OR_RETURN(problem.packed,
                           PackWeights(problem.spec, problem.shape,
                                       {problem.codes, problem.scales, problem.zero_points,
                                        problem.secondary_scales}));
  }
  return problem;
}

}  // namespace gemmd

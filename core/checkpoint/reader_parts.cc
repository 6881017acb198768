#include "core/checkpoint/reader_parts.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/quant/not_finite.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

bool IsWanted(double scale, ScaleSign sign) {
  if (!std::isfinite(scale)) return false;
  switch (sign) {
    case ScaleSign::kAny:
      return scale != 0;
    case ScaleSign::kPositive:
      return scale > 0;
    case ScaleSign::kPositiveOrZero:
      return scale >= 0;
  }
  return false;
}

const char* Describe(ScaleSign sign) {
  switch (sign) {
    case ScaleSign::kAny:
      return "a finite number other than 0";
    case ScaleSign::kPositive:
      return "a finite positive number";
    case ScaleSign::kPositiveOrZero:
      return "a finite number of at least 0";
  }
  return "";
}

// Elements of one line of the cache.
template <typename T>
constexpr int64_t kTile = 64 / sizeof(T);

// Writes one line past the caches where `to` allows it: nothing of it need be read before. That is 7 times as
// fast for lines that are pages apart.
void StreamLine(const void* line, void* to) {
#ifdef __SSE2__
  if (reinterpret_cast<uintptr_t>(to) % sizeof(__m128i) == 0) {
    const auto* const from = static_cast<const __m128i*>(line);
    for (int i = 0; i < 4; ++i) {
      _mm_stream_si128(static_cast<__m128i*>(to) + i, _mm_loadu_si128(from + i));
    }
    return;
  }
#endif
  std::memcpy(to, line, 64);
}

// Makes what was streamed visible to other threads.
void EndStreaming() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

// One tile with whole lines on both sides: rows `from_stride` elements apart to columns `to_stride` apart.
// Rows are often a power of two apart and drive each other out of the cache, so each line is read once and
// written once.
template <typename T>
void TransposeTile(const T* from, int64_t from_stride, int64_t to_stride, T* to) {
  T lines[kTile<T>][kTile<T>];
  for (int64_t i = 0; i < kTile<T>; ++i) {
    std::memcpy(lines[i], from + i * from_stride, sizeof(lines[i]));
  }
  for (int64_t j = 0; j < kTile<T>; ++j) {
    T line[kTile<T>];
    for (int64_t i = 0; i < kTile<T>; ++i) line[i] = lines[i][j];
    StreamLine(line, to + j * to_stride);
  }
}

template <typename T>
void TransposeAs(const std::byte* bytes, int64_t rows, int64_t columns, std::byte* out) {
  // The pages of a block's rows and columns fit the translation buffer.
  constexpr int64_t kBlockRows = 1024;
  constexpr int64_t kBlockColumns = 64;
  const auto* const from = reinterpret_cast<const T*>(bytes);
  auto* const to = reinterpret_cast<T*>(out);
  const int64_t whole_rows = rows / kTile<T> * kTile<T>;
  const int64_t whole_columns = columns / kTile<T> * kTile<T>;
  const auto transpose_block = [&](int64_t first_row, int64_t first_column) {
    const int64_t end_row = std::min(whole_rows, first_row + kBlockRows);
    const int64_t end_column = std::min(whole_columns, first_column + kBlockColumns);
    for (int64_t row = first_row; row < end_row; row += kTile<T>) {
      for (int64_t column = first_column; column < end_column; column += kTile<T>) {
        TransposeTile(from + row * columns + column, columns, rows, to + column * rows + row);
      }
    }
  };
  for (int64_t row = 0; row < whole_rows; row += kBlockRows) {
    for (int64_t column = 0; column < whole_columns; column += kBlockColumns) {
      transpose_block(row, column);
    }
  }
  EndStreaming();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = row < whole_rows ? whole_columns : 0; column < columns; ++column) {
      to[column * rows + row] = from[row * columns + column];
    }
  }
}

void TransposeMatrix(const std::byte* bytes, int64_t rows, int64_t columns, int64_t element_bytes,
                     std::byte* out) {
  if (element_bytes == 1) {
    TransposeAs<uint8_t>(bytes, rows, columns, out);
  } else if (element_bytes == 2) {
    TransposeAs<uint16_t>(bytes, rows, columns, out);
  } else {
    TransposeAs<uint32_t>(bytes, rows, columns, out);
  }
}

// Whether CheckScales need not look closer: no scale has an exponent of all ones, and none is 0 or negative.
// `format` has 16 bits.
bool AreFinitePositive(const NumberFormat& format, const TensorData& data, int64_t count) {
  const uint16_t first_not_finite = format == kFloat16 ? 0x7c00 : 0x7f80;
  bool good = true;
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = data.at<uint16_t>(i);
    good &= static_cast<uint16_t>(bits - 1) < first_not_finite - 1;
  }
  return good;
}

}  // namespace

double NumberAt(const TensorData& data, const NumberFormat& format, int64_t index) {
  switch (format.bits) {
    case 8:
      return DecodeNumber(format, data.at<uint8_t>(index));
    case 16:
      return DecodeNumber(format, data.at<uint16_t>(index));
    default:
      return data.at<float>(index);
  }
}

NumberFormat FormatOfDtype(const std::string& dtype) {
  if (dtype == "F32") return kFloat32;
  if (dtype == "F16") return kFloat16;
  if (dtype == "BF16") return kBFloat16;
  if (dtype == "F8_E4M3") return kFloat8E4M3;
  if (dtype == "F8_E5M2") return kFloat8E5M2;
  if (dtype == "F8_E8M0") return kFloat8E8M0;
  return kNoFormat;
}

absl::Status CheckAgreement(const ModuleTensors& tensors, bool config_says, bool tensors_say,
                            absl::string_view evidence, absl::string_view why_not) {
  if (config_says && tensors_say) return absl::OkStatus();
  if (config_says) {
    return tensors.Bad(absl::StrCat("quantized by its config, but it has no ", evidence));
  }
  if (tensors_say) {
    const std::string why = why_not.empty() ? "" : absl::StrCat(" (", why_not, ")");
    return tensors.Bad(absl::StrCat("excluded by its config", why, ", but it has a ", evidence));
  }
  return Error(absl::StatusCode::kNotFound, "MODULE_NOT_FOUND",
               absl::StrCat("module \"", tensors.module(), "\" is not quantized"));
}

absl::StatusOr<TensorData> ReadShaped(ModuleTensors& tensors, const std::string& key,
                                      const std::vector<std::string>& dtypes,
                                      const std::vector<Shape>& shapes, absl::string_view config_says) {
  const TensorInfo* info = tensors.Find(key);
  const bool fits = info == nullptr || std::find(shapes.begin(), shapes.end(), info->shape) != shapes.end();
  absl::StatusOr<TensorData> data = tensors.Read(key, dtypes, shapes);
  if (fits || config_says.empty()) return data;
  const absl::Status& status = data.status();
  return Error(status.code(), ReasonOf(status),
               absl::StrCat(status.message(), " (with ", config_says, " of the config)"));
}

absl::StatusOr<TensorData> ReadScales(ModuleTensors& tensors, const std::string& key,
                                      const std::vector<std::string>& dtypes,
                                      const std::vector<Shape>& shapes, ScaleSign sign,
                                      absl::string_view config_says) {
  GEMMD_ASSIGN_OR_RETURN(TensorData data, ReadShaped(tensors, key, dtypes, shapes, config_says));
  GEMMD_RETURN_IF_ERROR(CheckScales(tensors, key, data, sign));
  return data;
}

absl::Status CheckScales(const ModuleTensors& tensors, const std::string& key,
                         const TensorData& data, ScaleSign sign) {
  const NumberFormat format = FormatOfDtype(data.info.dtype);
  const int64_t count = static_cast<int64_t>(data.bytes.size()) * 8 / format.bits;
  if (format.bits == 16 && AreFinitePositive(format, data, count)) return absl::OkStatus();
  for (int64_t i = 0; i < count; ++i) {
    const double scale = NumberAt(data, format, i);
    if (!IsWanted(scale, sign)) {
      return tensors.Bad(
          key, absl::StrCat("element ", i, ": expected ", Describe(sign), ", got ", scale));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorData> ReadExponents(ModuleTensors& tensors, const std::string& key,
                                         const std::vector<Shape>& shapes, absl::string_view config_says) {
  GEMMD_ASSIGN_OR_RETURN(TensorData data, ReadShaped(tensors, key, {"U8", "F8_E8M0"}, shapes, config_says));
  const auto nan = std::find(data.bytes.begin(), data.bytes.end(), std::byte{255});
  if (nan != data.bytes.end()) {
    return tensors.Bad(key, absl::StrCat("element ", nan - data.bytes.begin(),
                                         ": expected an exponent up to 254, got 255 (NaN)"));
  }
  return data;
}

absl::Status ReadBias(ModuleTensors& tensors, const std::string& key, StandardTensor& tensor) {
  if (tensors.Find(key) == nullptr) return absl::OkStatus();
  std::vector<Shape> shapes = {{tensor.shape.experts, tensor.shape.n}};
  if (tensor.shape.experts == 1) shapes.insert(shapes.begin(), {tensor.shape.n});
  GEMMD_ASSIGN_OR_RETURN(TensorData data, tensors.Read(key, {"F16", "BF16", "F32"}, shapes));
  tensor.spec.bias = FormatOfDtype(data.info.dtype);
  for (int64_t i = 0; i < tensor.shape.experts * tensor.shape.n; ++i) {
    const double value = NumberAt(data, tensor.spec.bias, i);
    if (!std::isfinite(value)) {
      return tensors.Bad(key,
                         absl::StrCat("element ", i, ": expected a finite number, got ", value));
    }
  }
  tensor.bias = std::move(data.bytes);
  return absl::OkStatus();
}

absl::Status CheckFinite(const ModuleTensors& tensors, const std::string& key,
                         const NumberFormat& format, const Buffer& codes) {
  if (CountNotFiniteCodes(format, codes.data(), codes.size()) == 0) return absl::OkStatus();
  bool finite[256];
  for (uint32_t code = 0; code < 256; ++code)
    finite[code] = std::isfinite(DecodeNumber(format, code));
  for (size_t i = 0; i < codes.size(); ++i) {
    const auto code = static_cast<uint8_t>(codes[i]);
    if (!finite[code]) {
      return tensors.Bad(key, absl::StrCat("element ", i, ": expected a finite number, got code ",
                                           code, " (", DecodeNumber(format, code), ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadFloat8Weight(ModuleTensors& tensors, const std::string& key, size_t rank,
                              const std::vector<std::string>& dtypes, StandardTensor& tensor) {
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo info, tensors.Require(key, rank));
  tensor.shape = {rank == 3 ? info.shape[0] : 1, info.shape[rank - 2], info.shape[rank - 1]};
  GEMMD_ASSIGN_OR_RETURN(TensorData codes, tensors.Read(key, dtypes, {info.shape}));
  tensor.spec.weight = FormatOfDtype(info.dtype);
  GEMMD_RETURN_IF_ERROR(CheckFinite(tensors, key, tensor.spec.weight, codes.bytes));
  tensor.codes = PadRows(std::move(codes.bytes), tensor.shape.k);
  return absl::OkStatus();
}

absl::Status ReadInt8Weight(ModuleTensors& tensors, const std::string& key,
                            StandardTensor& tensor) {
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo info, tensors.Require(key, 2));
  tensor.shape = {1, info.shape[0], info.shape[1]};
  GEMMD_ASSIGN_OR_RETURN(TensorData codes, tensors.Read(key, {"I8"}, {info.shape}));
  FlipSigns(codes.bytes);
  tensor.spec.weight = IntegerFormat(8);
  tensor.codes = PadRows(std::move(codes.bytes), tensor.shape.k);
  return absl::OkStatus();
}

void FlipSigns(Buffer& bytes) {
  for (std::byte& byte : bytes) byte ^= std::byte{0x80};
}

Buffer PadRows(Buffer bytes, int64_t row_bytes) {
  const int64_t padded = CeilDivide(row_bytes, 4) * 4;
  if (padded == row_bytes) return bytes;
  const int64_t rows = static_cast<int64_t>(bytes.size()) / row_bytes;
  Buffer out = Buffer::Uninitialized(rows * padded);
  for (int64_t row = 0; row < rows; ++row) {
    std::byte* const to = out.data() + row * padded;
    std::memcpy(to, bytes.data() + row * row_bytes, row_bytes);
    std::memset(to + row_bytes, 0, padded - row_bytes);
  }
  return out;
}

Buffer Transpose(const Buffer& bytes, int64_t rows, int64_t columns, int64_t element_bytes) {
  Buffer out = Buffer::Uninitialized(bytes.size());
  TransposeMatrix(bytes.data(), rows, columns, element_bytes, out.data());
  return out;
}

void TransposeEach(Buffer& bytes, int64_t count, int64_t rows, int64_t columns,
                   int64_t element_bytes) {
  const int64_t size = rows * columns * element_bytes;
  Buffer one = Buffer::Uninitialized(size);
  for (int64_t i = 0; i < count; ++i) {
    std::byte* const matrix = bytes.data() + i * size;
    TransposeMatrix(matrix, rows, columns, element_bytes, one.data());
    std::memcpy(matrix, one.data(), size);
  }
}

absl::StatusOr<StandardTensor> ReadUnquantized(ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo info, tensors.Require(".weight", 2));
  GEMMD_ASSIGN_OR_RETURN(TensorData codes,
                         tensors.Read(".weight", {"F16", "BF16", "F32"}, {info.shape}));
  StandardTensor tensor;
  tensor.shape = {1, info.shape[0], info.shape[1]};
  tensor.spec.weight = FormatOfDtype(info.dtype);
  tensor.codes = PadRows(std::move(codes.bytes), tensor.shape.k * tensor.spec.weight.bits / 8);
  GEMMD_RETURN_IF_ERROR(ReadBias(tensors, ".bias", tensor));
  return tensor;
}

absl::StatusOr<StandardTensor> ReadPlainMxfp4(ModuleTensors& tensors, const std::string& weight_key,
                                              const std::string& scale_key) {
  constexpr int64_t kBlock = 32;
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo info, tensors.Require(weight_key, 2));
  const int64_t n = info.shape[0];
  const int64_t k = 2 * info.shape[1];
  if (k % kBlock != 0) {
    return tensors.Bad(weight_key, absl::StrCat("K is ", k, ", expected a multiple of ", kBlock));
  }
  GEMMD_ASSIGN_OR_RETURN(TensorData codes, tensors.Read(weight_key, {"U8", "I8"}, {info.shape}));
  GEMMD_ASSIGN_OR_RETURN(TensorData scales, ReadExponents(tensors, scale_key, {{n, k / kBlock}}));
  StandardTensor tensor;
  tensor.spec.weight = kFloat4E2M1;
  tensor.spec.scale = kFloat8E8M0;
  tensor.spec.scale_block_k = kBlock;
  tensor.shape = {1, n, k};
  tensor.scale_columns = k / kBlock;
  tensor.codes = std::move(codes.bytes);
  tensor.scales = std::move(scales.bytes);
  return tensor;
}

}  // namespace gemmd

#include "core/checkpoint/reader_parts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
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

template <typename T>
void TransposeAs(const Buffer& bytes, int64_t rows, int64_t columns, Buffer& out) {
  constexpr int64_t kBlock = 64;  // a block of both sides stays in the first-level cache
  for (int64_t row0 = 0; row0 < rows; row0 += kBlock) {
    for (int64_t column0 = 0; column0 < columns; column0 += kBlock) {
      for (int64_t column = column0; column < std::min(columns, column0 + kBlock); ++column) {
        for (int64_t row = row0; row < std::min(rows, row0 + kBlock); ++row) {
          std::memcpy(out.data() + (column * rows + row) * sizeof(T),
                      bytes.data() + (row * columns + column) * sizeof(T), sizeof(T));
        }
      }
    }
  }
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
                            absl::string_view evidence) {
  if (config_says && tensors_say) return absl::OkStatus();
  if (config_says) {
    return tensors.Bad(absl::StrCat("quantized by its config, but it has no ", evidence));
  }
  if (tensors_say) {
    return tensors.Bad(absl::StrCat("excluded by its config, but it has a ", evidence));
  }
  return Error(absl::StatusCode::kNotFound, "MODULE_NOT_FOUND",
               absl::StrCat("module \"", tensors.module(), "\" is not quantized"));
}

absl::StatusOr<TensorData> ReadScales(ModuleTensors& tensors, const std::string& key,
                                      const std::vector<std::string>& dtypes,
                                      const std::vector<Shape>& shapes, ScaleSign sign) {
  GEMMD_ASSIGN_OR_RETURN(TensorData data, tensors.Read(key, dtypes, shapes));
  GEMMD_RETURN_IF_ERROR(CheckScales(tensors, key, data, sign));
  return data;
}

absl::Status CheckScales(const ModuleTensors& tensors, const std::string& key,
                         const TensorData& data, ScaleSign sign) {
  const NumberFormat format = FormatOfDtype(data.info.dtype);
  const int64_t count = static_cast<int64_t>(data.bytes.size()) * 8 / format.bits;
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
                                         const std::vector<Shape>& shapes) {
  GEMMD_ASSIGN_OR_RETURN(TensorData data, tensors.Read(key, {"U8", "F8_E8M0"}, shapes));
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
  Buffer out(rows * padded);
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(out.data() + row * padded, bytes.data() + row * row_bytes, row_bytes);
  }
  return out;
}

Buffer Transpose(const Buffer& bytes, int64_t rows, int64_t columns, int64_t element_bytes) {
  Buffer out(bytes.size());
  if (element_bytes == 1) {
    TransposeAs<uint8_t>(bytes, rows, columns, out);
  } else if (element_bytes == 2) {
    TransposeAs<uint16_t>(bytes, rows, columns, out);
  } else {
    TransposeAs<uint32_t>(bytes, rows, columns, out);
  }
  return out;
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

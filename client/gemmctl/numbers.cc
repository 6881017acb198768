#include "client/gemmctl/numbers.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

template <typename Stored, typename Convert>
Bytes EncodeAs(absl::Span<const double> values, Convert convert) {
  Bytes bytes(values.size() * sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    const Stored stored = convert(values[i]);
    std::memcpy(bytes.data() + i * sizeof(Stored), &stored, sizeof(Stored));
  }
  return bytes;
}

template <typename Stored, typename Convert>
std::vector<double> DecodeAs(absl::Span<const std::byte> bytes, Convert convert) {
  std::vector<double> values(bytes.size() / sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = static_cast<double>(convert(stored));
  }
  return values;
}

absl::Status Unsupported(v1::DataType dtype) {
  return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_DTYPE",
               absl::StrCat("no conversion for ", v1::DataType_Name(dtype)));
}

uint64_t SplitMix(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

uint16_t ToBFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float FromBFloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t ToFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  if (std::isnan(value)) return sign | 0x7e00;
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  if (magnitude < 0x1p-14f) {
    return sign | static_cast<uint16_t>(std::nearbyint(static_cast<double>(magnitude) * 0x1p24));
  }
  const uint32_t rounded = (bits & 0x7fffffff) + 0xfff + ((bits >> 13) & 1);
  return sign | static_cast<uint16_t>((rounded >> 13) - (112u << 10));
}

float FromFloat16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  double magnitude = 0;
  if (exponent == 31) {
    magnitude = mantissa == 0 ? INFINITY : NAN;
  } else {
    magnitude =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  }
  return static_cast<float>((bits & 0x8000) != 0 ? -magnitude : magnitude);
}

absl::StatusOr<Bytes> Encode(v1::DataType dtype, absl::Span<const double> values) {
  switch (dtype) {
    case v1::DATA_TYPE_FLOAT32:
      return EncodeAs<float>(values, [](double v) { return static_cast<float>(v); });
    case v1::DATA_TYPE_FLOAT16:
      return EncodeAs<uint16_t>(values, [](double v) { return ToFloat16(static_cast<float>(v)); });
    case v1::DATA_TYPE_BFLOAT16:
      return EncodeAs<uint16_t>(values, [](double v) { return ToBFloat16(static_cast<float>(v)); });
    case v1::DATA_TYPE_INT8:
      return EncodeAs<int8_t>(values, [](double v) { return static_cast<int8_t>(v); });
    case v1::DATA_TYPE_INT32:
      return EncodeAs<int32_t>(values, [](double v) { return static_cast<int32_t>(v); });
    default:
      return Unsupported(dtype);
  }
}

absl::StatusOr<std::vector<double>> Decode(v1::DataType dtype, absl::Span<const std::byte> bytes) {
  const auto same = [](auto v) { return v; };
  switch (dtype) {
    case v1::DATA_TYPE_FLOAT32:
      return DecodeAs<float>(bytes, same);
    case v1::DATA_TYPE_FLOAT16:
      return DecodeAs<uint16_t>(bytes, FromFloat16);
    case v1::DATA_TYPE_BFLOAT16:
      return DecodeAs<uint16_t>(bytes, FromBFloat16);
    case v1::DATA_TYPE_INT8:
      return DecodeAs<int8_t>(bytes, same);
    case v1::DATA_TYPE_INT32:
      return DecodeAs<int32_t>(bytes, same);
    case v1::DATA_TYPE_INT64:
      return DecodeAs<int64_t>(bytes, same);
    default:
      return Unsupported(dtype);
  }
}

absl::StatusOr<v1::DataType> ParseDataType(const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  if (lower == "bf16" || lower == "bfloat16") return v1::DATA_TYPE_BFLOAT16;
  if (lower == "f16" || lower == "fp16" || lower == "float16") return v1::DATA_TYPE_FLOAT16;
  if (lower == "f32" || lower == "fp32" || lower == "float32") return v1::DATA_TYPE_FLOAT32;
  return Error(absl::StatusCode::kInvalidArgument, "BAD_ARGUMENT",
               absl::StrCat("type '", text, "' is none of bf16, f16, f32"));
}

std::string DataTypeName(v1::DataType dtype) {
  switch (dtype) {
    case v1::DATA_TYPE_BFLOAT16:
      return "bf16";
    case v1::DATA_TYPE_FLOAT16:
      return "f16";
    case v1::DATA_TYPE_FLOAT32:
      return "f32";
    default:
      return v1::DataType_Name(dtype);
  }
}

std::vector<double> RandomNormal(uint64_t seed, int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  uint64_t state = seed;
  for (double& value : values) {
    // Box-Muller; u1 is never 0.
    const double u1 = (static_cast<double>(SplitMix(state) >> 11) + 0.5) * 0x1p-53;
    const double u2 = static_cast<double>(SplitMix(state) >> 11) * 0x1p-53;
    value = std::sqrt(-2 * std::log(u1)) * std::cos(2 * std::numbers::pi * u2);
  }
  return values;
}

}  // namespace gemmd::gemmctl

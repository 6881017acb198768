// What    Matrices of doubles to and from the bytes of a request's tensors.
// Numbers Encoding rounds to nearest, ties to even; bfloat16 and float16 overflow to infinity.
// Errors  Unimplemented UNSUPPORTED_DTYPE for types that are neither float nor integer of at most
//         64 bits.
// Threads Pure functions.
#ifndef GEMMD_CLIENT_GEMMCTL_NUMBERS_H_
#define GEMMD_CLIENT_GEMMCTL_NUMBERS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::gemmctl {

using Bytes = std::vector<std::byte>;

uint16_t ToBFloat16(float value);
float FromBFloat16(uint16_t bits);
uint16_t ToFloat16(float value);
float FromFloat16(uint16_t bits);

absl::StatusOr<Bytes> Encode(v1::DataType dtype, absl::Span<const double> values);
absl::StatusOr<std::vector<double>> Decode(v1::DataType dtype, absl::Span<const std::byte> bytes);

// "bf16", "f16", "f32" and the long names of the enum's values, any case.
absl::StatusOr<v1::DataType> ParseDataType(const std::string& text);
std::string DataTypeName(v1::DataType dtype);

// `count` values of a normal distribution; the same seed gives the same values everywhere.
std::vector<double> RandomNormal(uint64_t seed, int64_t count);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_NUMBERS_H_

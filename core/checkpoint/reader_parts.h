// What    What several readers share: scales, biases, codes that are stored as bytes, agreement of
//         config and tensors.
// Errors  InvalidArgument BAD_CHECKPOINT; NotFound MODULE_NOT_FOUND.
// Threads Pure functions.
#ifndef GEMMD_CORE_CHECKPOINT_READER_PARTS_H_
#define GEMMD_CORE_CHECKPOINT_READER_PARTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/json.h"
#include "core/checkpoint/module_tensors.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

constexpr int64_t CeilDivide(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// Number format of a dtype of the header; kNoFormat when it is not a float.
NumberFormat FormatOfDtype(const std::string& dtype);

// Element `index` of a tensor of `format`.
double NumberAt(const TensorData& data, const NumberFormat& format, int64_t index);

// Whether a module is quantized must follow from its config and from its tensors alike.
// `evidence` names what the tensors show, for example "tensor .qweight"; `why_not`, where it is known, what of the config
// leaves the module out.
absl::Status CheckAgreement(const ModuleTensors& tensors, bool config_says, bool tensors_say,
                            absl::string_view evidence, absl::string_view why_not = "");

// As ModuleTensors::Read, of a tensor whose shape follows from what the config says: "bits 8, group_size 32". The error
// about another shape ends with that, because it may be what is wrong.
absl::StatusOr<TensorData> ReadShaped(ModuleTensors& tensors, const std::string& key,
                                      const std::vector<std::string>& dtypes,
                                      const std::vector<Shape>& shapes, absl::string_view config_says);

enum class ScaleSign { kAny, kPositive, kPositiveOrZero };

// ReadShaped of scales; rejects NaN, infinity, zero and the wrong sign. With `config_says` empty the shape does not follow
// from the config.
absl::StatusOr<TensorData> ReadScales(ModuleTensors& tensors, const std::string& key,
                                      const std::vector<std::string>& dtypes,
                                      const std::vector<Shape>& shapes, ScaleSign sign,
                                      absl::string_view config_says = "");
// The same checks on scales that were read already.
absl::Status CheckScales(const ModuleTensors& tensors, const std::string& key,
                         const TensorData& data, ScaleSign sign);
// As ReadScales for e8m0 exponents, stored as U8 or F8_E8M0; rejects the NaN byte 255.
absl::StatusOr<TensorData> ReadExponents(ModuleTensors& tensors, const std::string& key,
                                         const std::vector<Shape>& shapes,
                                         absl::string_view config_says = "");

// The bias at `key`, if there is one, [N] or with experts [E, N].
absl::Status ReadBias(ModuleTensors& tensors, const std::string& key, StandardTensor& tensor);

// 8-bit floats [N, K], or [E, N, K] with `rank` 3: shape, codes and spec.weight of `tensor`.
absl::Status ReadFloat8Weight(ModuleTensors& tensors, const std::string& key, size_t rank,
                              const std::vector<std::string>& dtypes, StandardTensor& tensor);
// Two's complement bytes [N, K] as unsigned codes: shape, codes and spec.weight of `tensor`.
absl::Status ReadInt8Weight(ModuleTensors& tensors, const std::string& key, StandardTensor& tensor);

// Rejects codes of `format` (8 bits) that are NaN or infinite.
absl::Status CheckFinite(const ModuleTensors& tensors, const std::string& key,
                         const NumberFormat& format, const Buffer& codes);

// Two's complement bytes -> offset binary: the value plus 128.
void FlipSigns(Buffer& bytes);

// Rows of `row_bytes`, each padded with zeros to whole words.
Buffer PadRows(Buffer bytes, int64_t row_bytes);

// [rows, columns] -> [columns, rows] of elements of `element_bytes` (1, 2 or 4).
Buffer Transpose(const Buffer& bytes, int64_t rows, int64_t columns, int64_t element_bytes);
// Each of `count` such matrices, which lie after each other, where it lies; needs memory for one more.
void TransposeEach(Buffer& bytes, int64_t count, int64_t rows, int64_t columns,
                   int64_t element_bytes);

// A linear that config and tensors agree not to be quantized: its 16- or 32-bit weights as they are.
absl::StatusOr<StandardTensor> ReadUnquantized(ModuleTensors& tensors);

// e2m1 codes two to a byte in `weight_key` [N, K/2] and one exponent per 32 in `scale_key` [N,
// K/32].
absl::StatusOr<StandardTensor> ReadPlainMxfp4(ModuleTensors& tensors, const std::string& weight_key,
                                              const std::string& scale_key);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_READER_PARTS_H_

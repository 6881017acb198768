// What    compressed-tensors with one byte per weight (int8, fp8, mxfp8) and with two e2m1 codes to
//         a byte (nvfp4, mxfp4).
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/compressed_tensors.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/reader_parts.h"
#include "core/checkpoint/two_level_scales.h"

namespace gemmd {
namespace {

constexpr char kWeight[] = ".weight";
constexpr char kPacked[] = ".weight_packed";
constexpr char kScale[] = ".weight_scale";
constexpr char kGlobalScale[] = ".weight_global_scale";
constexpr int64_t kMxBlock = 32;
constexpr int64_t kNvfp4Block = 16;
constexpr int kMxfp4BiasFixed = 14;  // before version 0.14 MXFP4 exponents were stored minus 2
constexpr uint8_t kMxfp4OldBias = 2;

absl::StatusOr<TensorInfo> RequireWeight(const ModuleTensors& tensors, const char* key,
                                         bool& stacked) {
  const TensorInfo* stored = tensors.Find(key);
  stacked = stored != nullptr && stored->shape.size() == 3;
  return tensors.Require(key, stacked ? 3 : 2);
}

LayerShape ShapeOf(const TensorInfo& info, int64_t codes_per_element) {
  const size_t rank = info.shape.size();
  return {rank == 3 ? info.shape[0] : 1, info.shape[rank - 2],
          info.shape[rank - 1] * codes_per_element};
}

absl::Status ReadByteZeroPoints(const CompressedScheme& scheme, const std::vector<Shape>& shapes,
                                ModuleTensors& tensors, StandardTensor& tensor) {
  constexpr char kKey[] = ".weight_zero_point";
  GEMMD_ASSIGN_OR_RETURN(const TensorData data,
                         ReadShaped(tensors, kKey, {"I8"}, shapes, DescribeScales(scheme)));
  tensor.spec.zero_point = ZeroPointKind::kInteger;
  tensor.zero_points.resize(data.bytes.size() * sizeof(int16_t));
  for (size_t i = 0; i < data.bytes.size(); ++i) {
    const int16_t value = static_cast<int16_t>(data.at<int8_t>(static_cast<int64_t>(i)) + 128);
    std::memcpy(tensor.zero_points.data() + i * sizeof(value), &value, sizeof(value));
  }
  return absl::OkStatus();
}

absl::Status ReadIntegerCodes(const TensorInfo& info, ModuleTensors& tensors,
                              StandardTensor& tensor) {
  GEMMD_ASSIGN_OR_RETURN(TensorData codes, tensors.Read(kWeight, {"I8"}, {info.shape}));
  FlipSigns(codes.bytes);
  tensor.codes = PadRows(std::move(codes.bytes), tensor.shape.k);
  tensor.spec.weight = IntegerFormat(8);
  return absl::OkStatus();
}

absl::Status ReadFloatCodes(const TensorInfo& info, ModuleTensors& tensors,
                            StandardTensor& tensor) {
  GEMMD_ASSIGN_OR_RETURN(TensorData codes, tensors.Read(kWeight, {"F8_E4M3"}, {info.shape}));
  tensor.spec.weight = kFloat8E4M3;
  GEMMD_RETURN_IF_ERROR(CheckFinite(tensors, kWeight, kFloat8E4M3, codes.bytes));
  tensor.codes = PadRows(std::move(codes.bytes), tensor.shape.k);
  return absl::OkStatus();
}

absl::Status CheckGroup(const CompressedScheme& scheme, int64_t expected) {
  const bool grouped = scheme.strategy == "group" || scheme.strategy == "tensor_group";
  if (grouped && scheme.group_size == expected) return absl::OkStatus();
  return UnsupportedFormat(absl::StrCat("compressed-tensors ", scheme.format, " with strategy \"",
                                        scheme.strategy, "\" and group_size ", scheme.group_size,
                                        " is not read: groups of ", expected, " are"));
}

absl::Status ReadNvfp4Scales(const CompressedScheme& scheme, const std::vector<Shape>& shapes, bool stacked,
                             ModuleTensors& tensors, StandardTensor& tensor) {
  const int64_t experts = tensor.shape.experts;
  const std::vector<Shape> global_shapes =
      stacked ? std::vector<Shape>{{experts}, {experts, 1}} : std::vector<Shape>{{1}, {}};
  GEMMD_ASSIGN_OR_RETURN(const TensorData scales,
                         ReadScales(tensors, kScale, {"F8_E4M3"}, shapes, ScaleSign::kPositiveOrZero,
                                    DescribeScales(scheme)));
  GEMMD_ASSIGN_OR_RETURN(
      const TensorData global,
      ReadScales(tensors, kGlobalScale, {"F32"}, global_shapes, ScaleSign::kPositive));
  return FoldDivisors(tensors, kScale, scales, kGlobalScale, global, tensor);
}

// Nothing but the version tells that the exponents are too small.
absl::Status RepairOldExponents(const CompressedScheme& scheme, const ModuleTensors& tensors,
                                Buffer& exponents) {
  if (scheme.format != "mxfp4-pack-quantized") return absl::OkStatus();
  const std::optional<bool> is_fixed = scheme.version.IsSince(kMxfp4BiasFixed);
  if (!is_fixed) {
    return scheme.version.CannotTell(kMxfp4BiasFixed, "the exponents of MXFP4, which were stored minus 2 before");
  }
  if (*is_fixed) return absl::OkStatus();
  for (size_t i = 0; i < exponents.size(); ++i) {
    const auto stored = static_cast<uint8_t>(exponents[i]);
    if (stored > 254 - kMxfp4OldBias) {
      return tensors.Bad(
          kScale, absl::StrCat("element ", i, ": expected an exponent up to ", 254 - kMxfp4OldBias,
                               " in a file of version 0.13 or older, got ", stored));
    }
    exponents[i] = static_cast<std::byte>(stored + kMxfp4OldBias);
  }
  return absl::OkStatus();
}

absl::Status ReadExponentScales(const CompressedScheme& scheme, const std::vector<Shape>& shapes,
                                ModuleTensors& tensors, StandardTensor& tensor) {
  GEMMD_ASSIGN_OR_RETURN(TensorData scales, ReadExponents(tensors, kScale, shapes, DescribeScales(scheme)));
  GEMMD_RETURN_IF_ERROR(RepairOldExponents(scheme, tensors, scales.bytes));
  tensor.spec.scale = kFloat8E8M0;
  tensor.scales = std::move(scales.bytes);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StandardTensor> ReadByteWeights(const CompressedScheme& scheme,
                                               ModuleTensors& tensors) {
  const bool is_float = scheme.type == "float";
  const bool is_mx = scheme.format == "mxfp8-quantized";
  if (scheme.bits != 8 || scheme.activation_order) {
    return UnsupportedFormat(absl::StrCat("compressed-tensors ", scheme.format, " with num_bits ",
                                          scheme.bits, " or actorder is not read: 8 bits are"));
  }
  if (is_mx) GEMMD_RETURN_IF_ERROR(CheckGroup(scheme, kMxBlock));
  bool stacked = false;
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo info, RequireWeight(tensors, kWeight, stacked));
  StandardTensor tensor;
  tensor.shape = ShapeOf(info, 1);
  GEMMD_ASSIGN_OR_RETURN(const std::vector<Shape> shapes,
                         ScaleShapes(scheme, tensors, stacked, tensor));
  GEMMD_RETURN_IF_ERROR(is_float ? ReadFloatCodes(info, tensors, tensor)
                                 : ReadIntegerCodes(info, tensors, tensor));
  if (is_mx) {
    GEMMD_RETURN_IF_ERROR(ReadExponentScales(scheme, shapes, tensors, tensor));
    return tensor;
  }
  const ScaleSign sign = is_float ? ScaleSign::kPositive : ScaleSign::kAny;
  GEMMD_ASSIGN_OR_RETURN(TensorData scales,
                         ReadScales(tensors, kScale, {"F16", "BF16", "F32"}, shapes, sign,
                                    DescribeScales(scheme)));
  tensor.spec.scale = FormatOfDtype(scales.info.dtype);
  tensor.scales = std::move(scales.bytes);
  if (!scheme.symmetric) GEMMD_RETURN_IF_ERROR(ReadByteZeroPoints(scheme, shapes, tensors, tensor));
  return tensor;
}

absl::StatusOr<StandardTensor> ReadPackedFloats(const CompressedScheme& scheme,
                                                ModuleTensors& tensors) {
  const bool is_nvfp4 = scheme.format == "nvfp4-pack-quantized";
  const int64_t block = is_nvfp4 ? kNvfp4Block : kMxBlock;
  GEMMD_RETURN_IF_ERROR(CheckGroup(scheme, block));
  bool stacked = false;
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo info, RequireWeight(tensors, kPacked, stacked));
  StandardTensor tensor;
  tensor.shape = ShapeOf(info, 2);
  if (tensor.shape.k % block != 0) {
    return tensors.Bad(kPacked,
                       absl::StrCat("K is ", tensor.shape.k, ", expected a multiple of ", block));
  }
  GEMMD_ASSIGN_OR_RETURN(const std::vector<Shape> shapes,
                         ScaleShapes(scheme, tensors, stacked, tensor));
  GEMMD_ASSIGN_OR_RETURN(TensorData codes, tensors.Read(kPacked, {"U8"}, {info.shape}));
  tensor.spec.weight = kFloat4E2M1;
  tensor.codes = std::move(codes.bytes);
  GEMMD_RETURN_IF_ERROR(is_nvfp4 ? ReadNvfp4Scales(scheme, shapes, stacked, tensors, tensor)
                                 : ReadExponentScales(scheme, shapes, tensors, tensor));
  return tensor;
}

}  // namespace gemmd

// What    ModelOpt: FP8 (per tensor, channel, block), NVFP4, MXFP8, MXFP4, INT8 and INT4 AWQ.
// Source  https://github.com/NVIDIA/Model-Optimizer; layouts: README.md.
#include "core/checkpoint/modelopt.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/activation_parts.h"
#include "core/checkpoint/composite.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/modelopt_stack.h"
#include "core/checkpoint/reader.h"
#include "core/checkpoint/reader_parts.h"
#include "core/checkpoint/two_level_scales.h"
#include "core/quant/bit_row.h"

namespace gemmd {
namespace modelopt {
namespace {

constexpr char kWeight[] = ".weight";
constexpr char kScale[] = ".weight_scale";
constexpr char kInputScale[] = ".input_scale";
constexpr char kPreQuantScale[] = ".pre_quant_scale";
constexpr char kSecondScale[] = ".weight_scale_2";
constexpr char kAwqFp8[] = "w4a8_awq";
constexpr char kNvfp4Fp8[] = "w4a8_nvfp4_fp8";
constexpr int64_t kMxBlock = 32;
constexpr int64_t kFp8Block = 128;

// What the shapes of scales follow from.
std::string ConfigSays(const ModelOptScheme& scheme) {
  const std::string algorithm = absl::StrCat("quant_algo ", scheme.algorithm);
  return scheme.group_size == 0 ? algorithm : absl::StrCat(algorithm, ", group_size ", scheme.group_size);
}

// Float32 scales of one of `shapes`; the blocks are the caller's.
absl::Status ReadFloatScales(const ModelOptScheme& scheme, ModuleTensors& tensors, const std::vector<Shape>& shapes,
                             ScaleSign sign, StandardTensor& tensor) {
  GEMMD_ASSIGN_OR_RETURN(TensorData scales,
                         ReadScales(tensors, kScale, {"F32"}, shapes, sign, ConfigSays(scheme)));
  tensor.spec.scale = kFloat32;
  tensor.scale_columns = tensor.spec.ScaleColumns(tensor.shape.k);
  tensor.scales = std::move(scales.bytes);
  return absl::OkStatus();
}

// Shapes of one number for a module; two for the halves of a fused gate and up.
std::vector<Shape> TensorShapes(const ModuleTensors& tensors, int64_t n) {
  std::vector<Shape> shapes = {{}, {1}};
  const auto parts = FusedRowParts(tensors.module(), n);
  if (parts.ok() && parts->size() == 2) shapes.push_back({2});
  return shapes;
}

// float32 of the two halves, one for each row.
Buffer RepeatHalves(const Buffer& halves, int64_t n) {
  Buffer rows;
  rows.reserve(n * sizeof(float));
  for (int64_t row = 0; row < n; ++row) {
    const auto from = halves.begin() + (row < n / 2 ? 0 : sizeof(float));
    rows.insert(rows.end(), from, from + sizeof(float));
  }
  return rows;
}

absl::StatusOr<StandardTensor> ReadFp8(const ModelOptScheme& scheme, ModuleTensors& tensors) {
  StandardTensor tensor;
  GEMMD_RETURN_IF_ERROR(ReadFloat8Weight(tensors, kWeight, 2, {"F8_E4M3"}, tensor));
  tensor.spec.scale_block_n = 0;
  const int64_t n = tensor.shape.n;
  GEMMD_RETURN_IF_ERROR(
      ReadFloatScales(scheme, tensors, TensorShapes(tensors, n), ScaleSign::kPositive, tensor));
  if (tensor.scales.size() > sizeof(float)) {
    tensor.spec.scale_block_n = 1;
    tensor.scales = RepeatHalves(tensor.scales, n);
  }
  GEMMD_RETURN_IF_ERROR(ReadStaticActivation(tensors, kInputScale, kFloat8E4M3, tensor));
  return tensor;
}

absl::StatusOr<StandardTensor> ReadFp8Channel(const ModelOptScheme& scheme, ModuleTensors& tensors) {
  StandardTensor tensor;
  GEMMD_RETURN_IF_ERROR(ReadFloat8Weight(tensors, kWeight, 2, {"F8_E4M3"}, tensor));
  const int64_t n = tensor.shape.n;
  GEMMD_RETURN_IF_ERROR(ReadFloatScales(scheme, tensors, {{n}, {n, 1}}, ScaleSign::kPositive, tensor));
  SetDynamicActivation(kFloat8E4M3, 0, tensor);
  return tensor;
}

// Shapes of a grid of blocks: with the unit axes of the exporter, or with any of them dropped.
std::vector<Shape> BlockGridShapes(int64_t rows, int64_t columns) {
  std::vector<Shape> shapes = {{rows, 1, columns, 1}, {rows, columns}};
  if (rows == 1) shapes.push_back({columns});
  if (columns == 1) shapes.push_back({rows});
  if (rows == 1 && columns == 1) shapes.push_back({});
  return shapes;
}

absl::StatusOr<StandardTensor> ReadFp8Block(const ModelOptScheme& scheme, ModuleTensors& tensors) {
  StandardTensor tensor;
  GEMMD_RETURN_IF_ERROR(ReadFloat8Weight(tensors, kWeight, 2, {"F8_E4M3"}, tensor));
  tensor.spec.scale_block_n = kFp8Block;
  tensor.spec.scale_block_k = kFp8Block;
  const std::vector<Shape> shapes = BlockGridShapes(tensor.spec.ScaleRows(tensor.shape.n),
                                                    tensor.spec.ScaleColumns(tensor.shape.k));
  GEMMD_RETURN_IF_ERROR(ReadFloatScales(scheme, tensors, shapes, ScaleSign::kPositive, tensor));
  return tensor;
}

absl::Status CheckGroup(const ModelOptScheme& scheme, int64_t expected) {
  if (scheme.group_size == 0 || scheme.group_size == expected) return absl::OkStatus();
  return UnsupportedFormat(absl::StrCat("ModelOpt quant_algo \"", scheme.algorithm,
                                        "\" with group_size ", scheme.group_size,
                                        " is not read: ", expected, " is"));
}

// Columns per scale of NVFP4.
absl::StatusOr<int64_t> Nvfp4Block(const ModelOptScheme& scheme) {
  const int64_t block = ModelOptNvfp4Block(scheme);
  GEMMD_RETURN_IF_ERROR(CheckGroup(scheme, block));
  return block;
}

// One factor above all scales, which are read, or one for each half of gate and up. Other than compressed-tensors'
// weight_global_scale it multiplies.
absl::Status ReadSecondaryScale(ModuleTensors& tensors, StandardTensor& tensor) {
  const int64_t n = tensor.shape.n;
  GEMMD_ASSIGN_OR_RETURN(TensorData factor,
                         ReadScales(tensors, kSecondScale, {"F32"}, TensorShapes(tensors, n),
                                    ScaleSign::kPositive));
  tensor.spec.secondary_scale = SecondaryScaleKind::kTensor;
  tensor.secondary_scales = std::move(factor.bytes);
  if (tensor.secondary_scales.size() > sizeof(float)) {
    tensor.spec.secondary_scale = SecondaryScaleKind::kChannel;
    tensor.secondary_scales = RepeatHalves(tensor.secondary_scales, n);
  }
  return CheckFactors(tensors, kScale, kSecondScale, tensor);
}

absl::StatusOr<StandardTensor> ReadNvfp4(const ModelOptScheme& scheme, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const int64_t block, Nvfp4Block(scheme));
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo info, tensors.Require(kWeight, 2));
  StandardTensor tensor;
  tensor.shape = {1, info.shape[0], 2 * info.shape[1]};
  const auto [experts, n, k] = tensor.shape;
  if (k % block != 0) {
    return tensors.Bad(kWeight, absl::StrCat("K is ", k, ", expected a multiple of ", block));
  }
  GEMMD_ASSIGN_OR_RETURN(TensorData codes, tensors.Read(kWeight, {"U8"}, {info.shape}));
  GEMMD_ASSIGN_OR_RETURN(
      TensorData scales,
      ReadScales(tensors, kScale, {"F8_E4M3"}, {{n, k / block}}, ScaleSign::kPositiveOrZero, ConfigSays(scheme)));
  tensor.spec.weight = kFloat4E2M1;
  tensor.spec.scale = kFloat8E4M3;
  tensor.spec.scale_block_k = block;
  tensor.scale_columns = k / block;
  tensor.codes = PadRows(std::move(codes.bytes), k / 2);
  tensor.scales = std::move(scales.bytes);
  GEMMD_RETURN_IF_ERROR(ReadSecondaryScale(tensors, tensor));
  if (scheme.algorithm == "nvfp4_awq") {
    GEMMD_RETURN_IF_ERROR(ReadInputScale(tensors, kPreQuantScale, tensor));
  }
  if (scheme.algorithm == "w4a16_nvfp4") return tensor;
  if (scheme.algorithm == kNvfp4Fp8) {
    GEMMD_RETURN_IF_ERROR(ReadStaticActivation(tensors, kInputScale, kFloat8E4M3, tensor));
    return tensor;
  }
  SetDynamicActivation(kFloat4E2M1, block, tensor);
  GEMMD_RETURN_IF_ERROR(
      ReadActivationGlobalScale(tensors, kInputScale, GlobalScale::kFactor, tensor));
  return tensor;
}

// SVDQuant: y = x w^T + (x a^T) b^T, the second term in 16 bits.
absl::Status RefuseLowRank() {
  return UnsupportedFormat(
      "ModelOpt quant_algo \"nvfp4_svd\" is not read: it adds a low-rank branch (svdquant_lora_a, "
      "svdquant_lora_b) to "
      "the product of its quantized weights, and their sum is no number of a quantized type");
}

absl::StatusOr<StandardTensor> ReadMxfp8(const ModelOptScheme& scheme, ModuleTensors& tensors) {
  GEMMD_RETURN_IF_ERROR(CheckGroup(scheme, kMxBlock));
  StandardTensor tensor;
  GEMMD_RETURN_IF_ERROR(ReadFloat8Weight(tensors, kWeight, 2, {"F8_E4M3"}, tensor));
  const auto [experts, n, k] = tensor.shape;
  if (k % kMxBlock != 0) {
    return tensors.Bad(kWeight, absl::StrCat("K is ", k, ", expected a multiple of ", kMxBlock));
  }
  GEMMD_ASSIGN_OR_RETURN(TensorData scales, ReadExponents(tensors, kScale, {{n, k / kMxBlock}}, ConfigSays(scheme)));
  tensor.spec.scale = kFloat8E8M0;
  tensor.spec.scale_block_k = kMxBlock;
  tensor.scale_columns = k / kMxBlock;
  tensor.scales = std::move(scales.bytes);
  SetDynamicActivation(kFloat8E4M3, kMxBlock, tensor);
  SetGroupScaleType(kFloat8E8M0, tensor);
  return tensor;
}

absl::StatusOr<StandardTensor> ReadMxfp4(const ModelOptScheme& scheme, ModuleTensors& tensors) {
  GEMMD_RETURN_IF_ERROR(CheckGroup(scheme, kMxBlock));
  GEMMD_ASSIGN_OR_RETURN(StandardTensor tensor, ReadPlainMxfp4(tensors, kWeight, kScale));
  if (scheme.algorithm == "mxfp4") {
    SetDynamicActivation(kFloat4E2M1, kMxBlock, tensor);
    SetGroupScaleType(kFloat8E8M0, tensor);
  } else if (tensors.Find(kInputScale) != nullptr) {
    GEMMD_RETURN_IF_ERROR(ReadStaticActivation(tensors, kInputScale, kFloat8E4M3, tensor));
  } else {
    SetDynamicActivation(kFloat8E4M3, 0, tensor);
  }
  return tensor;
}

// Byte [i, k]: row 2i in the low nibble, row 2i + 1 in the high one, two's complement.
Buffer UnpackRowPairs(const TensorData& packed, int64_t n, int64_t k) {
  const int64_t row_bytes = BitRowBytes(k, 4);
  Buffer codes(n * row_bytes);
  std::vector<uint8_t> row(k);
  for (int64_t i = 0; i < n; ++i) {
    const int shift = i % 2 == 0 ? 0 : 4;
    for (int64_t column = 0; column < k; ++column) {
      // The value plus 8.
      row[column] = ((packed.at<uint8_t>(i / 2 * k + column) >> shift) & 15) ^ 8;
    }
    PackBitRow(row, 4, codes.data() + i * row_bytes);
  }
  return codes;
}

// The group size of the config, or what the scales [N, G] tell when it is silent.
absl::StatusOr<int64_t> AwqGroupSize(const ModelOptScheme& scheme, const ModuleTensors& tensors,
                                     int64_t k) {
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo scales, tensors.Require(kScale, 2));
  const int64_t groups = scales.shape[1];
  const int64_t group_size = scheme.group_size > 0 ? scheme.group_size : k / groups;
  if (group_size < 1 || k % group_size != 0) {
    return tensors.Bad(kScale, absl::StrCat("expected groups that divide K ", k, ", got ",
                                            scales.Describe(), " with group_size ", group_size));
  }
  return group_size;
}

absl::StatusOr<StandardTensor> ReadAwq(const ModelOptScheme& scheme, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo info, tensors.Require(kWeight, 2));
  StandardTensor tensor;
  tensor.shape = {1, 2 * info.shape[0], info.shape[1]};
  const auto [experts, n, k] = tensor.shape;
  GEMMD_ASSIGN_OR_RETURN(tensor.spec.scale_block_k, AwqGroupSize(scheme, tensors, k));
  GEMMD_ASSIGN_OR_RETURN(const TensorData packed, tensors.Read(kWeight, {"U8"}, {info.shape}));
  tensor.spec.weight = IntegerFormat(4);
  tensor.codes = UnpackRowPairs(packed, n, k);
  GEMMD_RETURN_IF_ERROR(
      ReadFloatScales(scheme, tensors, {{n, tensor.spec.ScaleColumns(k)}}, ScaleSign::kAny, tensor));
  GEMMD_RETURN_IF_ERROR(ReadInputScale(tensors, kPreQuantScale, tensor));
  if (scheme.algorithm != kAwqFp8) return tensor;
  // What engines that multiply in FP8 divide the weights by to round them to e4m3; w is the same without.
  GEMMD_RETURN_IF_ERROR(ReadScales(tensors, kSecondScale, {"F32", "BF16", "F16"},
                                   TensorShapes(tensors, n), ScaleSign::kPositive)
                            .status());
  GEMMD_RETURN_IF_ERROR(ReadStaticActivation(tensors, kInputScale, kFloat8E4M3, tensor));
  return tensor;
}

absl::StatusOr<StandardTensor> ReadInt8(const ModelOptScheme& scheme, ModuleTensors& tensors) {
  StandardTensor tensor;
  GEMMD_RETURN_IF_ERROR(ReadInt8Weight(tensors, kWeight, tensor));
  const int64_t n = tensor.shape.n;
  GEMMD_RETURN_IF_ERROR(ReadFloatScales(scheme, tensors, {{n}, {n, 1}}, ScaleSign::kAny, tensor));
  GEMMD_RETURN_IF_ERROR(ReadInputScale(tensors, kPreQuantScale, tensor));
  if (scheme.algorithm == "w8a8_sq_per_channel") {
    GEMMD_RETURN_IF_ERROR(ReadStaticActivation(tensors, kInputScale, kInt8, tensor));
  }
  return tensor;
}

struct Algorithm {
  const char* name;
  absl::StatusOr<StandardTensor> (*read)(const ModelOptScheme& scheme, ModuleTensors& tensors);
};

constexpr std::array<Algorithm, 14> kAlgorithms = {{
    {"fp8", &ReadFp8},
    {"fp8_per_channel_per_token", &ReadFp8Channel},
    {"fp8_pb_wo", &ReadFp8Block},
    {"nvfp4", &ReadNvfp4},
    {"w4a16_nvfp4", &ReadNvfp4},
    {"nvfp4_awq", &ReadNvfp4},
    {kNvfp4Fp8, &ReadNvfp4},
    {"mxfp8", &ReadMxfp8},
    {"mxfp4", &ReadMxfp4},
    {"w4a8_mxfp4_fp8", &ReadMxfp4},
    {"w4a16_awq", &ReadAwq},
    {kAwqFp8, &ReadAwq},
    {"w8a8_sq_per_channel", &ReadInt8},
    {"w8a16", &ReadInt8},
}};

bool LooksQuantized(const ModuleTensors& tensors) {
  const TensorInfo* weight = tensors.Find(kWeight);
  if (weight == nullptr) weight = tensors.Find("");
  return tensors.Find(kScale) != nullptr || tensors.Find("_weight_scale") != nullptr ||
         (weight != nullptr && (weight->dtype == "U8" || weight->dtype == "I8" ||
                                FormatOfDtype(weight->dtype).bits == 8));
}

// A module with a weight [N, K].
absl::StatusOr<StandardTensor> ReadOne(const ModelOptScheme& scheme, ModuleTensors& tensors) {
  if (scheme.algorithm == "nvfp4_svd") return RefuseLowRank();
  std::string known;
  for (const Algorithm& algorithm : kAlgorithms) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", algorithm.name);
    if (scheme.algorithm != algorithm.name) continue;
    GEMMD_ASSIGN_OR_RETURN(StandardTensor tensor, algorithm.read(scheme, tensors));
    GEMMD_RETURN_IF_ERROR(ReadBias(tensors, ".bias", tensor));
    return tensor;
  }
  return UnsupportedFormat(
      absl::StrCat("ModelOpt quant_algo \"", scheme.algorithm, "\" is not read: ", known, " are"));
}

absl::StatusOr<StandardTensor> Read(const Json& config, const ReadingOptions&, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const std::optional<ModelOptScheme> scheme,
                         ModelOptSchemeOf(config, tensors.module()));
  if (LooksQuantized(tensors) && FindField(config, {"quant_algo"}) == nullptr) {
    return WrongField("quant_algo", "the algorithm of a quantized module", nullptr);
  }
  GEMMD_RETURN_IF_ERROR(CheckAgreement(tensors, scheme.has_value(), LooksQuantized(tensors),
                                       "8-bit .weight or a .weight_scale"));
  if (!IsModelOptStack(tensors)) return ReadOne(*scheme, tensors);
  return ReadModelOptStack(*scheme, tensors,
                           [&](ModuleTensors& expert) { return ReadOne(*scheme, expert); });
}

}  // namespace
}  // namespace modelopt

CheckpointReader ModelOptReader() {
  return {"modelopt", {".weight_scale", "_weight_scale"}, &modelopt::Read};
}

}  // namespace gemmd

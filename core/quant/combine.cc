#include "core/quant/combine.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

using Parts = std::vector<StandardTensor>;

// "weight type: part 1 has int8, part 0 has int4"; what `got` and `first` say, where that is short.
absl::Status Differ(absl::string_view what, size_t part, absl::string_view got = "", absl::string_view first = "") {
  return Error(absl::StatusCode::kInvalidArgument, "PARTS_DIFFER",
               got.empty() ? absl::StrCat("part ", part, " has another ", what, " than part 0")
                           : absl::StrCat(what, ": part ", part, " has ", got, ", part 0 has ", first));
}

absl::Status Differ(absl::string_view what, size_t part, int64_t got, int64_t first) {
  return Differ(what, part, absl::StrCat(got), absl::StrCat(first));
}

std::string TypeText(const NumberFormat& format) {
  if (!format.present()) return "none";
  if (format.kind == NumberKind::kInteger) return absl::StrCat("int", format.bits);
  static constexpr std::pair<NumberFormat, const char*> kNames[] = {
      {kFloat32, "F32"},         {kFloat16, "F16"},         {kBFloat16, "BF16"},      {kFloat8E4M3, "F8_E4M3"},
      {kFloat8E5M2, "F8_E5M2"},  {kFloat8E8M0, "F8_E8M0"},  {kFloat4E2M1, "F4_E2M1"}};
  for (const auto& [named, name] : kNames) {
    if (named == format) return name;
  }
  return absl::StrCat("a float of ", format.bits, " bits");
}

absl::Status DifferInType(absl::string_view what, size_t part, const NumberFormat& got, const NumberFormat& first) {
  return Differ(what, part, TypeText(got), TypeText(first));
}

const char* ZeroPointText(ZeroPointKind kind) {
  switch (kind) {
    case ZeroPointKind::kNone:
      return "none";
    case ZeroPointKind::kInteger:
      return "integers";
    case ZeroPointKind::kFloat:
      return "floats";
  }
  return "";
}

// The first column whose group differs.
absl::Status DifferInGroups(size_t part, const StandardTensor& got, const StandardTensor& first) {
  for (size_t at = 0; at + sizeof(int32_t) <= std::min(got.group_index.size(), first.group_index.size());
       at += sizeof(int32_t)) {
    int32_t groups[2];
    std::memcpy(&groups[0], got.group_index.data() + at, sizeof(int32_t));
    std::memcpy(&groups[1], first.group_index.data() + at, sizeof(int32_t));
    if (groups[0] == groups[1]) continue;
    return Differ(absl::StrCat("group of column ", static_cast<int64_t>(at / sizeof(int32_t)) % got.shape.k, " (g_idx)"),
                  part, groups[0], groups[1]);
  }
  return Differ("group index", part);
}

template <typename T>
void Append(Buffer& buffer, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  buffer.insert(buffer.end(), bytes, bytes + sizeof(value));
}

bool Any(const Parts& parts, bool (*has)(const QuantSpec&)) {
  return std::any_of(parts.begin(), parts.end(),
                     [has](const StandardTensor& part) { return has(part.spec); });
}

// ---- agreement ----

// Columns per group; 0 for one group of all K, which a block of K and more says too.
int64_t GroupSize(const StandardTensor& part) {
  return part.spec.scale_block_k >= part.shape.k ? 0 : part.spec.scale_block_k;
}

// As configs write it: -1 for all K.
int64_t GroupSizeInConfigs(const StandardTensor& part) {
  return part.spec.scale_block_k == 0 ? -1 : part.spec.scale_block_k;
}

// The first format of a bias among `parts`; those without one get zeros.
NumberFormat BiasOf(const Parts& parts) {
  for (const StandardTensor& part : parts) {
    if (part.spec.bias.present()) return part.spec.bias;
  }
  return kNoFormat;
}

// As it will be: an implied zero point of integers can be written out.
ZeroPointKind WrittenZeroPoint(const QuantSpec& spec, bool others_write) {
  const bool implied =
      spec.zero_point == ZeroPointKind::kNone && spec.weight.kind == NumberKind::kInteger;
  return implied && others_write ? ZeroPointKind::kInteger : spec.zero_point;
}

bool HasZeroPoints(const QuantSpec& spec) { return spec.zero_point == ZeroPointKind::kInteger; }

bool SameActivations(const StandardTensor& a, const StandardTensor& b) {
  return a.spec.activation == b.spec.activation &&
         a.spec.activation_scale == b.spec.activation_scale &&
         a.spec.activation_group == b.spec.activation_group && a.encoding == b.encoding;
}

// ---- one way of writing each optional tensor ----

// The implied zero point, written out.
void WriteZeroPoints(StandardTensor& part) {
  if (part.spec.zero_point != ZeroPointKind::kNone) return;
  const auto middle = static_cast<int16_t>(1 << (part.spec.weight.bits - 1));
  const int64_t count = part.shape.experts * part.spec.ScaleRows(part.shape.n) * part.scale_columns;
  part.zero_points.reserve(count * sizeof(middle));
  for (int64_t i = 0; i < count; ++i) Append(part.zero_points, middle);
  part.spec.zero_point = ZeroPointKind::kInteger;
}

void WriteGroupIndex(StandardTensor& part) {
  if (part.spec.has_group_index) return;
  const int64_t k = part.shape.k;
  const int64_t block = part.spec.scale_block_k == 0 ? k : part.spec.scale_block_k;
  part.group_index.reserve(part.shape.experts * k * sizeof(int32_t));
  for (int64_t i = 0; i < part.shape.experts * k; ++i) {
    Append(part.group_index, static_cast<int32_t>(i % k / block));
  }
  part.spec.has_group_index = true;
}

// One group of all K, where the parts say it in several ways.
void WriteGroupSize(Parts& parts) {
  const bool same = std::all_of(parts.begin(), parts.end(), [&](const StandardTensor& part) {
    return part.spec.scale_block_k == parts.front().spec.scale_block_k;
  });
  if (same) return;
  for (StandardTensor& part : parts) part.spec.scale_block_k = 0;
}

void WriteBias(const NumberFormat& format, StandardTensor& part) {
  if (part.spec.bias.present()) return;
  part.spec.bias = format;
  part.bias.resize(part.shape.experts * part.shape.n * format.bits / 8);  // zeros
}

// Factors of 1.
void WriteInputScale(StandardTensor& part) {
  if (part.has_input_scale) return;
  part.has_input_scale = true;
  for (int64_t i = 0; i < part.shape.experts * part.shape.k; ++i) Append(part.input_scale, 1.0f);
}

// Secondary scales per channel.
void WriteChannelScales(StandardTensor& part) {
  const SecondaryScaleKind kind = part.spec.secondary_scale;
  if (kind == SecondaryScaleKind::kChannel) return;
  Buffer scales;
  scales.reserve(part.shape.experts * part.shape.n * sizeof(float));
  for (int64_t expert = 0; expert < part.shape.experts; ++expert) {
    float scale = 1;
    if (kind == SecondaryScaleKind::kTensor) {
      std::memcpy(&scale, part.secondary_scales.data() + expert * sizeof(scale), sizeof(scale));
    }
    for (int64_t row = 0; row < part.shape.n; ++row) Append(scales, scale);
  }
  part.secondary_scales = std::move(scales);
  part.spec.secondary_scale = SecondaryScaleKind::kChannel;
}

// Rows of a grid [E, SN, columns] repeated for blocks of `block_n` rows instead of those of `spec`.
Buffer RepeatRows(const Buffer& grid, const StandardTensor& part, int64_t block_n) {
  const auto [experts, n, k] = part.shape;
  const int64_t old_rows = part.spec.ScaleRows(n);
  const int64_t old_block = part.spec.scale_block_n == 0 ? n : part.spec.scale_block_n;
  const int64_t row_bytes = static_cast<int64_t>(grid.size()) / (experts * old_rows);
  Buffer out;
  out.reserve(experts * ((n + block_n - 1) / block_n) * row_bytes);
  for (int64_t expert = 0; expert < experts; ++expert) {
    for (int64_t row = 0; row < n; row += block_n) {
      const auto from = grid.begin() + (expert * old_rows + row / old_block) * row_bytes;
      out.insert(out.end(), from, from + row_bytes);
    }
  }
  return out;
}

// Writes every optional tensor out that at least one part has.
void MakeAlike(Parts& parts) {
  WriteGroupSize(parts);
  const bool zero_points = Any(parts, HasZeroPoints);
  const bool group_index = Any(parts, [](const QuantSpec& spec) { return spec.has_group_index; });
  const NumberFormat bias = BiasOf(parts);
  const bool input_scale = std::any_of(
      parts.begin(), parts.end(), [](const StandardTensor& part) { return part.has_input_scale; });
  for (StandardTensor& part : parts) {
    if (input_scale) WriteInputScale(part);
    if (zero_points && part.spec.weight.kind == NumberKind::kInteger) WriteZeroPoints(part);
    if (group_index) WriteGroupIndex(part);
    if (bias.present()) WriteBias(bias, part);
  }
}

// ---- rows ----

bool SameBytes(const Parts& parts, Buffer StandardTensor::*tensor) {
  return std::all_of(parts.begin(), parts.end(), [&](const StandardTensor& part) {
    return part.*tensor == parts.front().*tensor;
  });
}

// Rows that share a scale in all parts: scales of the tensor become scales of the channels unless
// all parts have the same one; blocks are split where a part ends inside of one.
int64_t CommonRowBlock(const Parts& parts) {
  const bool whole = std::all_of(parts.begin(), parts.end(), [](const StandardTensor& part) {
    return part.spec.scale_block_n == 0;
  });
  if (whole) {
    const bool same =
        SameBytes(parts, &StandardTensor::scales) && SameBytes(parts, &StandardTensor::zero_points);
    return same ? 0 : 1;
  }
  int64_t block = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].spec.scale_block_n == 0) return 1;
    block = std::gcd(block, parts[i].spec.scale_block_n);
    if (i + 1 < parts.size()) block = std::gcd(block, parts[i].shape.n);
  }
  return block;
}

void AlignScaleRows(Parts& parts) {
  const int64_t block = CommonRowBlock(parts);
  if (block == 0) return;
  for (StandardTensor& part : parts) SplitScaleRows(block, part);
}

void AlignSecondaryScales(Parts& parts) {
  const auto is_tensor = [](const StandardTensor& part) {
    return part.spec.secondary_scale == SecondaryScaleKind::kTensor;
  };
  const bool absent = !Any(parts, [](const QuantSpec& spec) {
    return spec.secondary_scale != SecondaryScaleKind::kNone;
  });
  const bool same_tensor = std::all_of(parts.begin(), parts.end(), is_tensor) &&
                           SameBytes(parts, &StandardTensor::secondary_scales);
  if (absent || same_tensor) return;
  for (StandardTensor& part : parts) WriteChannelScales(part);
}

// [E, rows of part 0, rows of part 1, ...] of one tensor.
Buffer JoinRows(Parts& parts, Buffer StandardTensor::*tensor) {
  const int64_t experts = parts.front().shape.experts;
  size_t size = 0;
  for (const StandardTensor& part : parts) size += (part.*tensor).size();
  Buffer out;
  out.reserve(size);
  for (int64_t expert = 0; expert < experts; ++expert) {
    for (const StandardTensor& part : parts) {
      const int64_t bytes = static_cast<int64_t>((part.*tensor).size()) / experts;
      const auto from = (part.*tensor).begin() + expert * bytes;
      out.insert(out.end(), from, from + bytes);
    }
  }
  for (StandardTensor& part : parts) Buffer().swap(part.*tensor);
  return out;
}

// Element by element of one float32 tensor.
Buffer Choose(const Parts& parts, Buffer StandardTensor::*tensor,
              const float& (*choice)(const float&, const float&)) {
  Buffer chosen = parts.front().*tensor;
  for (const StandardTensor& part : parts) {
    for (size_t offset = 0; offset < chosen.size(); offset += sizeof(float)) {
      float a;
      float b;
      std::memcpy(&a, chosen.data() + offset, sizeof(a));
      std::memcpy(&b, (part.*tensor).data() + offset, sizeof(b));
      a = choice(a, b);
      std::memcpy(chosen.data() + offset, &a, sizeof(a));
    }
  }
  return chosen;
}

// The parts see the same activations: one scale must cover what each of them expects.
absl::Status JoinActivationTensors(const Parts& parts, StandardTensor& out) {
  using T = StandardTensor;
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].input_scale != parts[0].input_scale) return Differ("input scale", i);
    const bool same = parts[i].activation_scale == parts[0].activation_scale &&
                      parts[i].activation_zero_point == parts[0].activation_zero_point;
    if (parts[0].encoding.zero_points && !same) return Differ("range of activations", i);
  }
  out.has_input_scale = parts[0].has_input_scale;
  out.input_scale = parts[0].input_scale;
  out.encoding = parts[0].encoding;
  out.activation_zero_point = parts[0].activation_zero_point;
  out.activation_scale = Choose(parts, &T::activation_scale, &std::max<float>);
  // A divisor: the smallest is of the largest activations.
  out.activation_global_scale = Choose(parts, &T::activation_global_scale, &std::min<float>);
  return absl::OkStatus();
}

// ---- experts ----

void AlignExpertScales(Parts& parts) {
  int64_t block = parts.front().spec.scale_block_n;
  bool same_block = true;
  bool same_secondary = true;
  for (const StandardTensor& part : parts) {
    same_block = same_block && part.spec.scale_block_n == block;
    same_secondary =
        same_secondary && part.spec.secondary_scale == parts.front().spec.secondary_scale;
  }
  for (StandardTensor& part : parts) {
    if (!same_block) SplitScaleRows(1, part);
    if (!same_secondary) WriteChannelScales(part);
  }
}

// Frees each part's tensor once it is copied: the parts and the stack together stay near the size
// of the stack.
Buffer JoinExperts(Parts& parts, Buffer StandardTensor::*tensor) {
  size_t size = 0;
  for (const StandardTensor& part : parts) size += (part.*tensor).size();
  Buffer out;
  out.reserve(size);
  for (StandardTensor& part : parts) {
    out.insert(out.end(), (part.*tensor).begin(), (part.*tensor).end());
    Buffer().swap(part.*tensor);
  }
  return out;
}

}  // namespace

absl::Status CheckAlike(const std::vector<StandardTensor>& parts) {
  const StandardTensor& first = parts.front();
  const bool zero_points = Any(parts, HasZeroPoints);
  const NumberFormat bias = BiasOf(parts);
  for (size_t i = 0; i < parts.size(); ++i) {
    const StandardTensor& part = parts[i];
    if (part.shape.k != first.shape.k) return Differ("K", i, part.shape.k, first.shape.k);
    if (!(part.spec.weight == first.spec.weight)) {
      return DifferInType("weight type", i, part.spec.weight, first.spec.weight);
    }
    if (!(part.spec.scale == first.spec.scale)) {
      return DifferInType("scale type", i, part.spec.scale, first.spec.scale);
    }
    if (GroupSize(part) != GroupSize(first)) {
      return Differ("group size", i, GroupSizeInConfigs(part), GroupSizeInConfigs(first));
    }
    if (part.scale_columns != first.scale_columns) {
      return Differ("number of groups", i, part.scale_columns, first.scale_columns);
    }
    if (part.spec.bias.present() && !(part.spec.bias == bias)) {
      return Differ("bias type", i, TypeText(part.spec.bias), absl::StrCat(TypeText(bias), " or none"));
    }
    if (WrittenZeroPoint(part.spec, zero_points) != WrittenZeroPoint(first.spec, zero_points)) {
      return Differ("kind of zero points", i, ZeroPointText(part.spec.zero_point), ZeroPointText(first.spec.zero_point));
    }
    if (!SameActivations(part, first)) return Differ("quantization of activations", i);
    if (part.gate_up_interleaved != first.gate_up_interleaved) return Differ("order of rows", i);
  }
  return absl::OkStatus();
}

void SplitScaleRows(int64_t block_n, StandardTensor& tensor) {
  if (tensor.spec.scale_block_n == block_n) return;
  tensor.scales = RepeatRows(tensor.scales, tensor, block_n);
  tensor.zero_points = RepeatRows(tensor.zero_points, tensor, block_n);
  tensor.spec.scale_block_n = block_n;
}

absl::StatusOr<StandardTensor> ConcatenateRows(std::vector<StandardTensor> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  GEMMD_RETURN_IF_ERROR(CheckAlike(parts));
  MakeAlike(parts);
  StandardTensor out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].shape.experts != parts[0].shape.experts) {
      return Differ("number of experts", i, parts[i].shape.experts, parts[0].shape.experts);
    }
    if (parts[i].gate_up_interleaved) return Differ("order of rows", i);
    if (parts[i].group_index != parts[0].group_index) return DifferInGroups(i, parts[i], parts[0]);
    out.shape.n += parts[i].shape.n;
  }
  GEMMD_RETURN_IF_ERROR(JoinActivationTensors(parts, out));
  AlignScaleRows(parts);
  AlignSecondaryScales(parts);
  out.spec = parts[0].spec;
  out.shape.experts = parts[0].shape.experts;
  out.shape.k = parts[0].shape.k;
  out.scale_columns = parts[0].scale_columns;
  out.group_index = parts[0].group_index;
  out.codes = JoinRows(parts, &StandardTensor::codes);
  if (out.spec.scale_block_n == 0) {  // the parts share them
    out.scales = std::move(parts[0].scales);
    out.zero_points = std::move(parts[0].zero_points);
  } else {
    out.scales = JoinRows(parts, &StandardTensor::scales);
    out.zero_points = JoinRows(parts, &StandardTensor::zero_points);
  }
  out.secondary_scales = out.spec.secondary_scale == SecondaryScaleKind::kTensor
                             ? std::move(parts[0].secondary_scales)
                             : JoinRows(parts, &StandardTensor::secondary_scales);
  out.bias = JoinRows(parts, &StandardTensor::bias);
  return out;
}

absl::StatusOr<StandardTensor> StackExperts(std::vector<StandardTensor> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  GEMMD_RETURN_IF_ERROR(CheckAlike(parts));
  MakeAlike(parts);
  StandardTensor out;
  out.shape = {0, parts[0].shape.n, parts[0].shape.k};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].shape.n != parts[0].shape.n) return Differ("N", i, parts[i].shape.n, parts[0].shape.n);
    out.shape.experts += parts[i].shape.experts;
  }
  AlignExpertScales(parts);
  out.spec = parts[0].spec;
  out.scale_columns = parts[0].scale_columns;
  out.gate_up_interleaved = parts[0].gate_up_interleaved;
  out.has_input_scale = parts[0].has_input_scale;
  out.encoding = parts[0].encoding;
  for (Buffer StandardTensor::*tensor :
       {&StandardTensor::codes, &StandardTensor::scales, &StandardTensor::zero_points,
        &StandardTensor::secondary_scales, &StandardTensor::group_index, &StandardTensor::bias,
        &StandardTensor::activation_scale, &StandardTensor::input_scale,
        &StandardTensor::activation_zero_point, &StandardTensor::activation_global_scale}) {
    out.*tensor = JoinExperts(parts, tensor);
  }
  return out;
}

}  // namespace gemmd

#include "client/gemmctl/export_layer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client/gemmctl/export_spec.h"
#include "core/quant/reference.h"
#include "core/quant/standard_tensor.h"
#include "kernels/base/status.h"
#include "nlohmann/json.hpp"

namespace gemmd::gemmctl {
namespace {

constexpr size_t kBlockBytes = size_t{4} << 20;

struct NamedTensor {
  std::string name;
  std::string dtype;  // as safetensors spells it
  int element_bytes = 1;
  std::vector<int64_t> shape;
  const Buffer* buffer = nullptr;  // null: computed while it is written

  int64_t bytes() const {
    int64_t product = element_bytes;
    for (const int64_t extent : shape) product *= extent;
    return product;
  }
};

// Counts what is written and asks `progress` whether to go on.
class Sink {
 public:
  Sink(ExportFile& file, const ProgressFunction& progress, uint64_t total)
      : file_(file), progress_(progress), total_(total) {}

  absl::Status Write(const void* data, size_t size) {
    GEMMD_RETURN_IF_ERROR(file_.Write(data, size));
    done_ += size;
    if (progress_ == nullptr || progress_(done_, total_)) return absl::OkStatus();
    return absl::CancelledError("the export was cancelled");
  }

  absl::Status WriteBlocks(const Buffer& buffer) {
    for (size_t at = 0; at < buffer.size(); at += kBlockBytes) {
      GEMMD_RETURN_IF_ERROR(Write(buffer.data() + at, std::min(kBlockBytes, buffer.size() - at)));
    }
    return absl::OkStatus();
  }

 private:
  ExportFile& file_;
  const ProgressFunction& progress_;
  const uint64_t total_;
  uint64_t done_ = 0;
};

std::string DtypeOf(const NumberFormat& format) {
  if (format == kFloat32) return "F32";
  if (format == kFloat16) return "F16";
  if (format == kBFloat16) return "BF16";
  if (format == kFloat8E4M3) return "F8_E4M3";
  return format == kFloat8E5M2 ? "F8_E5M2" : "F8_E8M0";
}

std::vector<NamedTensor> StandardTensors(const StandardTensor& tensor) {
  const QuantSpec& spec = tensor.spec;
  const auto [experts, n, k] = tensor.shape;
  const std::vector<int64_t> grid = {experts, spec.ScaleRows(n), tensor.scale_columns};
  const bool integer_zeros = spec.zero_point == ZeroPointKind::kInteger;
  std::vector<int64_t> secondary = {experts};
  if (spec.secondary_scale == SecondaryScaleKind::kChannel) secondary.push_back(n);
  std::vector<NamedTensor> tensors = {
      {"codes", "U32", 4, {experts, n, spec.RowWords(k)}, &tensor.codes},
      {"scales", DtypeOf(spec.scale), spec.scale.bits / 8, grid, &tensor.scales},
      {"zero_points", integer_zeros ? "I16" : "F32", integer_zeros ? 2 : 4, grid,
       &tensor.zero_points},
      {"secondary_scales", "F32", 4, secondary, &tensor.secondary_scales},
      {"group_index", "I32", 4, {experts, k}, &tensor.group_index},
      {"bias", DtypeOf(spec.bias), spec.bias.bits / 8, {experts, n}, &tensor.bias},
      {"activation_scale", "F32", 4, {experts}, &tensor.activation_scale},
      {"input_scale", "F32", 4, {experts, k}, &tensor.input_scale},
      {"activation_zero_point", "I16", 2, {experts}, &tensor.activation_zero_point},
      {"activation_global_scale", "F32", 4, {experts}, &tensor.activation_global_scale}};
  std::erase_if(tensors, [](const NamedTensor& named) { return named.buffer->empty(); });
  // Every tensor starts at a multiple of its element's size.
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto& a, const auto& b) { return a.element_bytes > b.element_bytes; });
  return tensors;
}

std::vector<NamedTensor> Float32Tensors(const StandardTensor& tensor, const std::string& module) {
  const auto [experts, n, k] = tensor.shape;
  std::vector<int64_t> rows = {n};
  if (experts > 1) rows.insert(rows.begin(), experts);
  std::vector<int64_t> weight = rows;
  weight.push_back(k);
  std::vector<NamedTensor> tensors = {{absl::StrCat(module, ".weight"), "F32", 4, weight}};
  if (tensor.spec.bias.present()) {
    tensors.push_back({absl::StrCat(module, ".bias"), "F32", 4, rows});
  }
  if (tensor.has_input_scale) {
    std::vector<int64_t> columns = {k};
    if (experts > 1) columns.insert(columns.begin(), experts);
    tensors.push_back(
        {absl::StrCat(module, ".input_scale"), "F32", 4, columns, &tensor.input_scale});
  }
  return tensors;
}

// A tensor of the layer that this file does not know would be lost in silence.
absl::Status CheckComplete(const std::vector<NamedTensor>& tensors, const StandardTensor& tensor) {
  int64_t bytes = 0;
  for (const NamedTensor& named : tensors) bytes += named.bytes();
  if (bytes == tensor.total_bytes()) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, "INTERNAL",
               absl::StrCat("the layer has ", tensor.total_bytes(),
                            " bytes, its tensors in the file would have ", bytes));
}

// Names of the enumeration, in its order.
constexpr const char* kScaleRules[] = {"largest", "full_range", "ocp", "nearest_power"};

nlohmann::ordered_json Metadata(const ExportedLayer& exported, const std::string& format) {
  nlohmann::ordered_json metadata = {{"format", "pt"},  // readers of other projects look for it
                                     {"gemmd.format", format},
                                     {"gemmd.digest", exported.digest},
                                     {"gemmd.module", exported.module},
                                     {"gemmd.exporter", exported.layer.format},
                                     {"gemmd.layer", LayerJson(exported.layer.tensor).dump()}};
  if (exported.layer.quantized.has_value()) {
    metadata["gemmd.quantized"] = kScaleRules[static_cast<size_t>(exported.layer.quantized->rule)];
  }
  return metadata;
}

// Length and header of a safetensors file; the data begin at a multiple of 8.
std::string FileStart(const std::vector<NamedTensor>& tensors, nlohmann::ordered_json metadata) {
  nlohmann::ordered_json header = {{"__metadata__", std::move(metadata)}};
  int64_t end = 0;
  for (const NamedTensor& tensor : tensors) {
    const int64_t begin = std::exchange(end, end + tensor.bytes());
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  std::string start(sizeof(length), '\0');
  for (size_t i = 0; i < sizeof(length); ++i) start[i] = static_cast<char>(length >> (8 * i));
  return start + text;
}

uint64_t TotalBytes(const std::string& start, const std::vector<NamedTensor>& tensors) {
  uint64_t total = start.size();
  for (const NamedTensor& tensor : tensors) total += static_cast<uint64_t>(tensor.bytes());
  return total;
}

absl::Status WriteDequantized(const StandardTensor& tensor, Sink& sink) {
  const auto [experts, n, k] = tensor.shape;
  const int64_t rows = experts * n;
  const int64_t block = std::max<int64_t>(1, static_cast<int64_t>(kBlockBytes / sizeof(float)) / k);
  std::vector<float> values;
  for (int64_t first = 0; first < rows; first += block) {
    const int64_t count = std::min(block, rows - first);
    values.resize(static_cast<size_t>(count * k));
    for (int64_t row = 0; row < count; ++row) {
      DequantizeRowFloat32(tensor, (first + row) / n, (first + row) % n,
                           absl::MakeSpan(values).subspan(row * k, k));
    }
    GEMMD_RETURN_IF_ERROR(sink.Write(values.data(), values.size() * sizeof(float)));
  }
  return absl::OkStatus();
}

// Exact: float32 holds every number of the types a bias may have.
absl::Status WriteBias(const StandardTensor& tensor, Sink& sink) {
  if (!tensor.spec.bias.present()) return absl::OkStatus();
  std::vector<float> values;
  for (int64_t row = 0; row < tensor.shape.experts * tensor.shape.n; ++row) {
    values.push_back(static_cast<float>(Bias(tensor, row / tensor.shape.n, row % tensor.shape.n)));
  }
  return sink.Write(values.data(), values.size() * sizeof(float));
}

}  // namespace

absl::Status WriteStandard(const ExportedLayer& exported, const ProgressFunction& progress,
                           ExportFile& file) {
  const std::vector<NamedTensor> tensors = StandardTensors(exported.layer.tensor);
  GEMMD_RETURN_IF_ERROR(CheckComplete(tensors, exported.layer.tensor));
  const std::string start = FileStart(tensors, Metadata(exported, "StandardTensor"));
  Sink sink(file, progress, TotalBytes(start, tensors));
  GEMMD_RETURN_IF_ERROR(sink.Write(start.data(), start.size()));
  for (const NamedTensor& tensor : tensors) {
    GEMMD_RETURN_IF_ERROR(sink.WriteBlocks(*tensor.buffer));
  }
  return absl::OkStatus();
}

absl::Status WriteFloat32(const ExportedLayer& exported, const ProgressFunction& progress,
                          ExportFile& file) {
  const StandardTensor& tensor = exported.layer.tensor;
  const std::vector<NamedTensor> tensors = Float32Tensors(tensor, exported.module);
  const std::string start = FileStart(tensors, Metadata(exported, "float32"));
  Sink sink(file, progress, TotalBytes(start, tensors));
  GEMMD_RETURN_IF_ERROR(sink.Write(start.data(), start.size()));
  GEMMD_RETURN_IF_ERROR(WriteDequantized(tensor, sink));
  GEMMD_RETURN_IF_ERROR(WriteBias(tensor, sink));
  return sink.WriteBlocks(tensor.input_scale);
}

}  // namespace gemmd::gemmctl

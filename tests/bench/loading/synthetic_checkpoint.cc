#include "tests/bench/loading/synthetic_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status.h"
#include "nlohmann/json.hpp"

namespace gemmd::bench {
namespace {

enum class Content { kRandom, kScales, kZeroPoints, kShape, kGroupIndex };

struct Tensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  Content content;
  int64_t element_bytes;

  uint64_t bytes() const {
    int64_t product = element_bytes;
    for (const int64_t extent : shape) product *= extent;
    return static_cast<uint64_t>(product);
  }
};

std::vector<Tensor> TensorsOf(const SyntheticOptions& options, int64_t layer) {
  const std::string module = LayerName(layer);
  const auto [n, k, groups] = std::tuple(options.n, options.k, options.k / options.group);
  if (options.format == "gptq") {
    return {{module + ".qweight", "I32", {k / 8, n}, Content::kRandom, 4},
            {module + ".qzeros", "I32", {groups, n / 8}, Content::kZeroPoints, 4},
            {module + ".scales", "F16", {groups, n}, Content::kScales, 2},
            {module + ".g_idx", "I32", {k}, Content::kGroupIndex, 4}};
  }
  return {{module + ".weight_packed", "I32", {n, k / 8}, Content::kRandom, 4},
          {module + ".weight_scale", "BF16", {n, groups}, Content::kScales, 2},
          {module + ".weight_shape", "I64", {2}, Content::kShape, 8}};
}

nlohmann::json ConfigOf(const SyntheticOptions& options) {
  if (options.format == "gptq") {
    return {{"quantization_config",
             {{"quant_method", "gptq"},
              {"bits", 4},
              {"group_size", options.group},
              {"sym", true},
              {"desc_act", false},
              {"checkpoint_format", "gptq"}}}};
  }
  const nlohmann::json weights = {{"num_bits", 4},
                                  {"type", "int"},
                                  {"symmetric", true},
                                  {"strategy", "group"},
                                  {"group_size", options.group}};
  const nlohmann::json group = {{"targets", {"Linear"}}, {"weights", weights}};
  return {{"quantization_config",
           {{"quant_method", "compressed-tensors"},
            {"format", "pack-quantized"},
            {"quantization_status", "compressed"},
            {"ignore", nlohmann::json::array()},
            {"config_groups", {{"group_0", group}}}}}};
}

absl::Status CheckOptions(const SyntheticOptions& options) {
  const bool fits = options.n > 0 && options.k > 0 && options.n % 8 == 0 && options.group > 0 &&
                    options.group % 8 == 0 && options.k % options.group == 0;
  if (fits && options.shards > 0 && options.bytes > 0 &&
      (options.format == "gptq" || options.format == "pack-quantized")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "n must be a multiple of 8, group one too, k one of group; format gptq or pack-quantized");
}

// xorshift64*: fast, and any seed but 0 gives other bytes.
class RandomWords {
 public:
  explicit RandomWords(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t Next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du;
  }

 private:
  uint64_t state_;
};

// 2^-8 to 1.75 * 2^-7 as bits of the type: finite, not 0.
uint16_t ScaleBits(const std::string& dtype, uint64_t random) {
  return dtype == "F16" ? static_cast<uint16_t>(0x1c00 + random % 0x600)
                        : static_cast<uint16_t>(0x3b80 + random % 0xc0);
}

template <typename T>
void Store(std::string& bytes, size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

// The bytes of a small tensor, or the next part of a large random one.
std::string BytesOf(const Tensor& tensor, const SyntheticOptions& options, uint64_t bytes,
                    RandomWords& random) {
  std::string data(bytes, '\0');
  const size_t count = bytes / static_cast<uint64_t>(tensor.element_bytes);
  for (size_t i = 0; i < bytes / 8 && tensor.content == Content::kRandom; ++i) {
    Store(data, i, random.Next());
  }
  for (size_t i = 0; i < count && tensor.content == Content::kScales; ++i) {
    Store(data, i, ScaleBits(tensor.dtype, random.Next()));
  }
  for (size_t i = 0; i < count && tensor.content == Content::kZeroPoints; ++i) {
    Store(data, i, uint32_t{0x77777777});  // 8 in every field, stored minus one
  }
  for (size_t i = 0; i < count && tensor.content == Content::kGroupIndex; ++i) {
    Store(data, i, static_cast<int32_t>(static_cast<int64_t>(i) / options.group));
  }
  if (tensor.content == Content::kShape) {
    Store(data, 0, options.n);
    Store(data, 1, options.k);
  }
  return data;
}

std::string HeaderOf(const std::vector<Tensor>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  uint64_t end = 0;
  for (const Tensor& tensor : tensors) {
    const uint64_t begin = std::exchange(end, end + tensor.bytes());
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  std::string start(sizeof(length), '\0');
  std::memcpy(start.data(), &length, sizeof(length));
  return start + text;
}

absl::Status WriteShard(const std::filesystem::path& path, const std::vector<Tensor>& tensors,
                        const SyntheticOptions& options, uint64_t seed) {
  constexpr uint64_t kPart = 4 << 20;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << HeaderOf(tensors);
  RandomWords random(seed);
  for (const Tensor& tensor : tensors) {
    // What is not random fits one part, whatever its size.
    const uint64_t part = tensor.content == Content::kRandom ? kPart : tensor.bytes();
    for (uint64_t done = 0; done < tensor.bytes() && file; done += part) {
      const uint64_t bytes = std::min(part, tensor.bytes() - done);
      file << BytesOf(tensor, options, bytes, random);
    }
  }
  file.flush();
  if (file) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path.string(), ": cannot be written"));
}

absl::Status WriteJson(const std::filesystem::path& path, const nlohmann::json& value) {
  std::ofstream file(path, std::ios::trunc);
  file << value.dump(1) << std::flush;
  if (file) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path.string(), ": cannot be written"));
}

}  // namespace

std::string LayerName(int64_t layer) {
  return absl::StrCat("model.layers.", layer, ".mlp.down_proj");
}

absl::StatusOr<SyntheticCheckpoint> MakeCheckpoint(const std::filesystem::path& directory,
                                                   const SyntheticOptions& options) {
  GEMMD_RETURN_IF_ERROR(CheckOptions(options));
  uint64_t layer_bytes = 0;
  for (const Tensor& tensor : TensorsOf(options, 0)) layer_bytes += tensor.bytes();
  SyntheticCheckpoint made;
  made.layers = static_cast<int64_t>((options.bytes + layer_bytes - 1) / layer_bytes);
  made.tensor_bytes = static_cast<uint64_t>(made.layers) * layer_bytes;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  GEMMD_RETURN_IF_ERROR(WriteJson(directory / "config.json", ConfigOf(options)));
  nlohmann::json weight_map = nlohmann::json::object();
  for (int shard = 0; shard < options.shards; ++shard) {
    const std::string name =
        absl::StrFormat("model-%05d-of-%05d.safetensors", shard + 1, options.shards);
    std::vector<Tensor> tensors;
    for (int64_t layer = shard * made.layers / options.shards;
         layer < (shard + 1) * made.layers / options.shards; ++layer) {
      for (Tensor& tensor : TensorsOf(options, layer)) {
        weight_map[tensor.name] = name;
        tensors.push_back(std::move(tensor));
      }
    }
    if (tensors.empty()) continue;
    GEMMD_RETURN_IF_ERROR(
        WriteShard(directory / name, tensors, options, static_cast<uint64_t>(shard) + 1));
  }
  GEMMD_RETURN_IF_ERROR(
      WriteJson(directory / "model.safetensors.index.json", {{"weight_map", weight_map}}));
  return made;
}

}  // namespace gemmd::bench

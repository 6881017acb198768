// What    Checkpoints with the names and shapes of real models, in files that take no disk space: what is not
//         filled is a hole. Holes read as zeros, and a scale of 0 is refused, so whoever reads a module without
//         filled scales fails.
#ifndef GEMMD_TESTS_SERVER_SPARSE_MODEL_H_
#define GEMMD_TESTS_SERVER_SPARSE_MODEL_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gemmd {

class SparseModel {
 public:
  explicit SparseModel(nlohmann::ordered_json config) : config_(std::move(config)) {}

  // A tensor that is a hole, or `fill` repeated.
  void Add(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
           const std::string& fill = "") {
    static const std::map<std::string, uint64_t> kBytes = {{"F32", 4},     {"F16", 2}, {"BF16", 2},
                                                           {"F8_E4M3", 1}, {"U8", 1},  {"I32", 4}};
    uint64_t bytes = kBytes.at(dtype);
    for (const int64_t extent : shape) bytes *= static_cast<uint64_t>(extent);
    header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {size_, size_ + bytes}}};
    if (!fill.empty()) filled_.push_back({size_, bytes, fill});
    size_ += bytes;
  }

  // Bytes of all tensors.
  uint64_t size() const { return size_; }

  void Write(const std::filesystem::path& directory) const {
    std::filesystem::create_directories(directory);
    std::ofstream(directory / "config.json") << config_.dump();
    const std::string text = header_.dump();
    const uint64_t length = text.size();
    const std::filesystem::path path = directory / "model.safetensors";
    {
      std::ofstream file(path, std::ios::binary);
      file.write(reinterpret_cast<const char*>(&length), sizeof(length));
      file << text;
    }
    const uint64_t start = sizeof(length) + length;
    std::filesystem::resize_file(path, start + size_);
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    for (const Filled& filled : filled_) {
      file.seekp(static_cast<std::streamoff>(start + filled.offset));
      for (uint64_t at = 0; at < filled.bytes; at += filled.fill.size()) file << filled.fill;
    }
  }

 private:
  struct Filled {
    uint64_t offset;
    uint64_t bytes;
    std::string fill;
  };
  const nlohmann::ordered_json config_;
  nlohmann::json header_ = nlohmann::json::object();  // of many tensors: not ordered_json, which searches
  std::vector<Filled> filled_;
  uint64_t size_ = 0;
};

}  // namespace gemmd

#endif  // GEMMD_TESTS_SERVER_SPARSE_MODEL_H_

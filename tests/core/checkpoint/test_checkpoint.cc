#include "tests/core/checkpoint/test_checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace gemmd {
namespace {

constexpr char kModelOptFile[] = "hf_quant_config.json";

std::string ReadFile(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  EXPECT_TRUE(stream) << file;
  std::stringstream content;
  content << stream.rdbuf();
  return content.str();
}

}  // namespace

RawTensors LoadTensors(const std::filesystem::path& file) {
  const std::string content = ReadFile(file);
  uint64_t length;
  std::memcpy(&length, content.data(), sizeof(length));
  const auto header = nlohmann::json::parse(content.substr(8, length));
  RawTensors tensors;
  for (const auto& [name, entry] : header.items()) {
    const auto begin = entry["data_offsets"][0].get<uint64_t>();
    const auto end = entry["data_offsets"][1].get<uint64_t>();
    tensors[name] = {entry["dtype"], entry["shape"],
                     content.substr(8 + length + begin, end - begin)};
  }
  return tensors;
}

std::string SafetensorsBytes(uint64_t length, const std::string& header, const std::string& data) {
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + data;
}

std::string SafetensorsBytes(const std::string& header, const std::string& data) {
  return SafetensorsBytes(header.size(), header, data);
}

void WriteTensors(const std::filesystem::path& file, const RawTensors& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  WriteFile(file, SafetensorsBytes(header.dump(), data));
}

void WriteFile(const std::filesystem::path& file, const std::string& content) {
  std::ofstream stream(file, std::ios::binary);
  stream.write(content.data(), static_cast<std::streamsize>(content.size()));
  EXPECT_TRUE(stream) << file;
}

void MakeNewer(const std::filesystem::path& file) {
  static std::atomic<int> count{0};
  std::filesystem::last_write_time(
      file, std::filesystem::file_time_type::clock::now() + std::chrono::seconds(++count));
}

RawTensors PlainLinears(const std::vector<std::string>& modules, char value) {
  RawTensors tensors;
  for (const std::string& module : modules) {
    tensors[module + ".weight"] = {"BF16", {2, 4}, std::string(16, value)};
  }
  return tensors;
}

void WriteHugeCheckpoint(const std::filesystem::path& directory) {
  constexpr uint64_t kExtent = 1 << 20;
  const std::string header = R"({"a.weight": {"dtype": "BF16", "shape": [1048576, 1048576], "data_offsets": [0, 2199023255552]}})";
  WriteFile(directory / "config.json", "{}");
  WriteFile(directory / "model.safetensors", SafetensorsBytes(header, ""));
  const uint64_t start = std::filesystem::file_size(directory / "model.safetensors");
  std::filesystem::resize_file(directory / "model.safetensors", start + 2 * kExtent * kExtent);
}

MemoryLimit::MemoryLimit() {
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0;
  EXPECT_TRUE(statm >> pages);
  EXPECT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
  rlimit limit = before_;
  limit.rlim_cur = std::min<rlim_t>(before_.rlim_cur, pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{1} << 40));
  EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

MemoryLimit::~MemoryLimit() { EXPECT_EQ(setrlimit(RLIMIT_AS, &before_), 0); }

nlohmann::json LoadJson(const std::filesystem::path& file) {
  return nlohmann::json::parse(ReadFile(file));
}

std::filesystem::path CaseDirectory(const std::string& name) {
  return std::filesystem::path(GEMMD_TEST_DATA) / "checkpoints" / name;
}

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "gemmd_test_XXXXXX").string();
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  path_ = std::filesystem::canonical(name);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

EditableCheckpoint::EditableCheckpoint(const std::string& name)
    : config(nlohmann::ordered_json::parse(ReadFile(CaseDirectory(name) / "config.json"))),
      tensors(LoadTensors(CaseDirectory(name) / "model.safetensors")) {
  const std::filesystem::path file = CaseDirectory(name) / kModelOptFile;
  if (std::filesystem::exists(file)) {
    modelopt_config = nlohmann::ordered_json::parse(ReadFile(file));
  }
}

void EditableCheckpoint::Write(const std::filesystem::path& directory) const {
  WriteFile(directory / "config.json", config.dump());
  if (!modelopt_config.is_null()) WriteFile(directory / kModelOptFile, modelopt_config.dump());
  WriteTensors(directory / "model.safetensors", tensors);
}

}  // namespace gemmd

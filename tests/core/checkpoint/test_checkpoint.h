// What    Checkpoint directories for tests: copies of a golden case that a test can change.
#ifndef GEMMD_TESTS_CORE_CHECKPOINT_TEST_CHECKPOINT_H_
#define GEMMD_TESTS_CORE_CHECKPOINT_TEST_CHECKPOINT_H_

#include <sys/resource.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gemmd {

struct RawTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
using RawTensors = std::map<std::string, RawTensor>;

RawTensors LoadTensors(const std::filesystem::path& file);
void WriteTensors(const std::filesystem::path& file, const RawTensors& tensors);
// A file with this header text, a length of it that may be a lie, and `data`.
std::string SafetensorsBytes(const std::string& header, const std::string& data);
std::string SafetensorsBytes(uint64_t length, const std::string& header, const std::string& data);

void WriteFile(const std::filesystem::path& file, const std::string& content);
// Gives the file a time of its own, in the future: two versions of one size may have been written within
// one tick of the clock.
void MakeNewer(const std::filesystem::path& file);
// Plain linears [2, 4] of BF16, each element of `value` (a pattern of one byte).
RawTensors PlainLinears(const std::vector<std::string>& modules, char value);
// One unquantized module "a" whose weight takes 2 TB, in a sparse file.
void WriteHugeCheckpoint(const std::filesystem::path& directory);
// While it lives the process gets no more than 1 TB beyond what it has, also where the system promises any memory.
class MemoryLimit {
 public:
  MemoryLimit();
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};
nlohmann::json LoadJson(const std::filesystem::path& file);
std::filesystem::path CaseDirectory(const std::string& name);

// A directory of its own that is removed with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A golden case, changeable until Write().
struct EditableCheckpoint {
  explicit EditableCheckpoint(const std::string& name);
  // Writes its config files and model.safetensors into `directory`.
  void Write(const std::filesystem::path& directory) const;

  nlohmann::ordered_json config;
  nlohmann::ordered_json modelopt_config;  // hf_quant_config.json; null: the case has none
  RawTensors tensors;
};

}  // namespace gemmd

#endif  // GEMMD_TESTS_CORE_CHECKPOINT_TEST_CHECKPOINT_H_

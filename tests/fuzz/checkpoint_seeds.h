// What    Golden checkpoints as seeds, and small ones of formats that have none.
#ifndef GEMMD_TESTS_FUZZ_CHECKPOINT_SEEDS_H_
#define GEMMD_TESTS_FUZZ_CHECKPOINT_SEEDS_H_

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace gemmd {

inline std::string ReadWhole(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::stringstream content;
  content << stream.rdbuf();
  return content.str();
}

// Directories of tests/data/checkpoints and tests/data/fuzz, sorted, so that every machine starts from the
// same seeds.
inline std::vector<std::filesystem::path> SeedCheckpoints() {
  std::vector<std::filesystem::path> directories;
  std::error_code error;
  for (const char* folder : {GEMMD_TEST_DATA "/checkpoints", GEMMD_TEST_DATA "/fuzz"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (entry.is_directory()) directories.push_back(entry.path());
    }
  }
  std::sort(directories.begin(), directories.end());
  return directories;
}

}  // namespace gemmd

#endif  // GEMMD_TESTS_FUZZ_CHECKPOINT_SEEDS_H_

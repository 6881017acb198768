// What    The header of a safetensors file. Input: the file.
#include <cstdlib>

#include "core/checkpoint/safetensors.h"
#include "tests/fuzz/checkpoint_seeds.h"
#include "tests/fuzz/fuzz_target.h"

namespace gemmd {

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const auto& directory : SeedCheckpoints()) {
    seeds.push_back(ReadWhole(directory / "model.safetensors"));
  }
  return seeds;
}

}  // namespace gemmd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view file(reinterpret_cast<const char*>(data), size);
  const auto tensors = gemmd::ParseSafetensorsHeader(file, size);
  if (!tensors.ok()) return 0;
  for (const auto& [name, tensor] : *tensors) {
    if (tensor.offset > size || tensor.bytes > size - tensor.offset) std::abort();
  }
  return 0;
}

// What    Entries of a cache's directory whose "cubins" are a header and so many zeros: for tests of what carries them.
#ifndef GEMMD_TESTS_KERNELS_PUT_ENTRY_H_
#define GEMMD_TESTS_KERNELS_PUT_ENTRY_H_

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "kernels/jit/cache_entry.h"
#include "tests/kernels/jit/cubin_header.h"

namespace gemmd::jit {

// The key is 64 times `digit`. Returns the entry's bytes.
inline std::string PutEntry(const std::filesystem::path& directory, char digit, size_t cubin_bytes,
                            const std::string& architecture = "sm_90a") {
  const std::string cubin = FakeCubin(ArchitectureNumber(architecture), std::string(cubin_bytes, '\0'));
  CompiledKernel kernel;
  kernel.key = std::string(64, digit);
  kernel.cubin.resize(cubin.size());
  std::memcpy(kernel.cubin.data(), cubin.data(), cubin.size());
  kernel.lowered_name = "name";
  kernel.architecture = architecture;
  kernel.compiler = "13.0 0123456789";
  std::filesystem::create_directories(directory);
  std::ofstream(directory / (kernel.key + ".kernel"), std::ios::binary) << EncodeEntry(kernel);
  return EncodeEntry(kernel);
}

}  // namespace gemmd::jit

#endif  // GEMMD_TESTS_KERNELS_PUT_ENTRY_H_

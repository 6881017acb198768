// What    The ELF header that a cubin begins with, alone and with anything behind it.
#ifndef GEMMD_TESTS_KERNELS_JIT_CUBIN_HEADER_H_
#define GEMMD_TESTS_KERNELS_JIT_CUBIN_HEADER_H_

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace gemmd::jit {

inline std::string CubinHeader(unsigned char abi_version, uint32_t flags) {
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_ABIVERSION] = abi_version;
  header.e_machine = EM_CUDA;
  header.e_flags = flags;
  return {reinterpret_cast<const char*>(&header), sizeof(header)};
}

// What passes for a cubin for the architecture of this number, as NVRTC 13.0 writes them.
inline std::string FakeCubin(int number, const std::string& rest) {
  return CubinHeader(8, static_cast<uint32_t>(number) << 8) + rest;
}

}  // namespace gemmd::jit

#endif  // GEMMD_TESTS_KERNELS_JIT_CUBIN_HEADER_H_

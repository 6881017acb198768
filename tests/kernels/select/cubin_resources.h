// What    Registers and local memory of a cubin (the largest of its kernels) and its code, without a toolkit.
// Source  Cubins are ELF files. Their section .nv.info is a list of records {format, attribute, size};
//         records of format 4 carry (symbol, value) pairs. The attribute numbers are those that
//         `cuobjdump -elf` prints as REGCOUNT and FRAME_SIZE. Code is in sections .text.<kernel>.
#ifndef GEMMD_TESTS_KERNELS_SELECT_CUBIN_RESOURCES_H_
#define GEMMD_TESTS_KERNELS_SELECT_CUBIN_RESOURCES_H_

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace gemmd::testing {

struct CubinResources {
  int registers = -1;    // per thread; -1 when the record was not found
  int frame_bytes = -1;  // stack per thread, spilled registers included
  int code_bytes = 0;    // of all kernels
};

inline CubinResources ReadInfo(const std::byte* info, size_t size) {
  constexpr uint8_t kSizedFormat = 4;
  constexpr uint8_t kFrameSize = 0x11;
  constexpr uint8_t kRegisterCount = 0x2f;
  CubinResources resources;
  for (size_t at = 0; at + 4 <= size;) {
    const auto format = static_cast<uint8_t>(info[at]);
    const auto attribute = static_cast<uint8_t>(info[at + 1]);
    uint16_t bytes = 0;
    std::memcpy(&bytes, info + at + 2, sizeof(bytes));
    uint32_t value = 0;
    if (format == kSizedFormat && bytes >= 8 && at + 12 <= size) {
      std::memcpy(&value, info + at + 8, sizeof(value));
      const auto amount = static_cast<int>(value);
      if (attribute == kRegisterCount) resources.registers = std::max(resources.registers, amount);
      if (attribute == kFrameSize) resources.frame_bytes = std::max(resources.frame_bytes, amount);
    }
    at += 4 + (format == kSizedFormat ? bytes : 0);
  }
  return resources;
}

inline CubinResources ResourcesOf(const std::vector<std::byte>& cubin) {
  const auto read = [&](auto& record, uint64_t offset) {
    std::memcpy(&record, cubin.data() + offset, sizeof(record));
  };
  Elf64_Ehdr header;
  read(header, 0);
  const auto section = [&](uint64_t index) {
    Elf64_Shdr record;
    read(record, header.e_shoff + index * sizeof(record));
    return record;
  };
  const Elf64_Shdr names = section(header.e_shstrndx);
  CubinResources resources;
  int code_bytes = 0;
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr record = section(i);
    const std::string name(
        reinterpret_cast<const char*>(cubin.data() + names.sh_offset + record.sh_name));
    if (name.rfind(".text.", 0) == 0) code_bytes += static_cast<int>(record.sh_size);
    if (name == ".nv.info") resources = ReadInfo(cubin.data() + record.sh_offset, record.sh_size);
  }
  resources.code_bytes = code_bytes;
  return resources;
}

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_KERNELS_SELECT_CUBIN_RESOURCES_H_

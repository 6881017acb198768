#include "kernels/jit/cubin.h"

#include <elf.h>

#include <cstring>

namespace gemmd::jit {
namespace {

constexpr int kAbiWithLowNumber = 7;
constexpr int kAbiWithHighNumber = 8;

std::optional<Elf64_Ehdr> HeaderOf(absl::string_view cubin) {
  Elf64_Ehdr header;
  if (cubin.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, cubin.data(), sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_CUDA) return std::nullopt;
  return header;
}

}  // namespace

bool IsCubin(absl::string_view bytes) { return HeaderOf(bytes).has_value(); }

std::optional<int> CubinArchitecture(absl::string_view cubin) {
  const std::optional<Elf64_Ehdr> header = HeaderOf(cubin);
  if (!header.has_value()) return std::nullopt;
  switch (header->e_ident[EI_ABIVERSION]) {
    case kAbiWithLowNumber:
      return static_cast<int>(header->e_flags & 0xff);
    case kAbiWithHighNumber:
      return static_cast<int>(header->e_flags >> 8 & 0xff);
    default:
      return std::nullopt;
  }
}

}  // namespace gemmd::jit

#include "kernels/jit/library_digest.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "absl/strings/escaping.h"
#include "kernels/jit/sha256.h"

namespace gemmd::jit {
namespace {

struct Search {
  ElfW(Addr) address = 0;
  std::string build_id;
};

bool Covers(const dl_phdr_info& info, ElfW(Addr) address) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info.dlpi_phdr[i];
    const ElfW(Addr) start = info.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && address >= start && address - start < segment.p_memsz) {
      return true;
    }
  }
  return false;
}

// The build id among the notes in [data, data + size), or empty.
std::string BuildIdIn(const char* data, size_t size) {
  const auto padded = [](size_t bytes) { return (bytes + 3) / 4 * 4; };
  size_t at = 0;
  while (size - at >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, data + at, sizeof(note));
    const size_t name = at + sizeof(note);
    const size_t content = name + padded(note.n_namesz);
    const size_t next = content + padded(note.n_descsz);
    if (next > size || next <= at) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(data + name, "GNU", 4) == 0) {
      return absl::BytesToHexString(absl::string_view(data + content, note.n_descsz));
    }
    at = next;
  }
  return "";
}

int Visit(dl_phdr_info* info, size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  if (!Covers(*info, search.address)) return 0;
  for (int i = 0; i < info->dlpi_phnum && search.build_id.empty(); ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    search.build_id = BuildIdIn(reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr),
                                segment.p_memsz);
  }
  return 1;
}

std::string FileDigest(const void* function) {
  Dl_info info{};
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return "";
  std::ifstream file(info.dli_fname, std::ios::binary);
  if (!file) return "";
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return ToHex(Sha256().Add(bytes).Finish());
}

}  // namespace

std::string LibraryDigest(const void* function) {
  Search search;
  search.address = reinterpret_cast<ElfW(Addr)>(function);
  dl_iterate_phdr(&Visit, &search);
  return search.build_id.empty() ? FileDigest(function) : search.build_id;
}

}  // namespace gemmd::jit

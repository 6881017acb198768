// What    The bytes of one kernel on disk. Pure functions; the parser is safe on any input.
// Layout  Little-endian, no padding:
//           magic "GEMMDKRN"                 8 bytes
//           schema                           u32
//           size of the lowered name         u32
//           size of the cubin                u64
//           key                              32 bytes (the 64 digits of KernelKey, packed)
//           SHA-256 over everything else     32 bytes
//           lowered name, cubin
// Errors  DataLoss CACHE_ENTRY_DAMAGED: short, long, changed, of another schema or of another key.
#ifndef GEMMD_KERNELS_JIT_CACHE_ENTRY_H_
#define GEMMD_KERNELS_JIT_CACHE_ENTRY_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/jit/compiler.h"

namespace gemmd::jit {

std::string EncodeEntry(const CompiledKernel& kernel);

// `key`: what the entry must hold.
absl::StatusOr<CompiledKernel> DecodeEntry(absl::string_view bytes, absl::string_view key);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_CACHE_ENTRY_H_

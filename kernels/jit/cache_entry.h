// What    The bytes of one kernel on disk. Pure functions; the parser is safe on any input.
// Layout  Little-endian, no padding:
//           magic "GEMMDKRN"                 8 bytes
//           schema                           u32
//           size of the facts                u32
//           size of the cubin                u64
//           key                              32 bytes (the 64 digits of KernelKey, packed)
//           SHA-256                          32 bytes, over two pieces, each preceded by its length
//                                            as a u64: the 56 bytes before it; facts and cubin together
//           facts: lowered name, architecture, compiler, label, usage; each a u32 size and text
//           cubin
// Errors  DataLoss CACHE_ENTRY_STALE: written under another schema. DataLoss CACHE_ENTRY_DAMAGED:
//         short, long, changed, of another key, or with what is no cubin. DataLoss CACHE_ENTRY_FOREIGN: whole, but for
//         another architecture or from another compiler than asked for, or with a cubin for another
//         architecture than its facts say (cubin.h).
#ifndef GEMMD_KERNELS_JIT_CACHE_ENTRY_H_
#define GEMMD_KERNELS_JIT_CACHE_ENTRY_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/jit/compiler.h"

namespace gemmd::jit {

uint64_t EntryBytes(const CompiledKernel& kernel);  // of EncodeEntry's answer
std::string EncodeEntry(const CompiledKernel& kernel);

// `key`: what the entry must hold.
absl::StatusOr<CompiledKernel> DecodeEntry(absl::string_view bytes, absl::string_view key);

// What an entry of `size` bytes says of its kernel, from its first bytes: no cubin, and the digest
// is not checked. Facts take a few hundred bytes; an entry with more than kFrontBytes is refused.
inline constexpr size_t kFrontBytes = 64 << 10;
absl::StatusOr<CompiledKernel> DecodeFacts(absl::string_view front, uint64_t size,
                                           absl::string_view key);

// The key that an entry says it holds; empty when it has no readable header.
std::string KeyInEntry(absl::string_view bytes);

// "damaged", "stale" or "foreign": what a DataLoss of these functions is counted and told as.
std::string ProblemOf(const absl::Status& status);

// Whether a whole entry is what `architecture` and `compiler` ask for.
absl::Status CheckOrigin(const CompiledKernel& kernel, absl::string_view architecture,
                         absl::string_view compiler);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_CACHE_ENTRY_H_

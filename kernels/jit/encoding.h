// What    Integers and digests of this folder's byte layouts: entries, bundles, messages.
// Layout  Integers are little-endian, without padding.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_JIT_ENCODING_H_
#define GEMMD_KERNELS_JIT_ENCODING_H_

#include <cstddef>
#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"

namespace gemmd::jit {

inline constexpr size_t kDigestBytes = 32;

template <typename Integer>
void AppendInteger(std::string& bytes, Integer value) {
  for (size_t i = 0; i < sizeof(value); ++i) bytes += static_cast<char>(value >> 8 * i);
}

// `bytes` has sizeof(Integer) bytes from `offset` on.
template <typename Integer>
Integer ReadInteger(absl::string_view bytes, size_t offset = 0) {
  Integer value = 0;
  for (size_t i = 0; i < sizeof(value); ++i) {
    value |= static_cast<Integer>(static_cast<unsigned char>(bytes[offset + i])) << 8 * i;
  }
  return value;
}

// SHA-256 over `parts`, each preceded by its length (sha256.h), as kDigestBytes bytes.
std::string DigestBytes(std::initializer_list<absl::string_view> parts);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_ENCODING_H_

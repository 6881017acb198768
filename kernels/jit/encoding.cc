#include "kernels/jit/encoding.h"

#include "kernels/jit/sha256.h"

namespace gemmd::jit {

std::string DigestBytes(std::initializer_list<absl::string_view> parts) {
  Sha256 hash;
  for (const absl::string_view part : parts) hash.Add(part);
  const Sha256Digest digest = hash.Finish();
  return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

}  // namespace gemmd::jit

// What    SHA-256 over length-prefixed fields: no two different field lists feed the same bytes.
// Threads One object, one thread.
#ifndef GEMMD_KERNELS_JIT_SHA256_H_
#define GEMMD_KERNELS_JIT_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace gemmd::jit {

using Sha256Digest = std::array<unsigned char, 32>;

class Sha256 {
 public:
  Sha256();
  Sha256& Add(absl::string_view field);
  Sha256Digest Finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

std::string ToHex(const Sha256Digest& digest);

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_SHA256_H_

#include "kernels/jit/sha256.h"

#include <openssl/evp.h>

#include <cstdio>
#include <cstdlib>

namespace gemmd::jit {
namespace {

void Check(int ok) {
  if (ok == 1) return;
  std::fprintf(stderr, "gemmd: OpenSSL offers no SHA-256\n");
  std::abort();
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  Check(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
}

Sha256& Sha256::Add(absl::string_view field) {
  unsigned char length[8];
  for (int i = 0; i < 8; ++i)
    length[i] = static_cast<unsigned char>(uint64_t{field.size()} >> 8 * i);
  Check(EVP_DigestUpdate(context_.get(), length, sizeof(length)));
  Check(EVP_DigestUpdate(context_.get(), field.data(), field.size()));
  return *this;
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  Check(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr));
  return digest;
}

std::string ToHex(const Sha256Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace gemmd::jit

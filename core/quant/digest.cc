#include "core/quant/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/quant/not_finite.h"

namespace gemmd {
namespace {

// Feeds the canonical byte stream of README.md to SHA-256.
class DigestStream {
 public:
  DigestStream() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    Require(context_ != nullptr);
    Require(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }

  void Bytes(const void* data, size_t size) {
    Require(EVP_DigestUpdate(context_.get(), data, size) == 1);
  }
  void Number(int64_t value) {
    std::array<unsigned char, 8> bytes;
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<unsigned char>(static_cast<uint64_t>(value) >> (8 * i));
    }
    Bytes(bytes.data(), bytes.size());
  }
  void Format(const NumberFormat& format) {
    Number(static_cast<int64_t>(format.kind));
    Number(format.bits);
    Number(format.exponent_bits);
    Number(format.mantissa_bits);
    Number(static_cast<int64_t>(format.special));
  }
  void Tensor(const Buffer& buffer) {
    Number(static_cast<int64_t>(buffer.size()));
    Bytes(buffer.data(), buffer.size());
  }
  // As Tensor, and counts codes of `format` that are not finite. Behind the hash, which waits for memory less than
  // counting would, they are in the processor's cache.
  int64_t Codes(const Buffer& codes, const NumberFormat& format) {
    constexpr size_t kPiece = 64 << 10;
    Number(static_cast<int64_t>(codes.size()));
    int64_t not_finite = 0;
    for (size_t done = 0; done < codes.size(); done += kPiece) {
      const size_t size = std::min(kPiece, codes.size() - done);
      Bytes(codes.data() + done, size);
      not_finite += CountNotFiniteCodes(format, codes.data() + done, size);
    }
    return not_finite;
  }

  std::string Finish() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> hash;
    unsigned size = 0;
    Require(EVP_DigestFinal_ex(context_.get(), hash.data(), &size) == 1);
    constexpr char kDigits[] = "0123456789abcdef";
    std::string hex;
    for (unsigned i = 0; i < size; ++i) {
      hex.push_back(kDigits[hash[i] >> 4]);
      hex.push_back(kDigits[hash[i] & 15]);
    }
    return hex;
  }

 private:
  // SHA-256 fails only without memory.
  static void Require(bool condition) {
    if (condition) return;
    std::fputs("SHA-256 is not available: out of memory, or OpenSSL without it\n", stderr);
    std::abort();
  }

  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

void DigestSpec(const QuantSpec& spec, DigestStream& stream) {
  stream.Format(spec.weight);
  stream.Format(spec.scale);
  stream.Number(spec.scale_block_n);
  stream.Number(spec.scale_block_k);
  stream.Number(static_cast<int64_t>(spec.zero_point));
  stream.Number(static_cast<int64_t>(spec.secondary_scale));
  stream.Number(spec.has_group_index);
  stream.Format(spec.bias);
  stream.Format(spec.activation);
  stream.Number(static_cast<int64_t>(spec.activation_scale));
  stream.Number(spec.activation_group);
}

void DigestEncoding(const ActivationEncoding& encoding, DigestStream& stream) {
  stream.Format(encoding.format);
  stream.Number(static_cast<int64_t>(encoding.scale));
  stream.Number(encoding.group);
  stream.Number(encoding.zero_points);
  stream.Format(encoding.group_scale);
}

// `codes` feeds the codes.
template <typename FeedCodes>
std::string DigestOf(const StandardTensor& tensor, FeedCodes codes) {
  // The second stream adds what the first has no place for; other layers keep their digest.
  const bool first = !tensor.has_input_scale && !tensor.encoding.present();
  const char* magic = first ? "gemmd.StandardTensor.1" : "gemmd.StandardTensor.2";
  DigestStream stream;
  stream.Bytes(magic, std::strlen(magic) + 1);
  DigestSpec(tensor.spec, stream);
  stream.Number(tensor.shape.experts);
  stream.Number(tensor.shape.n);
  stream.Number(tensor.shape.k);
  stream.Number(tensor.scale_columns);
  stream.Number(tensor.gate_up_interleaved);
  codes(stream);
  for (const Buffer* buffer : {&tensor.scales, &tensor.zero_points, &tensor.secondary_scales,
                               &tensor.group_index, &tensor.bias, &tensor.activation_scale}) {
    stream.Tensor(*buffer);
  }
  if (first) return stream.Finish();
  DigestEncoding(tensor.encoding, stream);
  for (const Buffer* buffer :
       {&tensor.input_scale, &tensor.activation_zero_point, &tensor.activation_global_scale}) {
    stream.Tensor(*buffer);
  }
  return stream.Finish();
}

}  // namespace

std::string Digest(const StandardTensor& tensor) {
  return DigestOf(tensor, [&](DigestStream& stream) { stream.Tensor(tensor.codes); });
}

LayerContent ContentOf(const StandardTensor& tensor) {
  LayerContent content;
  const bool whole_bytes = tensor.spec.weight.bits % 8 == 0;
  if (!whole_bytes) content.not_finite_weights = CountNotFinite(tensor);
  content.digest = DigestOf(tensor, [&](DigestStream& stream) {
    if (whole_bytes) {
      content.not_finite_weights = stream.Codes(tensor.codes, tensor.spec.weight);
    } else {
      stream.Tensor(tensor.codes);
    }
  });
  return content;
}

}  // namespace gemmd

#include "kernels/jit/cache_entry.h"

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/jit/sha256.h"

namespace gemmd::jit {
namespace {

constexpr char kMagic[] = "GEMMDKRN";
constexpr uint32_t kSchema = 1;
constexpr size_t kKeyBytes = 32;
constexpr size_t kDigestBytes = 32;
constexpr size_t kSizesOffset = 8;
constexpr size_t kKeyOffset = kSizesOffset + 4 + 4 + 8;
constexpr size_t kDigestOffset = kKeyOffset + kKeyBytes;
constexpr size_t kHeaderBytes = kDigestOffset + kDigestBytes;

template <typename Integer>
void Append(std::string& bytes, Integer value) {
  for (size_t i = 0; i < sizeof(value); ++i) bytes += static_cast<char>(value >> 8 * i);
}

template <typename Integer>
Integer Read(absl::string_view bytes, size_t offset) {
  Integer value = 0;
  for (size_t i = 0; i < sizeof(value); ++i) {
    value |= static_cast<Integer>(static_cast<unsigned char>(bytes[offset + i])) << 8 * i;
  }
  return value;
}

std::string Digest(absl::string_view before, absl::string_view payload) {
  const Sha256Digest digest = Sha256().Add(before).Add(payload).Finish();
  return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

absl::Status Damaged(absl::string_view what) {
  return Error(absl::StatusCode::kDataLoss, "CACHE_ENTRY_DAMAGED", what);
}

// Sizes of a header that is long enough.
absl::Status CheckSizes(absl::string_view bytes) {
  const uint64_t name_size = Read<uint32_t>(bytes, kSizesOffset + 4);
  const uint64_t cubin_size = Read<uint64_t>(bytes, kSizesOffset + 8);
  const uint64_t payload = bytes.size() - kHeaderBytes;
  if (name_size > payload || cubin_size != payload - name_size) {
    return Damaged(absl::StrCat("name of ", name_size, " bytes and cubin of ", cubin_size,
                                " bytes do not fill ", payload, " bytes"));
  }
  if (name_size == 0 || cubin_size == 0) return Damaged("empty name or cubin");
  return absl::OkStatus();
}

absl::Status CheckHeader(absl::string_view bytes, absl::string_view key) {
  if (bytes.size() < kHeaderBytes) return Damaged("shorter than its header");
  if (bytes.substr(0, kSizesOffset) != kMagic) return Damaged("no kernel entry");
  const uint32_t schema = Read<uint32_t>(bytes, kSizesOffset);
  if (schema != kSchema) return Damaged(absl::StrCat("schema ", schema, ", not ", kSchema));
  GEMMD_RETURN_IF_ERROR(CheckSizes(bytes));
  if (absl::BytesToHexString(bytes.substr(kKeyOffset, kKeyBytes)) != key) {
    return Damaged("holds the kernel of another key");
  }
  return absl::OkStatus();
}

}  // namespace

std::string EncodeEntry(const CompiledKernel& kernel) {
  std::string bytes = kMagic;
  Append(bytes, kSchema);
  Append(bytes, static_cast<uint32_t>(kernel.lowered_name.size()));
  Append(bytes, static_cast<uint64_t>(kernel.cubin.size()));
  bytes += absl::HexStringToBytes(kernel.key);
  std::string payload = kernel.lowered_name;
  payload.append(reinterpret_cast<const char*>(kernel.cubin.data()), kernel.cubin.size());
  bytes += Digest(bytes, payload);
  return bytes + payload;
}

absl::StatusOr<CompiledKernel> DecodeEntry(absl::string_view bytes, absl::string_view key) {
  GEMMD_RETURN_IF_ERROR(CheckHeader(bytes, key));
  const absl::string_view payload = bytes.substr(kHeaderBytes);
  if (Digest(bytes.substr(0, kDigestOffset), payload) !=
      bytes.substr(kDigestOffset, kDigestBytes)) {
    return Damaged("its digest does not match its bytes");
  }
  const size_t name_size = Read<uint32_t>(bytes, kSizesOffset + 4);
  const absl::string_view cubin = payload.substr(name_size);
  CompiledKernel kernel;
  kernel.key = std::string(key);
  kernel.lowered_name = std::string(payload.substr(0, name_size));
  kernel.cubin.resize(cubin.size());
  std::memcpy(kernel.cubin.data(), cubin.data(), cubin.size());
  return kernel;
}

}  // namespace gemmd::jit

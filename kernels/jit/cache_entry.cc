#include "kernels/jit/cache_entry.h"

#include <array>
#include <cstring>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/jit/cubin.h"
#include "kernels/jit/encoding.h"

namespace gemmd::jit {
namespace {

constexpr char kMagic[] = "GEMMDKRN";
constexpr uint32_t kSchema = 2;
constexpr size_t kKeyBytes = 32;
constexpr size_t kSizesOffset = 8;
constexpr size_t kKeyOffset = kSizesOffset + 4 + 4 + 8;
constexpr size_t kDigestOffset = kKeyOffset + kKeyBytes;
constexpr size_t kHeaderBytes = kDigestOffset + kDigestBytes;

absl::Status Foreign(absl::string_view what, absl::string_view got, absl::string_view wanted) {
  return Error(absl::StatusCode::kDataLoss, "CACHE_ENTRY_FOREIGN",
               absl::StrCat(what, " '", got, "', not '", wanted, "'"));
}

absl::Status Damaged(absl::string_view what) {
  return Error(absl::StatusCode::kDataLoss, "CACHE_ENTRY_DAMAGED", what);
}

// Sizes of a header that is long enough, in an entry of `size` bytes.
absl::Status CheckSizes(absl::string_view header, uint64_t size) {
  const uint64_t facts_size = ReadInteger<uint32_t>(header, kSizesOffset + 4);
  const uint64_t cubin_size = ReadInteger<uint64_t>(header, kSizesOffset + 8);
  const uint64_t payload = size - kHeaderBytes;
  if (facts_size > payload || cubin_size != payload - facts_size) {
    return Damaged(absl::StrCat("facts of ", facts_size, " bytes and cubin of ", cubin_size,
                                " bytes do not fill ", payload, " bytes"));
  }
  if (cubin_size == 0) return Damaged("empty cubin");
  return absl::OkStatus();
}

// `front`: the first bytes of an entry of `size` bytes.
absl::Status CheckHeader(absl::string_view front, uint64_t size, absl::string_view key) {
  if (front.size() < kHeaderBytes || size < front.size()) return Damaged("shorter than its header");
  if (front.substr(0, kSizesOffset) != kMagic) return Damaged("no kernel entry");
  const uint32_t schema = ReadInteger<uint32_t>(front, kSizesOffset);
  if (schema != kSchema) {
    return Error(absl::StatusCode::kDataLoss, "CACHE_ENTRY_STALE",
                 absl::StrCat("schema ", schema, ", not ", kSchema));
  }
  GEMMD_RETURN_IF_ERROR(CheckSizes(front, size));
  if (absl::BytesToHexString(front.substr(kKeyOffset, kKeyBytes)) != key) {
    return Damaged("holds the kernel of another key");
  }
  return absl::OkStatus();
}

// The kernel's texts that an entry keeps, in their order.
template <typename Kernel>
auto FactsOf(Kernel& kernel) {
  return std::array{&kernel.lowered_name, &kernel.architecture, &kernel.compiler, &kernel.label,
                    &kernel.usage};
}

// Takes one text from the front of `facts`.
std::optional<std::string> TakeText(absl::string_view& facts) {
  if (facts.size() < 4) return std::nullopt;
  const size_t size = ReadInteger<uint32_t>(facts, 0);
  if (size > facts.size() - 4) return std::nullopt;
  const std::string text(facts.substr(4, size));
  facts.remove_prefix(4 + size);
  return text;
}

absl::Status ReadFacts(absl::string_view facts, CompiledKernel& kernel) {
  for (std::string* fact : FactsOf(kernel)) {
    std::optional<std::string> text = TakeText(facts);
    if (!text.has_value()) return Damaged("facts end early");
    *fact = *std::move(text);
  }
  if (!facts.empty()) return Damaged("facts go on");
  if (kernel.lowered_name.empty()) return Damaged("empty name");
  return absl::OkStatus();
}

// The digest finds damage, not who swapped cubins: the driver would refuse this one on the architecture of the facts.
// A suffix (sm_90a) is not compared.
absl::Status CheckCubin(absl::string_view cubin, absl::string_view architecture) {
  if (!IsCubin(cubin)) return Damaged("what it holds is no cubin");
  const std::optional<int> number = CubinArchitecture(cubin);
  if (!number.has_value() || ArchitectureNumber(architecture) == *number) return absl::OkStatus();
  return Foreign("cubin for", absl::StrCat("sm_", *number), architecture);
}

}  // namespace

uint64_t EntryBytes(const CompiledKernel& kernel) {
  uint64_t bytes = kHeaderBytes + kernel.cubin.size();
  for (const std::string* fact : FactsOf(kernel)) bytes += sizeof(uint32_t) + fact->size();
  return bytes;
}

std::string EncodeEntry(const CompiledKernel& kernel) {
  std::string payload;
  for (const std::string* fact : FactsOf(kernel)) {
    AppendInteger(payload, static_cast<uint32_t>(fact->size()));
    payload += *fact;
  }
  std::string bytes = kMagic;
  AppendInteger(bytes, kSchema);
  AppendInteger(bytes, static_cast<uint32_t>(payload.size()));
  AppendInteger(bytes, static_cast<uint64_t>(kernel.cubin.size()));
  bytes += absl::HexStringToBytes(kernel.key);
  payload.append(reinterpret_cast<const char*>(kernel.cubin.data()), kernel.cubin.size());
  bytes += DigestBytes({bytes, payload});
  return bytes + payload;
}

absl::StatusOr<CompiledKernel> DecodeFacts(absl::string_view front, uint64_t size,
                                           absl::string_view key) {
  GEMMD_RETURN_IF_ERROR(CheckHeader(front, size, key));
  const size_t facts_size = ReadInteger<uint32_t>(front, kSizesOffset + 4);
  if (facts_size > front.size() - kHeaderBytes)
    return Damaged("facts beyond the front of the entry");
  CompiledKernel kernel;
  kernel.key = std::string(key);
  GEMMD_RETURN_IF_ERROR(ReadFacts(front.substr(kHeaderBytes, facts_size), kernel));
  return kernel;
}

absl::StatusOr<CompiledKernel> DecodeEntry(absl::string_view bytes, absl::string_view key) {
  GEMMD_ASSIGN_OR_RETURN(CompiledKernel kernel, DecodeFacts(bytes, bytes.size(), key));
  const absl::string_view payload = bytes.substr(kHeaderBytes);
  if (DigestBytes({bytes.substr(0, kDigestOffset), payload}) !=
      bytes.substr(kDigestOffset, kDigestBytes)) {
    return Damaged("its digest does not match its bytes");
  }
  const absl::string_view cubin = payload.substr(ReadInteger<uint32_t>(bytes, kSizesOffset + 4));
  GEMMD_RETURN_IF_ERROR(CheckCubin(cubin, kernel.architecture));
  kernel.cubin.resize(cubin.size());
  std::memcpy(kernel.cubin.data(), cubin.data(), cubin.size());
  return kernel;
}

std::string ProblemOf(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  if (reason == "CACHE_ENTRY_STALE") return "stale";
  return reason == "CACHE_ENTRY_FOREIGN" ? "foreign" : "damaged";
}

std::string KeyInEntry(absl::string_view bytes) {
  if (bytes.size() < kHeaderBytes || bytes.substr(0, kSizesOffset) != kMagic) return "";
  return absl::BytesToHexString(bytes.substr(kKeyOffset, kKeyBytes));
}

absl::Status CheckOrigin(const CompiledKernel& kernel, absl::string_view architecture,
                         absl::string_view compiler) {
  if (kernel.architecture != architecture) {
    return Foreign("architecture", kernel.architecture, architecture);
  }
  if (kernel.compiler != compiler) return Foreign("compiler", kernel.compiler, compiler);
  return absl::OkStatus();
}

}  // namespace gemmd::jit

#include "kernels/jit/bundle.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/jit/cache_entry.h"
#include "kernels/jit/encoding.h"
#include "kernels/jit/kernel_key.h"

namespace gemmd::jit {
namespace {

constexpr char kBundleMagic[] = "GEMMDBND";
constexpr uint32_t kBundleSchema = 1;
constexpr size_t kCountAt = 12;
constexpr size_t kBundleHeaderBytes = 16;
constexpr char kNoBundle[] = "no bundle of kernels";

absl::Status DamagedBundle(absl::string_view what) {
  return Error(absl::StatusCode::kDataLoss, "BUNDLE_DAMAGED", absl::StrCat("bundle: ", what));
}

absl::Status CheckFrame(absl::string_view bundle) {
  if (bundle.size() < kBundleHeaderBytes + kDigestBytes) return DamagedBundle(kNoBundle);
  GEMMD_RETURN_IF_ERROR(CheckBundleStart(bundle));
  const size_t end = bundle.size() - kDigestBytes;
  if (DigestBytes({bundle.substr(0, end)}) != bundle.substr(end)) {
    return DamagedBundle("its digest does not match its bytes");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBundleStart(absl::string_view start) {
  const absl::string_view magic = kBundleMagic;
  const size_t known = std::min(start.size(), magic.size());
  if (start.substr(0, known) != magic.substr(0, known)) return DamagedBundle(kNoBundle);
  if (start.size() < magic.size() + sizeof(uint32_t)) return absl::OkStatus();
  const uint32_t schema = ReadInteger<uint32_t>(start, magic.size());
  if (schema != kBundleSchema)
    return DamagedBundle(absl::StrCat("schema ", schema, ", not ", kBundleSchema));
  return absl::OkStatus();
}

uint64_t BundleBytes(uint64_t entries, uint64_t entry_bytes) {
  return kBundleHeaderBytes + entries * sizeof(uint64_t) + entry_bytes + kDigestBytes;
}

BundleWriter::BundleWriter(uint64_t expected_bytes) {
  bundle_.reserve(expected_bytes);
  bundle_ = kBundleMagic;
  AppendInteger(bundle_, kBundleSchema);
  AppendInteger(bundle_, entries_);
}

void BundleWriter::Add(absl::string_view entry) {
  AppendInteger(bundle_, static_cast<uint64_t>(entry.size()));
  bundle_.append(entry.data(), entry.size());
  ++entries_;
}

uint64_t BundleWriter::bytes() const { return bundle_.size() + kDigestBytes; }

std::string BundleWriter::Finish() && {
  std::string count;
  AppendInteger(count, entries_);
  bundle_.replace(kCountAt, count.size(), count);
  bundle_ += DigestBytes({bundle_});
  return std::move(bundle_);
}

absl::StatusOr<std::vector<std::pair<std::string, absl::string_view>>> DecodeBundle(
    absl::string_view bundle) {
  GEMMD_RETURN_IF_ERROR(CheckFrame(bundle));
  const uint32_t count = ReadInteger<uint32_t>(bundle, kCountAt);
  absl::string_view rest =
      bundle.substr(kBundleHeaderBytes, bundle.size() - kBundleHeaderBytes - kDigestBytes);
  std::vector<std::pair<std::string, absl::string_view>> entries;
  for (uint32_t i = 0; i < count; ++i) {
    if (rest.size() < 8) return DamagedBundle("ends early");
    const uint64_t size = ReadInteger<uint64_t>(rest, 0);
    rest.remove_prefix(8);
    if (size > rest.size()) return DamagedBundle("ends early");
    const absl::string_view entry = rest.substr(0, size);
    rest.remove_prefix(size);
    const std::string key = KeyInEntry(entry);
    const absl::Status whole =
        IsKey(key) ? DecodeEntry(entry, key).status() : absl::DataLossError("no kernel entry");
    if (!whole.ok()) return DamagedBundle(absl::StrCat("entry ", i, ": ", whole.message()));
    entries.emplace_back(key, entry);
  }
  if (!rest.empty()) return DamagedBundle("goes on behind its last entry");
  return entries;
}

}  // namespace gemmd::jit

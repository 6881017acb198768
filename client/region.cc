#include "client/region.h"

#include <utility>

namespace gemmd::client {

Region& Region::operator=(Region&& other) noexcept {
  if (this == &other) return *this;
  Release();
  session_ = std::move(other.session_);
  record_ = std::move(other.record_);
  return *this;
}

absl::Status Region::Write(uint64_t offset, absl::Span<const std::byte> bytes) {
  return record_->Write(*session_, offset, bytes);
}

absl::Status Region::Read(uint64_t offset, absl::Span<std::byte> bytes) const {
  return record_->Read(*session_, offset, bytes);
}

void Region::Release() {
  if (record_ == nullptr) return;
  session_->Remove(record_);
  record_ = nullptr;
  session_ = nullptr;
}

}  // namespace gemmd::client

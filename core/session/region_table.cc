#include "core/session/region_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/session/random.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

absl::Status OwnerEnded() {
  return Error(absl::StatusCode::kAborted, "SESSION_ENDED", "the session ended");
}

absl::Status Stale(const RegionRef& ref) {
  return Error(absl::StatusCode::kAborted, "STALE_EPOCH",
               absl::StrCat("region ", ref.id, " generation ", ref.generation,
                            " is superseded: register the memory again"));
}

}  // namespace

void RegionTable::AddSession(uint64_t session_id) {
  MutexLock lock(mutex_);
  sessions_[session_id];
}

std::vector<std::shared_ptr<const Region>> RegionTable::RemoveSession(uint64_t session_id) {
  std::vector<std::shared_ptr<const Region>> removed;
  MutexLock lock(mutex_);
  const auto session = sessions_.find(session_id);
  if (session == sessions_.end()) return removed;
  for (const uint64_t id : session->second.ids) {
    removed.push_back(std::move(regions_.extract(id).mapped()));
  }
  sessions_.erase(session);
  return removed;
}

absl::Status RegionTable::Reserve(uint64_t session_id, uint64_t bytes) {
  MutexLock lock(mutex_);
  const auto session = sessions_.find(session_id);
  if (session == sessions_.end()) return OwnerEnded();
  Totals& totals = session->second.totals;
  if (totals.regions >= limits_.regions) {
    return Error(absl::StatusCode::kResourceExhausted, "QUOTA",
                 absl::StrCat("the session has ", totals.regions, " regions, the limit is ",
                              limits_.regions));
  }
  if (bytes > limits_.bytes || totals.bytes > limits_.bytes - bytes) {
    return Error(absl::StatusCode::kResourceExhausted, "QUOTA",
                 absl::StrCat("the session has ", totals.bytes, " bytes in regions and asks for ",
                              bytes, " more, the limit is ", limits_.bytes));
  }
  ++totals.regions;
  totals.bytes += bytes;
  return absl::OkStatus();
}

void RegionTable::Cancel(uint64_t session_id, uint64_t bytes) {
  MutexLock lock(mutex_);
  const auto session = sessions_.find(session_id);
  if (session == sessions_.end()) return;
  --session->second.totals.regions;
  session->second.totals.bytes -= bytes;
}

absl::StatusOr<RegionInfo> RegionTable::Commit(Region region) {
  MutexLock lock(mutex_);
  const auto session = sessions_.find(region.session_id);
  if (session == sessions_.end()) return OwnerEnded();
  do {
    region.ref.id = RandomId();
  } while (regions_.count(region.ref.id) != 0);
  region.ref.generation = ++last_generation_;
  RegionInfo info = region.Info();
  session->second.ids.insert(region.ref.id);
  regions_[region.ref.id] = std::make_shared<const Region>(std::move(region));
  return info;
}

absl::StatusOr<std::shared_ptr<const Region>> RegionTable::Find(uint64_t session_id,
                                                                const RegionRef& ref) const {
  MutexLock lock(mutex_);
  if (sessions_.count(session_id) == 0) return OwnerEnded();
  const auto found = regions_.find(ref.id);
  if (found == regions_.end()) {
    return Error(absl::StatusCode::kNotFound, "REGION_NOT_FOUND",
                 absl::StrCat("there is no region ", ref.id));
  }
  if (found->second->session_id != session_id) {
    return Error(absl::StatusCode::kPermissionDenied, "NOT_OWNER",
                 absl::StrCat("region ", ref.id, " belongs to another session"));
  }
  if (found->second->ref.generation != ref.generation) return Stale(ref);
  return found->second;
}

absl::StatusOr<std::shared_ptr<const Region>> RegionTable::Remove(uint64_t session_id,
                                                                  const RegionRef& ref) {
  absl::StatusOr<std::shared_ptr<const Region>> region = Find(session_id, ref);
  if (absl::IsNotFound(region.status())) return nullptr;
  MutexLock lock(mutex_);
  const auto session = sessions_.find(session_id);
  if (session == sessions_.end()) return nullptr;
  if (!region.ok()) return region;
  if (session->second.ids.erase(ref.id) == 0) return nullptr;
  --session->second.totals.regions;
  session->second.totals.bytes -= (*region)->size;
  regions_.erase(ref.id);
  return region;
}

std::vector<RegionInfo> RegionTable::List(uint64_t session_id) const {
  std::vector<RegionInfo> infos;
  MutexLock lock(mutex_);
  const auto session = sessions_.find(session_id);
  if (session == sessions_.end()) return infos;
  for (const uint64_t id : session->second.ids) infos.push_back(regions_.at(id)->Info());
  return infos;
}

RegionTable::Totals RegionTable::TotalsOf(uint64_t session_id) const {
  MutexLock lock(mutex_);
  const auto session = sessions_.find(session_id);
  return session == sessions_.end() ? Totals{} : session->second.totals;
}

RegionTable::Totals RegionTable::totals() const {
  MutexLock lock(mutex_);
  Totals sum;
  for (const auto& [id, usage] : sessions_) {
    sum.regions += usage.totals.regions;
    sum.bytes += usage.totals.bytes;
  }
  return sum;
}

}  // namespace gemmd

#include "kernels/tune/tuning_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/jit/files.h"
#include "kernels/jit/kernel_key.h"
#include "kernels/jit/sha256.h"
#include "kernels/tune/built_in.h"
#include "kernels/tune/kernel_digest.h"
#include "kernels/tune/tuning_json.h"

namespace gemmd {
namespace {

constexpr uint64_t kLargestFile = uint64_t{1} << 20;
constexpr char kSuffix[] = ".json";

bool IsEntryName(const std::string& name) {
  return absl::EndsWith(name, kSuffix) &&
         jit::IsKey(name.substr(0, name.size() - (sizeof(kSuffix) - 1)));
}

bool ComparesWith(const TuningConditions& a, const TuningConditions& b) {
  return a.kernels == b.kernels && a.driver == b.driver && a.protocol == b.protocol &&
         a.flush_bytes == b.flush_bytes;
}

// `newer`, and what of `older` lies at other M.
TuningEntry Merged(const TuningEntry& older, TuningEntry newer) {
  for (const MeasuredPoint& point : older.points) {
    const auto at = std::lower_bound(newer.points.begin(), newer.points.end(), point.m,
                                     [](const MeasuredPoint& a, int64_t m) { return a.m < m; });
    if (at == newer.points.end() || at->m != point.m) newer.points.insert(at, point);
  }
  return newer;
}

}  // namespace

std::string TuningFileName(const TuningKey& key) {
  jit::Sha256 hash;
  hash.Add(key.device.name)
      .Add(absl::StrCat(key.device.multiprocessors))
      .Add(absl::StrCat(key.device.clock_mhz))
      .Add(key.spec)
      .Add(absl::StrCat(key.n))
      .Add(absl::StrCat(key.k))
      .Add(key.x_type);
  return jit::ToHex(hash.Finish()) + kSuffix;
}

TuningStore::TuningStore(const TuningStoreOptions& options)
    : options_(options),
      digest_(options.kernels_digest.empty() ? TunedKernelsDigest() : options.kernels_digest) {}

std::shared_ptr<TuningStore> TuningStore::Open(const TuningStoreOptions& options) {
  std::shared_ptr<TuningStore> store(new TuningStore(options));
  MutexLock lock(store->mutex_);
  store->LoadBuiltIn();
  if (!options.directory.empty()) store->LoadDirectory();
  return store;
}

void TuningStore::LoadBuiltIn() {
  std::vector<std::pair<std::string, std::string>> texts;
  if (options_.built_in.has_value()) {
    texts.emplace_back("built-in", *options_.built_in);
  } else {
    for (const BuiltInTuning& table : BuiltInTunings()) texts.emplace_back(table.name, table.text);
  }
  for (const auto& [name, text] : texts) {
    const absl::StatusOr<std::vector<TuningEntry>> entries = ParseTuning(text);
    if (!entries.ok()) {
      ++notes_.damaged;
      notes_.warnings.push_back(absl::StrCat(name, ": ", entries.status().message()));
      continue;
    }
    for (const TuningEntry& entry : *entries) {
      ++notes_.built_in;
      notes_.stale += IsStale(entry) ? 1 : 0;
      built_in_[entry.key] = entry;
    }
  }
}

void TuningStore::LoadDirectory() {
  const std::filesystem::path& directory = options_.directory;
  std::error_code error;
  std::filesystem::create_directories(directory.parent_path(), error);
  (void)mkdir(directory.c_str(), 0700);
  std::filesystem::directory_iterator files(directory, error);
  if (error) {
    notes_.warnings.push_back(
        absl::StrCat("tuning is not kept: ", directory.string(), ": ", error.message()));
    return;
  }
  is_kept_ = true;
  for (const std::filesystem::directory_entry& file : files) LoadFile(file.path());
  if (notes_.foreign == 0) return;
  notes_.warnings.push_back(absl::StrCat(notes_.foreign, " files in ", directory.string(),
                                         " are none of gemmd's and are left alone"));
}

void TuningStore::LoadFile(const std::filesystem::path& path) {
  const std::string name = path.filename();
  if (absl::EndsWith(name, ".tmp")) return jit::RemoveIfUnowned(path);
  if (!IsEntryName(name)) {
    ++notes_.foreign;
    return;
  }
  const jit::File file(path, O_RDONLY | O_NONBLOCK);
  const std::optional<std::string> text =
      file.ok() ? jit::ReadWhole(file, kLargestFile) : std::nullopt;
  const auto entries = ParseTuning(text.value_or(""));
  if (entries.ok() && entries->size() == 1 && TuningFileName(entries->front().key) == name) {
    ++notes_.local;
    notes_.stale += IsStale(entries->front()) ? 1 : 0;
    local_[entries->front().key] = entries->front();
    return;
  }
  ++notes_.damaged;
  notes_.warnings.push_back(absl::StrCat("dropped ", path.string(), ": ",
                                         entries.ok() ? "it holds another entry"
                                                      : entries.status().message()));
  unlink(path.c_str());
}

std::optional<TuningEntry> TuningStore::Find(const TuningKey& key) const {
  MutexLock lock(mutex_);
  for (const auto* entries : {&local_, &built_in_}) {
    const auto found = entries->find(key);
    if (found != entries->end() && !IsStale(found->second)) return found->second;
  }
  return std::nullopt;
}

absl::Status TuningStore::Put(const TuningEntry& entry) {
  MutexLock lock(mutex_);
  TuningEntry& place = local_[entry.key];
  place = ComparesWith(place.conditions, entry.conditions) ? Merged(place, entry) : entry;
  return Keep(place);
}

absl::Status TuningStore::Keep(const TuningEntry& entry) const {
  if (!is_kept_) return absl::OkStatus();
  return jit::Publish(jit::SystemFileCalls(), options_.directory, TuningFileName(entry.key),
                      RenderTuning({entry}));
}

std::vector<StoredTuning> TuningStore::List() const {
  MutexLock lock(mutex_);
  std::vector<StoredTuning> all;
  for (const auto& [key, entry] : local_) all.push_back({entry, false, IsStale(entry)});
  for (const auto& [key, entry] : built_in_) all.push_back({entry, true, IsStale(entry)});
  return all;
}

std::string TuningStore::Export() const {
  std::vector<TuningEntry> entries;
  for (const StoredTuning& stored : List()) {
    if (!stored.is_built_in && !stored.is_stale) entries.push_back(stored.entry);
  }
  return RenderTuning(entries);
}

absl::StatusOr<ImportedTuning> TuningStore::Import(absl::string_view json) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<TuningEntry> entries, ParseTuning(json));
  ImportedTuning imported;
  for (const TuningEntry& entry : entries) {
    if (IsStale(entry)) {
      ++imported.stale;
      continue;
    }
    GEMMD_RETURN_IF_ERROR(Put(entry));
    ++imported.entries;
  }
  return imported;
}

}  // namespace gemmd

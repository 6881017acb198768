// What    The node's tuning: what was measured here, kept in a directory, and what ships with gemmd.
//           <directory>/<digest of the key>.json   one entry (tuning_json.h), published whole
//         What was measured here goes before what ships. An entry whose kernels have changed since is
//         stale: it stays, is listed, and decides nothing.
// Errors  No trouble of the directory is an error of Open: the store then works from memory, and
//         notes() say why. A damaged file is dropped; one of another name is left alone; notes() count
//         both. Put, Import: Unavailable CACHE_WRITE: it decides from now on, but is not kept.
//         Import: DataLoss TUNING_DAMAGED, nothing is taken.
// Threads Thread-safe.
#ifndef GEMMD_KERNELS_TUNE_TUNING_STORE_H_
#define GEMMD_KERNELS_TUNE_TUNING_STORE_H_

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/base/mutex.h"
#include "kernels/select/tuning_table.h"

namespace gemmd {

struct TuningStoreOptions {
  std::filesystem::path directory = {};  // created when missing; empty = memory only
  std::string gemmd_version = {};        // goes into what is measured
  std::string kernels_digest = {};       // for tests; empty = this program's
  // For tests, instead of BuiltInTunings(): JSON text.
  std::optional<std::string> built_in = std::nullopt;
};

struct StoredTuning {
  TuningEntry entry;
  bool is_built_in = false;
  bool is_stale = false;
};

// What Open found.
struct TuningNotes {
  int local = 0;  // entries
  int built_in = 0;
  int stale = 0;    // of both
  int damaged = 0;  // files that were dropped
  int foreign = 0;  // files of other names
  std::vector<std::string> warnings;
};

struct ImportedTuning {
  int entries = 0;
  int stale = 0;  // of other kernels: not taken
};

class TuningStore {
 public:
  static std::shared_ptr<TuningStore> Open(const TuningStoreOptions& options);

  const TuningNotes& notes() const { return notes_; }
  const std::string& gemmd_version() const { return options_.gemmd_version; }
  const std::string& kernels_digest() const { return digest_; }
  const std::filesystem::path& directory() const { return options_.directory; }

  // What decides for that key; nothing when nothing does.
  std::optional<TuningEntry> Find(const TuningKey& key) const;

  // Points of the same M replace older ones; others stay when they were measured of the same kernels in
  // the same way under the same driver. The entry then has the newer date.
  absl::Status Put(const TuningEntry& entry);

  // In the order of keys, what was measured here first.
  std::vector<StoredTuning> List() const;
  // What was measured or imported here and is not stale, as JSON.
  std::string Export() const;
  absl::StatusOr<ImportedTuning> Import(absl::string_view json);

 private:
  explicit TuningStore(const TuningStoreOptions& options);
  void LoadBuiltIn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoadDirectory() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoadFile(const std::filesystem::path& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsStale(const TuningEntry& entry) const { return entry.conditions.kernels != digest_; }
  absl::Status Keep(const TuningEntry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TuningStoreOptions options_;
  const std::string digest_;
  TuningNotes notes_;  // constant after Open
  bool is_kept_ = false;
  mutable Mutex mutex_;
  std::map<TuningKey, TuningEntry> local_ ABSL_GUARDED_BY(mutex_);
  std::map<TuningKey, TuningEntry> built_in_ ABSL_GUARDED_BY(mutex_);
};

// The name of an entry's file.
std::string TuningFileName(const TuningKey& key);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_TUNE_TUNING_STORE_H_

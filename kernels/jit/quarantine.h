// What    Kernels that failed their self-test: they are not run again under the same driver, by no
//         process of the node, until the cache is purged. Another compiler makes another key.
// Layout  <key>.quarantine beside the entries, text, one line each:
//           gemmd quarantine 1
//           the driver's version, the architecture, the compiler, the kernel's label
//           why it failed; the rest of the file
//         A record that does not read so is none: its kernel is tested again.
// Threads Quarantine: every method is thread-safe.
#ifndef GEMMD_KERNELS_JIT_QUARANTINE_H_
#define GEMMD_KERNELS_JIT_QUARANTINE_H_

#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "kernels/base/mutex.h"
#include "kernels/jit/compiler.h"
#include "kernels/jit/disk_tier.h"

namespace gemmd::jit {

struct QuarantineRecord {
  int driver = 0;  // cuDriverGetVersion
  std::string architecture;
  std::string compiler;
  std::string label;
  std::string why;
  friend bool operator==(const QuarantineRecord&, const QuarantineRecord&) = default;
};

std::string EncodeQuarantine(const QuarantineRecord& record);
std::optional<QuarantineRecord> DecodeQuarantine(absl::string_view text);

class Quarantine {
 public:
  explicit Quarantine(DiskTier* disk) : disk_(disk) {}  // null: in memory only

  // A disk that takes no record costs its memory beyond this process, nothing else.
  void Add(const CompiledKernel& kernel, int driver, absl::string_view why);
  // The record of `key` under this driver.
  std::optional<QuarantineRecord> Find(const std::string& key, int driver) const;
  // Forgets what this process remembers; the records on disk stay.
  void ForgetMemory();

 private:
  DiskTier* const disk_;
  mutable Mutex mutex_;
  std::map<std::string, QuarantineRecord> records_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_QUARANTINE_H_

#include "tests/bench/host/kernel_record.h"

#include "absl/strings/str_cat.h"

namespace gemmd::bench {

absl::StatusOr<KernelTimes> SumPerSample(const std::vector<KernelRecord>& records, int samples) {
  const size_t count = static_cast<size_t>(samples);
  if (records.empty() || records.size() % count != 0) {
    return absl::InternalError(
        absl::StrCat("CUPTI saw ", records.size(), " kernels in ", samples, " equal samples"));
  }
  const size_t each = records.size() / count;
  KernelTimes times;
  for (size_t i = 0; i < each; ++i) times.kernels.push_back(records[i].name);
  for (size_t sample = 0; sample < count; ++sample) {
    double sum = 0;
    for (size_t i = 0; i < each; ++i) {
      const KernelRecord& record = records[sample * each + i];
      if (record.name != times.kernels[i]) {
        return absl::InternalError(absl::StrCat("sample ", sample, " ran ", record.name,
                                                ", the first one ", times.kernels[i]));
      }
      sum += record.microseconds;
    }
    times.microseconds.push_back(sum);
  }
  return times;
}

}  // namespace gemmd::bench

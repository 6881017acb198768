#include "kernels/tune/race.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

constexpr int kMostRoundsPerSample = 4;
constexpr double kLeastGain = 0.01;

class Rounds {
 public:
  Rounds(LaunchTimer& timer, const std::vector<TunedLaunch>& lanes, const TuningControl& control)
      : timer_(timer), lanes_(lanes), control_(control), status_(lanes.size()), times_(lanes.size()) {}

  // Whether the round counts.
  absl::StatusOr<bool> Run() {
    if (control_.wait) GEMMD_RETURN_IF_ERROR(control_.wait());
    const uint64_t before = Disturbances();
    std::vector<double> round(lanes_.size());
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (!status_[i].ok()) continue;
      const absl::StatusOr<double> time = timer_.Time(lanes_[i]);
      if (absl::IsDataLoss(time.status())) return time.status();
      status_[i] = time.status();
      if (time.ok()) round[i] = *time;
    }
    if (Disturbances() != before) return false;
    for (size_t i = 0; i < lanes_.size(); ++i) times_[i].push_back(round[i]);
    return true;
  }

  void Forget() {
    for (std::vector<double>& times : times_) times.clear();
  }

  std::vector<LaneTimes> Summaries() const {
    std::vector<LaneTimes> lanes;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      lanes.push_back(status_[i].ok() ? Summarize(times_[i]) : LaneTimes{.status = status_[i]});
    }
    return lanes;
  }

 private:
  uint64_t Disturbances() const { return control_.disturbances ? control_.disturbances() : 0; }

  LaunchTimer& timer_;
  const std::vector<TunedLaunch>& lanes_;
  const TuningControl& control_;
  std::vector<absl::Status> status_;
  std::vector<std::vector<double>> times_;
};

}  // namespace

LaneTimes Summarize(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const size_t count = times.size();
  LaneTimes summary;
  summary.median = (times[(count - 1) / 2] + times[count / 2]) / 2;
  summary.fastest = times.front();
  summary.slowest = times.back();
  summary.samples = static_cast<int>(count);
  return summary;
}

absl::StatusOr<std::vector<LaneTimes>> Race(LaunchTimer& timer,
                                            const std::vector<TunedLaunch>& lanes,
                                            const RaceOptions& options,
                                            const TuningControl& control) {
  Rounds rounds(timer, lanes, control);
  for (int i = 0; i < options.warmups; ++i) GEMMD_RETURN_IF_ERROR(rounds.Run().status());
  rounds.Forget();
  int left = options.samples;
  for (int round = 0; left > 0; ++round) {
    if (round == kMostRoundsPerSample * options.samples) {
      return Error(absl::StatusCode::kResourceExhausted, "DEVICE_BUSY",
                   absl::StrCat("requests disturbed all but ", options.samples - left, " of ", round,
                                " rounds of measuring"));
    }
    GEMMD_ASSIGN_OR_RETURN(const bool counts, rounds.Run());
    if (counts) --left;
  }
  return rounds.Summaries();
}

int Winner(const std::vector<LaneTimes>& lanes) {
  int best = -1;
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (!lanes[i].status.ok()) continue;
    const double gain = best == 0 ? kLeastGain : 0;
    if (best < 0 || lanes[i].median < lanes[best].median * (1 - gain)) best = static_cast<int>(i);
  }
  return best;
}

}  // namespace gemmd

#include "server/convert_tuning.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/convert_errors.h"
#include "server/convert_kernels.h"

namespace gemmd {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 20;
constexpr int kMostPoints = 64;
constexpr uint32_t kMostCandidates = 64;
constexpr uint32_t kMostSamples = 1001;

absl::StatusOr<std::vector<int64_t>> RowsFromProto(const v1::TuneRequest& from) {
  if (from.m_size() > kMostPoints) {
    return OutOfRange("the length of m", from.m_size(), absl::StrCat("at most ", kMostPoints));
  }
  int64_t least = 1;
  for (int i = 0; i < from.m_size(); ++i) {
    if (from.m(i) < least || from.m(i) > kMostRows) {
      return OutOfRange(absl::StrCat("m[", i, "]"), from.m(i),
                        absl::StrCat("ascending, ", least, " to ", kMostRows));
    }
    least = from.m(i) + 1;
  }
  return std::vector<int64_t>(from.m().begin(), from.m().end());
}

absl::StatusOr<TuneSettings> SettingsFromProto(const v1::TuneRequest& from) {
  TuneSettings settings;
  GEMMD_ASSIGN_OR_RETURN(settings.rows, RowsFromProto(from));
  if (from.candidates() > kMostCandidates) {
    return OutOfRange("candidates", from.candidates(), absl::StrCat("at most ", kMostCandidates));
  }
  if (from.samples() > kMostSamples) {
    return OutOfRange("samples", from.samples(), absl::StrCat("at most ", kMostSamples));
  }
  if (from.candidates() != 0) settings.candidates = static_cast<int>(from.candidates());
  if (from.samples() != 0) settings.samples = static_cast<int>(from.samples());
  settings.all_x_types = from.all_x_types();
  return settings;
}

v1::TuneOutcome OutcomeToProto(TuneOutcome outcome) {
  switch (outcome) {
    case TuneOutcome::kMeasured:
      return v1::TUNE_OUTCOME_MEASURED;
    case TuneOutcome::kNoKernel:
      return v1::TUNE_OUTCOME_NO_KERNEL;
    case TuneOutcome::kFailed:
      return v1::TUNE_OUTCOME_FAILED;
    case TuneOutcome::kOutOfTime:
      return v1::TUNE_OUTCOME_OUT_OF_TIME;
  }
  return v1::TUNE_OUTCOME_UNSPECIFIED;
}

v1::MeasuredPoint PointToProto(const MeasuredPoint& from) {
  v1::MeasuredPoint to;
  to.set_m(from.m);
  VisitTiling(from.tiling,
              [&to](const char* name, int value) { (*to.mutable_tiling())[name] = value; });
  to.set_ns(from.ns);
  to.set_fastest_ns(from.fastest_ns);
  to.set_slowest_ns(from.slowest_ns);
  to.set_samples(static_cast<uint32_t>(from.samples));
  to.set_candidates(static_cast<uint32_t>(from.candidates));
  to.set_model_choice_ns(from.model_choice_ns);
  to.set_model_ns(from.model_ns);
  return to;
}

}  // namespace

// The layers are named as those of a prewarm.
absl::StatusOr<TuneJob> FromProto(const v1::TuneRequest& from) {
  v1::PrewarmRequest names;
  *names.mutable_layers() = from.layers();
  *names.mutable_shapes() = from.shapes();
  *names.mutable_models() = from.models();
  names.set_running_layers(from.running_layers());
  GEMMD_ASSIGN_OR_RETURN(PrewarmJob prewarm, FromProto(names));
  TuneJob job;
  job.device = from.device();
  job.checkpoints = std::move(prewarm.checkpoints);
  job.models = std::move(prewarm.models);
  job.running_layers = prewarm.running_layers;
  for (PrewarmLayer& layer : prewarm.layers) job.layers.push_back({layer.spec, layer.shape});
  GEMMD_ASSIGN_OR_RETURN(job.settings, SettingsFromProto(from));
  if (from.time_limit_seconds() != 0) job.time_limit = absl::Seconds(from.time_limit_seconds());
  return job;
}

v1::TuneProgress ToProto(const TuneStep& from) {
  v1::TuneProgress to;
  to.set_done(static_cast<uint32_t>(from.done));
  to.set_total(static_cast<uint32_t>(from.total));
  to.set_n(from.shape.n);
  to.set_k(from.shape.k);
  to.set_spec(from.spec);
  to.set_x_type(from.x_type);
  to.set_outcome(OutcomeToProto(from.outcome));
  if (from.outcome == TuneOutcome::kMeasured) {
    *to.mutable_point() = PointToProto(from.point);
  } else {
    to.mutable_point()->set_m(from.point.m);
  }
  to.set_kernel(from.kernel);
  to.set_model_kernel(from.model_kernel);
  to.set_message(from.message);
  return to;
}

v1::TunedLayer ToProto(const StoredTuning& from) {
  const TuningKey& key = from.entry.key;
  const TuningConditions& conditions = from.entry.conditions;
  v1::TunedLayer to;
  to.set_device_name(key.device.name);
  to.set_multiprocessors(static_cast<uint32_t>(key.device.multiprocessors));
  to.set_clock_mhz(static_cast<uint32_t>(key.device.clock_mhz));
  to.set_spec(key.spec);
  to.set_n(key.n);
  to.set_k(key.k);
  to.set_x_type(key.x_type);
  to.set_gemmd(conditions.gemmd);
  to.set_kernels(conditions.kernels);
  to.set_driver(conditions.driver);
  to.set_date(conditions.date);
  to.set_protocol(conditions.protocol);
  to.set_flush_bytes(static_cast<uint64_t>(conditions.flush_bytes));
  to.set_empty_kernel_ns(conditions.empty_kernel_ns);
  for (const MeasuredPoint& point : from.entry.points) *to.add_points() = PointToProto(point);
  to.set_built_in(from.is_built_in);
  to.set_stale(from.is_stale);
  return to;
}

}  // namespace gemmd

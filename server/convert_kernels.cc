#include "server/convert_kernels.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/convert.h"
#include "server/convert_errors.h"
#include "server/convert_models.h"

namespace gemmd {
namespace {

constexpr int kMaxPrewarmItems = 65536;

absl::StatusOr<PrewarmLayer> LayerFromProto(const v1::PrewarmLayer& from, int index) {
  const std::string field = absl::StrCat("shapes[", index, "]");
  if (!from.has_spec()) return MissingField(field + ".spec");
  PrewarmLayer layer;
  const absl::StatusOr<QuantSpec> spec = FromProto(from.spec());
  if (!spec.ok()) return Annotate(spec.status(), field);
  layer.spec = *spec;
  layer.shape = {from.experts() == 0 ? 1 : from.experts(), from.n(), from.k()};
  if (layer.shape.experts < 1) return OutOfRange(field + ".experts", from.experts(), "at least 0");
  if (from.n() < 1) return OutOfRange(field + ".n", from.n(), "at least 1");
  if (from.k() < 1) return OutOfRange(field + ".k", from.k(), "at least 1");
  layer.traits = {from.has_input_scale(), from.declares_activations()};
  return layer;
}

absl::StatusOr<CheckpointSource> SourceFromProto(const v1::CheckpointSource& from, int index) {
  const std::string field = absl::StrCat("layers[", index, "]");
  if (from.path().empty()) return MissingField(field + ".path");
  if (!from.module().empty()) return FromProto(from);
  if (from.has_slice()) return MissingField(field + ".module");
  return FromProto(from);
}

v1::PrewarmOutcome OutcomeToProto(PrewarmOutcome outcome) {
  switch (outcome) {
    case PrewarmOutcome::kCached:
      return v1::PREWARM_OUTCOME_CACHED;
    case PrewarmOutcome::kCompiled:
      return v1::PREWARM_OUTCOME_COMPILED;
    case PrewarmOutcome::kFailed:
      return v1::PREWARM_OUTCOME_FAILED;
    case PrewarmOutcome::kNoKernel:
      return v1::PREWARM_OUTCOME_NO_KERNEL;
    case PrewarmOutcome::kNotStored:
      return v1::PREWARM_OUTCOME_NOT_STORED;
  }
  return v1::PREWARM_OUTCOME_UNSPECIFIED;
}

}  // namespace

absl::StatusOr<PrewarmJob> FromProto(const v1::PrewarmRequest& from) {
  PrewarmJob job;
  const int items = from.layers_size() + from.shapes_size() + from.models_size();
  if (items > kMaxPrewarmItems) {
    return OutOfRange("layers, shapes and models", items, absl::StrCat("at most ", kMaxPrewarmItems));
  }
  if (items == 0 && !from.running_layers()) {
    return MissingField("layers, shapes, models or running_layers");
  }
  if (!from.architecture().empty()) job.architectures.push_back(from.architecture());
  for (const std::string& architecture : from.architectures()) {
    job.architectures.push_back(architecture);
  }
  for (int i = 0; i < from.layers_size(); ++i) {
    GEMMD_ASSIGN_OR_RETURN(CheckpointSource source, SourceFromProto(from.layers(i), i));
    job.checkpoints.push_back(std::move(source));
  }
  for (int i = 0; i < from.models_size(); ++i) {
    if (from.models(i).path().empty()) return MissingField(absl::StrCat("models[", i, "].path"));
    GEMMD_ASSIGN_OR_RETURN(ModelModules model, FromProto(from.models(i)));
    job.models.push_back(std::move(model));
  }
  for (int i = 0; i < from.shapes_size(); ++i) {
    GEMMD_ASSIGN_OR_RETURN(PrewarmLayer layer, LayerFromProto(from.shapes(i), i));
    job.layers.push_back(std::move(layer));
  }
  job.running_layers = from.running_layers();
  for (int i = 0; i < from.rows_size(); ++i) {
    const int64_t first = from.rows(i).first();
    const int64_t last = from.rows(i).last() == 0 ? first : from.rows(i).last();
    const std::string field = absl::StrCat("rows[", i, "]");
    if (first < 0) return OutOfRange(field + ".first", first, "0 or more");
    if (last < first) return OutOfRange(field + ".last", last, absl::StrCat("at least ", first));
    job.rows.push_back({first, last});
  }
  return job;
}

absl::StatusOr<KernelFilter> FromProto(const v1::CacheFilter& from) {
  const bool digits = from.key_prefix().find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!digits || from.key_prefix().size() > 64) {
    return OutOfRange("filter.key_prefix", from.key_prefix(),
                      "at most 64 lower-case hexadecimal digits");
  }
  KernelFilter to{from.key_prefix(), {from.architectures().begin(), from.architectures().end()}, from.other_compilers()};
  if (!from.architecture().empty()) to.architectures.insert(from.architecture());
  return to;
}

v1::PrewarmProgress ToProto(const PrewarmPlan& from) {
  v1::PrewarmProgress to;
  for (const PrewarmLayer& layer : from.layers) {
    v1::PrewarmLayer* item = to.add_layers();
    *item->mutable_spec() = ToProto(layer.spec);
    item->set_experts(layer.shape.experts);
    item->set_n(layer.shape.n);
    item->set_k(layer.shape.k);
    item->set_has_input_scale(layer.traits.has_input_scale);
    item->set_declares_activations(layer.traits.declares_activations);
  }
  for (const std::string& note : from.notes) to.add_notes(note);
  to.set_named_layers(static_cast<uint32_t>(from.named));
  for (const std::string& architecture : from.architectures) to.add_architectures(architecture);
  return to;
}

v1::PrewarmProgress ToProto(const PrewarmStep& from) {
  v1::PrewarmProgress to;
  to.set_done(static_cast<uint32_t>(from.done));
  to.set_total(static_cast<uint32_t>(from.total));
  to.set_kernel(from.kernel);
  to.set_architecture(from.architecture);
  to.set_outcome(OutcomeToProto(from.outcome));
  to.set_message(from.message);
  to.set_seconds(absl::ToDoubleSeconds(from.took));
  return to;
}

v1::CacheOverflow ToProto(const CacheOverflow& from) {
  v1::CacheOverflow to;
  to.set_kernels(static_cast<uint64_t>(from.entries));
  to.set_needed_bytes(from.needed_bytes);
  to.set_limit_bytes(from.limit_bytes);
  to.set_removed(static_cast<uint64_t>(from.removed));
  return to;
}

v1::CachedKernel ToProto(const StoredKernel& from) {
  v1::CachedKernel to;
  to.set_key(from.key);
  to.set_kernel(from.kernel);
  to.set_architecture(from.architecture);
  to.set_compiler(from.compiler);
  to.set_bytes(from.bytes);
  to.set_loaded(from.loaded);
  to.set_usage(from.usage);
  to.set_problem(from.problem);
  return to;
}

}  // namespace gemmd

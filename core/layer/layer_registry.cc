// Sessions, references and look-ups. Loading: layer_loading.cc.
#include "core/layer/layer_registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/layer/layer_state.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

absl::Status SessionEnded() {
  return Error(absl::StatusCode::kAborted, "SESSION_ENDED", "the session ended");
}

void SetSource(const SourceFacts& source, LayerInfo& info) {
  info.source_format = source.format;
  info.quantized = source.quantized;
  info.notes = source.notes;
}

}  // namespace

LayerRegistry::LayerRegistry(Options options) : options_(std::move(options)) {
  for (int i = 0; i < std::max(1, options_.loader_threads); ++i) {
    loaders_.emplace_back([this] { Work(); });
  }
}

LayerRegistry::~LayerRegistry() {
  std::vector<uint64_t> sessions;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    for (const auto& [id, holder] : holders_) sessions.push_back(id);
    changed_.NotifyAll();
  }
  for (const uint64_t id : sessions) RemoveSession(id);
  for (std::thread& loader : loaders_) loader.join();
}

void LayerRegistry::AddSession(uint64_t session_id) {
  MutexLock lock(mutex_);
  holders_[session_id];
}

void LayerRegistry::RemoveSession(uint64_t session_id) {
  Registrations ended;
  {
    MutexLock lock(mutex_);
    const auto holder = holders_.find(session_id);
    if (holder == holders_.end()) return;
    for (const auto& [id, names] : holder->second.layers) {
      const std::shared_ptr<Layer> layer = layers_.at(id);
      layer->sessions.erase(session_id);
      if (layer->sessions.empty()) Drop(layer);
    }
    holders_.erase(holder);
    for (const std::shared_ptr<Load>& load : loads_) {
      Registrations kept;
      for (Waiting& waiting : load->waiting) {
        (waiting.registration->session_id == session_id ? ended : kept).push_back(std::move(waiting));
      }
      load->waiting.swap(kept);
    }
  }
  for (const Waiting& waiting : ended) waiting.registration->done(SessionEnded());
}

void LayerRegistry::Drop(const std::shared_ptr<Layer>& layer) {
  for (const auto& [identity, source] : layer->identities) layer_by_identity_.erase(identity);
  layer_by_content_.erase(layer->content);
  layers_.erase(layer->id);
  layer->loaded.reset();  // its guard releases it on another thread
}

absl::Status LayerRegistry::Release(uint64_t session_id, uint64_t layer_id) {
  MutexLock lock(mutex_);
  if (holders_.count(session_id) == 0) return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<Layer>> layer = FindHeld(session_id, layer_id);
  // Released before, whether or not others hold it still: a call that is repeated finds what it wanted.
  if (!layer.ok()) return absl::OkStatus();
  Holder& holder = holders_.at(session_id);
  const auto held = holder.layers.find(layer_id);
  const std::string& device = (*layer)->device->description().id;
  for (const auto& [name, source] : held->second) holder.names.erase({device, name});
  holder.layers.erase(held);
  (*layer)->sessions.erase(session_id);
  if ((*layer)->sessions.empty()) Drop(*layer);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<LayerRegistry::Layer>> LayerRegistry::FindHeld(
    uint64_t session_id, uint64_t layer_id) const {
  if (holders_.count(session_id) == 0) return SessionEnded();
  const auto found = layers_.find(layer_id);
  if (found == layers_.end()) {
    return Error(absl::StatusCode::kNotFound, "LAYER_NOT_FOUND",
                 absl::StrCat("there is no layer ", layer_id));
  }
  if (found->second->sessions.count(session_id) == 0) {
    return Error(absl::StatusCode::kPermissionDenied, "NOT_OWNER",
                 absl::StrCat("the session does not hold layer ", layer_id));
  }
  return found->second;
}

absl::StatusOr<LayerRegistry::Use> LayerRegistry::Find(uint64_t session_id,
                                                       uint64_t layer_id) const {
  MutexLock lock(mutex_);
  GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<Layer> layer, FindHeld(session_id, layer_id));
  return Use{layer->device, layer->loaded};
}

absl::StatusOr<LayerInfo> LayerRegistry::Info(uint64_t session_id, uint64_t layer_id) const {
  MutexLock lock(mutex_);
  GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<Layer> layer, FindHeld(session_id, layer_id));
  return InfoFor(*layer, session_id);
}

LayerInfo LayerRegistry::InfoFor(const Layer& layer, uint64_t session_id) const {
  LayerInfo info;
  info.layer_id = layer.id;
  info.device = layer.device->description().id;
  info.digest = layer.digest;
  info.spec = layer.loaded->spec();
  info.shape = layer.loaded->shape();
  info.bytes = layer.loaded->bytes();
  info.references = static_cast<int>(layer.sessions.size());
  info.state = LayerState::kReady;
  info.gate_up_interleaved = layer.loaded->gate_up_interleaved();
  info.has_input_scale = layer.has_input_scale;
  info.traits = layer.traits;
  info.not_finite_weights = layer.not_finite_weights;
  info.encoding = layer.encoding;
  info.specialised = layer.loaded->specialised();
  info.numerics = layer.loaded->numerics();
  const auto holder = holders_.find(session_id);
  if (holder == holders_.end()) return info;
  const auto held = holder->second.layers.find(layer.id);
  if (held == holder->second.layers.end() || held->second.empty()) return info;
  const auto& [name, source] = *held->second.rbegin();
  info.name = name;
  SetSource(source, info);
  return info;
}

LayerInfo LayerRegistry::InfoOfAll(const Layer& layer) const {
  LayerInfo info = InfoFor(layer, layer.sessions.empty() ? 0 : *layer.sessions.begin());
  std::set<std::string> formats;
  for (const uint64_t session : layer.sessions) {
    for (const auto& [name, source] : holders_.at(session).layers.at(layer.id)) {
      formats.insert(source.format);
      if (!info.quantized.has_value()) info.quantized = source.quantized;
    }
  }
  info.source_format = absl::StrJoin(formats, ", ");
  return info;
}

std::vector<LayerInfo> LayerRegistry::List(uint64_t session_id) const {
  std::vector<LayerInfo> infos;
  MutexLock lock(mutex_);
  const auto holder = holders_.find(session_id);
  if (holder == holders_.end()) return infos;
  for (const auto& [id, names] : holder->second.layers) {
    infos.push_back(InfoFor(*layers_.at(id), session_id));
  }
  return infos;
}

std::vector<LayerInfo> LayerRegistry::ListAll() const {
  std::vector<LayerInfo> infos;
  MutexLock lock(mutex_);
  for (const auto& [id, layer] : layers_) infos.push_back(InfoOfAll(*layer));
  for (const std::shared_ptr<Load>& load : loads_) {
    if (load->waiting.empty()) continue;
    LayerInfo info;
    info.name = load->waiting.front().registration->name;
    info.device = load->origin.device->description().id;
    info.references = static_cast<int>(load->waiting.size());
    info.state = load->latest.state;
    infos.push_back(std::move(info));
  }
  return infos;
}

LayerRegistry::Totals LayerRegistry::totals() const {
  MutexLock lock(mutex_);
  Totals totals;
  totals.layers = static_cast<int>(layers_.size());
  for (const auto& [id, layer] : layers_) {
    totals.references += static_cast<int>(layer->sessions.size());
  }
  return totals;
}

int LayerRegistry::LayersOf(uint64_t session_id) const {
  MutexLock lock(mutex_);
  const auto holder = holders_.find(session_id);
  return holder == holders_.end() ? 0 : static_cast<int>(holder->second.layers.size());
}

absl::StatusOr<LayerInfo> LayerRegistry::Attach(const std::shared_ptr<Layer>& layer,
                                                const LayerRegistration& registration,
                                                const SourceFacts& source) {
  const auto found = holders_.find(registration.session_id);
  if (found == holders_.end()) return SessionEnded();
  Holder& holder = found->second;
  const auto place = std::make_pair(layer->device->description().id, registration.name);
  const auto named = holder.names.find(place);
  if (named != holder.names.end() && named->second != layer->id) {
    return Error(absl::StatusCode::kAlreadyExists, "LAYER_CONFLICT",
                 absl::StrCat("the session uses the name '", registration.name,
                              "' for another layer of ", place.first, ": release that one first"));
  }
  const int limit = options_.layers_per_session;
  if (holder.layers.count(layer->id) == 0 && static_cast<int>(holder.layers.size()) >= limit) {
    return Error(absl::StatusCode::kResourceExhausted, "QUOTA",
                 absl::StrCat("the session holds ", limit, " layers, which is the limit"));
  }
  holder.layers[layer->id][registration.name] = source;
  if (!registration.name.empty()) holder.names[place] = layer->id;
  layer->sessions.insert(registration.session_id);
  LayerInfo info = InfoFor(*layer, registration.session_id);
  info.name = registration.name;
  SetSource(source, info);
  return info;
}

void LayerRegistry::AttachAll(const std::shared_ptr<Layer>& layer, Registrations registrations,
                              const SourceFacts& source, Answers& answers) {
  for (auto& [registration, own] : registrations) {
    absl::StatusOr<LayerInfo> info = Attach(layer, *registration, own.value_or(source));
    answers.push_back([registration = std::move(registration), info = std::move(info)] {
      registration->done(info);
    });
  }
  if (layer->sessions.empty()) Drop(layer);
}

}  // namespace gemmd

// How a registration becomes a layer: join, or read, take the digest, join again, load.
#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/layer/layer_registry.h"
#include "core/layer/layer_state.h"
#include "core/quant/digest.h"
#include "core/quant/input_scale.h"
#include "core/quant/standard_tensor.h"
#include "core/session/random.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

absl::Status Cancelled() {
  return Error(absl::StatusCode::kCancelled, "CANCELLED", "the registration was cancelled");
}

void GiveAll(const std::vector<std::function<void()>>& answers) {
  for (const auto& answer : answers) answer();
}

SourceFacts FactsOf(const CheckpointLayer& source) { return {source.format, source.quantized, source.notes}; }

absl::Status FromException(const char* what) {
  return Error(absl::StatusCode::kInternal, "INTERNAL", absl::StrCat("loading the layer: ", what));
}

}  // namespace

void LayerRegistry::Register(LayerRegistration registration, LayerOrigin origin) {
  auto shared = std::make_shared<LayerRegistration>(std::move(registration));
  Answers answers;
  {
    MutexLock lock(mutex_);
    const std::string identity = origin.identity;
    const auto layer = layer_by_identity_.find(identity);
    const auto load = load_by_identity_.find(identity);
    if (stopping_ || holders_.count(shared->session_id) == 0) {
      answers.push_back([shared] {
        shared->done(Error(absl::StatusCode::kAborted, "SESSION_ENDED", "the session ended"));
      });
    } else if (!identity.empty() && layer != layer_by_identity_.end()) {
      const std::shared_ptr<Layer> ready = layers_.at(layer->second);
      AttachAll(ready, {{shared, std::nullopt}}, ready->identities.at(identity), answers);
    } else if (!identity.empty() && load != load_by_identity_.end()) {
      load->second->waiting.push_back({shared, load->second->identities.at(identity)});
    } else {
      auto created = std::make_shared<Load>(std::move(origin));
      created->waiting.push_back({shared, std::nullopt});
      if (!identity.empty()) {
        created->identities[identity];
        load_by_identity_[identity] = created;
      }
      loads_.insert(created);
      queue_.push_back(created);
      changed_.NotifyOne();
    }
  }
  GiveAll(answers);
}

void LayerRegistry::Work() {
  while (true) {
    std::shared_ptr<Load> load;
    const Step step = WaitForStep(load);
    if (step == Step::kStop) return;
    if (step == Step::kMeasure) {
      MeasureLoad(load);
      continue;
    }
    RunLoad(load);
    MutexLock lock(mutex_);
    --loading_;
    loading_bytes_ -= *load->bytes;
    changed_.NotifyAll();
  }
}

// The load is out of the queue and counted when it is to run.
LayerRegistry::Step LayerRegistry::WaitForStep(std::shared_ptr<Load>& load) {
  const auto is_due = [this] { return NextStep() != Step::kWait; };
  bool is_idle = false;
  {
    MutexLock lock(mutex_);
    is_idle = !changed_.WaitUntil(mutex_, absl::Now() + options_.keep_buffers, is_due) && loading_ == 0;
  }
  if (is_idle) HostBuffer::ReleaseKeptMemory();
  MutexLock lock(mutex_);
  changed_.Wait(mutex_, is_due);
  const Step step = NextStep();
  if (step == Step::kStop) return step;
  load = queue_.front();
  if (step == Step::kMeasure) {
    load->is_being_measured = true;
    return step;
  }
  queue_.pop_front();
  ++loading_;
  loading_bytes_ += *load->bytes;
  return step;
}

LayerRegistry::Step LayerRegistry::NextStep() const {
  if (queue_.empty()) return stopping_ ? Step::kStop : Step::kWait;
  const Load& next = *queue_.front();
  if (!next.bytes) return next.is_being_measured ? Step::kWait : Step::kMeasure;
  const uint64_t left = options_.loading_bytes - std::min(loading_bytes_, options_.loading_bytes);
  return loading_ == 0 || *next.bytes <= left ? Step::kRun : Step::kWait;
}

void LayerRegistry::MeasureLoad(const std::shared_ptr<Load>& load) {
  uint64_t bytes = 0;
  try {
    bytes = load->origin.measure();
  } catch (const std::exception&) {  // reading will say so
  }
  MutexLock lock(mutex_);
  load->bytes = bytes;
  changed_.NotifyAll();
}

void LayerRegistry::RunLoad(const std::shared_ptr<Load>& load) {
  if (!Report(load, {})) return;
  const absl::Time start = absl::Now();
  std::string format;
  absl::Status status;
  try {
    status = ReadAndPlace(load, format);
  } catch (const std::bad_alloc&) {
    status = Error(absl::StatusCode::kResourceExhausted, "HOST_MEMORY",
                   absl::StrCat("the machine has no memory to load the layer: it takes about ", *load->bytes, " bytes"));
  } catch (const std::exception& error) {
    status = FromException(error.what());
  }
  if (!status.ok()) FailLoad(load, status);
  if (options_.loaded) options_.loaded(format, status, absl::Now() - start);
}

absl::StatusOr<CheckpointLayer> LayerRegistry::Read(const std::shared_ptr<Load>& load) {
  const auto reporting = [this, &load](LayerState state) {
    return [this, &load, state](uint64_t done, uint64_t total) {
      return Report(load, {state, done, total});
    };
  };
  return load->origin.read({reporting(LayerState::kLoading), reporting(LayerState::kQuantizing)});
}

absl::Status LayerRegistry::ReadAndPlace(const std::shared_ptr<Load>& load, std::string& format) {
  GEMMD_ASSIGN_OR_RETURN(CheckpointLayer source, Read(load));
  format = source.format;
  GEMMD_RETURN_IF_ERROR(Validate(source.tensor));
  LayerContent read = ContentOf(source.tensor);
  // gate_up_interleaved is no part of the digest's content, but of what the layer means.
  const std::string content = absl::StrCat(load->origin.device->description().id, " ", read.digest, " ",
                                           source.tensor.gate_up_interleaved ? "i" : "h");
  if (!ClaimContent(load, content, FactsOf(source))) return absl::OkStatus();
  const auto bytes = static_cast<uint64_t>(source.tensor.total_bytes());
  if (!Report(load, {LayerState::kPacking, bytes, bytes})) return Cancelled();
  return LoadOnDevice(load, std::move(source), std::move(read), content);
}

// Whether this load goes on: not when the content is there or on its way; then its registrations
// are answered or moved, with what is known of their source.
bool LayerRegistry::ClaimContent(const std::shared_ptr<Load>& load, const std::string& content,
                                 const SourceFacts& source) {
  Answers answers;
  {
    MutexLock lock(mutex_);
    const auto layer = layer_by_content_.find(content);
    const auto other = load_by_content_.find(content);
    if (layer == layer_by_content_.end() && other == load_by_content_.end()) {
      load->content = content;
      load_by_content_[content] = load;
      return true;
    }
    Registrations waiting = std::move(load->waiting);
    load->waiting.clear();
    ForgetLoad(*load);
    loads_.erase(load);
    if (layer != layer_by_content_.end()) {
      const std::shared_ptr<Layer> ready = layers_.at(layer->second);
      for (const auto& [identity, own] : load->identities) {
        ready->identities[identity] = own.value_or(source);
        layer_by_identity_[identity] = ready->id;
      }
      AttachAll(ready, std::move(waiting), source, answers);
    } else {
      const std::shared_ptr<Load> leader = other->second;
      for (const auto& [identity, own] : load->identities) {
        leader->identities[identity] = own.value_or(source);
        load_by_identity_[identity] = leader;
      }
      for (Waiting& moved : waiting) {
        moved.source = moved.source.value_or(source);
        leader->waiting.push_back(std::move(moved));
      }
    }
  }
  GiveAll(answers);
  return false;
}

absl::Status LayerRegistry::LoadOnDevice(const std::shared_ptr<Load>& load,
                                         CheckpointLayer source, LayerContent read,
                                         const std::string& content) {
  auto layer = std::make_shared<Layer>();
  layer->device = load->origin.device;
  layer->digest = std::move(read.digest);
  layer->content = content;
  layer->has_input_scale = source.tensor.has_input_scale;
  layer->traits = TraitsOf(source.tensor);
  layer->not_finite_weights = read.not_finite_weights;
  layer->encoding = source.tensor.encoding;
  const SourceFacts facts = FactsOf(source);
  GEMMD_ASSIGN_OR_RETURN(std::shared_ptr<DeviceLayer> loaded,
                         load->origin.device->LoadLayer(std::move(source.tensor)));
  layer->loaded = load->origin.guard ? load->origin.guard(std::move(loaded)) : std::move(loaded);
  Answers answers;
  {
    MutexLock lock(mutex_);
    do {
      layer->id = RandomId();
    } while (layers_.count(layer->id) != 0);
    for (const auto& [identity, own] : load->identities) layer->identities[identity] = own.value_or(facts);
    ForgetLoad(*load);
    loads_.erase(load);
    layers_[layer->id] = layer;
    layer_by_content_[content] = layer->id;
    for (const auto& [identity, own] : layer->identities) layer_by_identity_[identity] = layer->id;
    AttachAll(layer, std::move(load->waiting), facts, answers);
    load->waiting.clear();
  }
  GiveAll(answers);
  return absl::OkStatus();
}

// Tells every waiting registration, drops those that cancel, and says whether one is left. The last
// one's cancellation takes the load out of the tables, so that nobody joins a load that is about to
// stop.
bool LayerRegistry::Report(const std::shared_ptr<Load>& load, const LayerProgress& progress) {
  Registrations waiting;
  {
    MutexLock lock(mutex_);
    load->latest = progress;
    waiting = load->waiting;
  }
  for (const auto& [registration, source] : waiting) {
    if (!registration->progress || registration->progress(progress)) continue;
    bool owned = false;
    {
      MutexLock lock(mutex_);
      auto& list = load->waiting;
      const auto found = std::find_if(list.begin(), list.end(), [&asked = registration](const Waiting& one) {
        return one.registration == asked;
      });
      owned = found != list.end();
      if (owned) list.erase(found);
    }
    if (owned) registration->done(Cancelled());
  }
  MutexLock lock(mutex_);
  if (!load->waiting.empty()) return true;
  ForgetLoad(*load);
  loads_.erase(load);
  return false;
}

void LayerRegistry::FailLoad(const std::shared_ptr<Load>& load, const absl::Status& status) {
  Registrations waiting;
  {
    MutexLock lock(mutex_);
    ForgetLoad(*load);
    loads_.erase(load);
    waiting.swap(load->waiting);
  }
  for (const auto& [registration, source] : waiting) registration->done(status);
}

void LayerRegistry::ForgetLoad(const Load& load) {
  const auto erase = [&load](auto& table, const std::string& key) {
    const auto found = table.find(key);
    if (found != table.end() && found->second.get() == &load) table.erase(found);
  };
  for (const auto& [identity, source] : load.identities) erase(load_by_identity_, identity);
  erase(load_by_content_, load.content);
}

}  // namespace gemmd

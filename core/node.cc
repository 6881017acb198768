// The node's life and its sessions. Regions, layers and requests: node_regions.cc, node_layers.cc,
// node_requests.cc.
#include "core/node.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "core/node_impl.h"
#include "core/session/random.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

// Stream sessions that nobody keeps yet get one part in so many of max_sessions.
constexpr int kUnkeptShare = 4;

}  // namespace

Node::Impl::Impl(NodeOptions node_options, std::vector<std::unique_ptr<Device>> devices,
                 NodeObserver* node_observer)
    : options(std::move(node_options)),
      observer(node_observer),
      boot_id(RandomId()),
      regions({options.max_regions_per_session, options.max_region_bytes_per_session}),
      checkpoints(std::make_unique<CheckpointCache>(options.checkpoint_roots)) {
  for (std::unique_ptr<Device>& device : devices) {
    places.push_back({std::move(device), std::make_unique<Reaper>([this](absl::Duration took) {
                        Observe([&](NodeObserver& o) { o.OnRegionClose(took); });
                      })});
  }
  LayerRegistry::Options layer_options;
  layer_options.loader_threads =
      options.loader_threads > 0
          ? options.loader_threads
          : static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 2u, 16u));
  layer_options.layers_per_session = options.max_layers_per_session;
  layer_options.loaded = [this](const std::string& format, const absl::Status& status,
                                absl::Duration took) {
    Observe([&](NodeObserver& o) { o.OnLayerLoad(format, status, took); });
  };
  layers = std::make_unique<LayerRegistry>(std::move(layer_options));
  watcher = std::thread([this] { WatchStreams(); });
}

ReadingOptions Node::Impl::ReadingOf(const std::optional<GptqZeroPoints>& zero_points) const {
  ReadingOptions reading = options.reading;
  reading.gptq_zero_points = zero_points.value_or(reading.gptq_zero_points);
  return reading;
}

ThreadPool& Node::Impl::quantizers() const {
  std::call_once(quantizers_started, [this] {
    const unsigned cores = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
    quantizer_pool = std::make_unique<ThreadPool>(static_cast<int>(cores));
  });
  return *quantizer_pool;
}

Node::Impl::~Impl() {
  activity.StartDraining();
  {
    MutexLock lock(mutex);
    stopping = true;
    changed.NotifyAll();
  }
  watcher.join();
  for (const std::shared_ptr<Session>& session : sessions()) EndSession(session, "close");
  layers.reset();
  tracker->WaitUntilNone();
  activity.WaitUntilIdle(absl::InfiniteFuture());
  for (Place& place : places) place.reaper.reset();
}

absl::StatusOr<const Node::Impl::Place*> Node::Impl::FindPlace(const std::string& device_id) const {
  if (device_id.empty()) return &places.front();
  std::vector<std::string> known;
  for (const Place& place : places) {
    if (place.device->description().id == device_id) return &place;
    known.push_back(place.device->description().id);
  }
  return Error(
      absl::StatusCode::kFailedPrecondition, "WRONG_DEVICE",
      absl::StrCat("device is '", device_id, "', this node has ", absl::StrJoin(known, ", ")));
}

const Node::Impl::Place& Node::Impl::PlaceOf(const Device& device) const {
  const auto found = std::find_if(places.begin(), places.end(), [&](const Place& place) {
    return place.device.get() == &device;
  });
  return *found;
}

std::vector<std::shared_ptr<Session>> Node::Impl::sessions() const {
  std::vector<std::shared_ptr<Session>> all;
  MutexLock lock(mutex);
  for (const auto& [token, session] : by_token) all.push_back(session);
  return all;
}

bool Node::Impl::EndSession(const std::shared_ptr<Session>& session, absl::string_view why) {
  if (!session->End()) return false;
  {
    MutexLock lock(mutex);
    by_token.erase(session->token());
    unkept.erase(session->id());
  }
  layers->RemoveSession(session->id());
  regions.RemoveSession(session->id()).clear();
  Observe([&](NodeObserver& o) { o.OnSessionEnd(std::string(why)); });
  return true;
}

absl::Status Node::Impl::CheckRoom(bool stream) const {
  const int limit = options.max_sessions;
  if (static_cast<int>(by_token.size()) >= limit) {
    return Error(absl::StatusCode::kResourceExhausted, "QUOTA",
                 absl::StrCat("the node has ", limit, " sessions, which is the limit"));
  }
  const int unkept_limit = std::max(1, limit / kUnkeptShare);
  if (!stream || static_cast<int>(unkept.size()) < unkept_limit) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted, "QUOTA",
               absl::StrCat("the node has ", unkept_limit,
                            " sessions that still lack their KeepSession stream, which is the "
                            "limit: max_sessions / ",
                            kUnkeptShare));
}

absl::Time Node::Impl::EndExpired(absl::Time now) {
  absl::Time next = absl::InfiniteFuture();
  for (const std::shared_ptr<Session>& session : sessions()) {
    if (session->identity().transport != "stream" || session->ever_kept()) continue;
    const absl::Time end = session->opened_at() + options.stream_grace;
    if (end <= now) {
      EndSession(session, "expired");
    } else {
      next = std::min(next, end);
    }
  }
  return next;
}

void Node::Impl::WatchStreams() {
  while (true) {
    uint64_t seen = 0;
    {
      MutexLock lock(mutex);
      if (stopping) return;
      seen = opened;
    }
    const absl::Time next = EndExpired(absl::Now());
    MutexLock lock(mutex);
    // A new session may expire first when the clock was set back.
    changed.WaitUntil(mutex, next, [&] { return stopping || opened != seen; });
  }
}

Node::Node(NodeOptions options, std::vector<std::unique_ptr<Device>> devices,
           NodeObserver* observer)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(devices), observer)) {}

Node::~Node() = default;

uint64_t Node::boot_id() const { return impl_->boot_id; }

NodeStatus Node::Status() const {
  NodeStatus status;
  for (const Impl::Place& place : impl_->places) {
    status.devices.push_back(
        {place.device->description(), place.device->health(), place.device->weights_bytes(),
         place.device->kernel_counts()});
    const Reaper::Backlog backlog = place.reaper->backlog();
    status.closing += backlog.pending;
    status.oldest_close = std::max(status.oldest_close, backlog.oldest);
  }
  status.sessions = static_cast<int>(impl_->sessions().size());
  const LayerRegistry::Totals layers = impl_->layers->totals();
  status.layers = layers.layers;
  status.layer_references = layers.references;
  const RegionTable::Totals regions = impl_->regions.totals();
  status.regions = regions.regions;
  status.region_bytes = regions.bytes;
  status.requests_total = impl_->requests_total;
  status.draining = impl_->activity.draining();
  return status;
}

absl::StatusOr<std::shared_ptr<Session>> Node::OpenSession(const SessionIdentity& identity) {
  GEMMD_RETURN_IF_ERROR(impl_->activity.Begin());
  const auto session = std::make_shared<Session>(
      identity,
      Session::Limits{impl_->options.max_queued_per_session, impl_->options.max_tickets_per_session,
                      impl_->options.max_tickets, impl_->tickets_in_use},
      impl_->tracker);
  const absl::Status opened = [&]() -> absl::Status {
    MutexLock lock(impl_->mutex);
    const bool stream = identity.transport == "stream";
    GEMMD_RETURN_IF_ERROR(impl_->CheckRoom(stream));
    if (stream) impl_->unkept.insert(session->id());
    impl_->regions.AddSession(session->id());
    impl_->layers->AddSession(session->id());
    impl_->by_token[session->token()] = session;
    ++impl_->opened;
    impl_->changed.NotifyAll();
    return absl::OkStatus();
  }();
  impl_->activity.End();
  if (!opened.ok()) {
    impl_->Observe([&](NodeObserver& o) { o.OnRejected(ReasonOf(opened)); });
    return opened;
  }
  return session;
}

absl::StatusOr<std::shared_ptr<Session>> Node::FindSession(absl::string_view token) const {
  {
    MutexLock lock(impl_->mutex);
    const auto found = impl_->by_token.find(std::string(token));
    if (found != impl_->by_token.end()) return found->second;
  }
  if (impl_->activity.draining()) return Draining();
  return Error(absl::StatusCode::kUnauthenticated, "UNKNOWN_SESSION",
               "the session token is unknown or its session ended: open a session");
}

const std::string& Node::TokenOf(const Session& session) const { return session.token(); }
uint64_t Node::IdOf(const Session& session) const { return session.id(); }

absl::Status Node::BeginKeep(Session& session) {
  GEMMD_RETURN_IF_ERROR(session.BeginKeep());
  MutexLock lock(impl_->mutex);
  impl_->unkept.erase(session.id());
  return absl::OkStatus();
}

void Node::EndKeep(const std::shared_ptr<Session>& session) {
  const bool last = session->EndKeep();
  if (last && session->identity().transport == "stream") impl_->EndSession(session, "eof");
}

bool Node::EndSession(const std::shared_ptr<Session>& session, absl::string_view why) {
  return impl_->EndSession(session, why);
}

void Node::EndSessions(absl::string_view why) {
  for (const std::shared_ptr<Session>& session : impl_->sessions()) impl_->EndSession(session, why);
}

std::vector<SessionInfo> Node::ListSessions() const {
  std::vector<SessionInfo> infos;
  for (const std::shared_ptr<Session>& session : impl_->sessions()) {
    const SessionIdentity& identity = session->identity();
    const RegionTable::Totals regions = impl_->regions.TotalsOf(session->id());
    SessionInfo info;
    info.session_id = session->id();
    info.name = identity.name;
    info.pid = identity.pid;
    info.uid = identity.uid;
    info.transport = identity.transport;
    info.layers = impl_->layers->LayersOf(session->id());
    info.regions = regions.regions;
    info.region_bytes = regions.bytes;
    info.requests = session->requests();
    info.queued = session->queued();
    info.opened_at = session->opened_at();
    infos.push_back(std::move(info));
  }
  return infos;
}

absl::Status Node::Drain(absl::Time deadline) {
  impl_->activity.StartDraining();
  if (impl_->activity.WaitUntilIdle(deadline)) return absl::OkStatus();
  return Error(absl::StatusCode::kDeadlineExceeded, "DRAINING",
               "requests are still queued or running at the deadline");
}

}  // namespace gemmd

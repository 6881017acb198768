#include "client/session_state.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/time/clock.h"
#include "client/rpc_status.h"
#include "kernels/base/status.h"

namespace gemmd::client {
namespace {

bool NeverRan(const absl::Status& failure) {
  return failure.code() == absl::StatusCode::kUnauthenticated &&
         ReasonOf(failure) == "UNKNOWN_SESSION";
}

// Refused before anything ran, and it will be served soon.
bool WaitsForKernel(const absl::Status& failure) {
  return failure.code() == absl::StatusCode::kUnavailable && ReasonOf(failure) == "KERNEL_COMPILING";
}

bool MayPass(const absl::Status& failure) {
  return failure.code() == absl::StatusCode::kUnavailable ||
         failure.code() == absl::StatusCode::kDeadlineExceeded ||
         failure.code() == absl::StatusCode::kResourceExhausted || NeverRan(failure);
}

}  // namespace

absl::Status Resource::Bind(Link& link, absl::Time deadline) {
  MutexLock lock(mutex_);
  if (closed_)
    return Error(absl::StatusCode::kFailedPrecondition, "SOURCE_GONE", "released by its owner");
  if (bound_serial_ == link.serial()) return absl::OkStatus();
  if (bound_serial_ > link.serial()) {
    return Error(absl::StatusCode::kUnavailable, "CONNECTION_LOST",
                 "the session was opened anew meanwhile");
  }
  if (failed_serial_ == link.serial()) return failure_;
  absl::Status status = Register(link, deadline);
  if (status.ok()) {
    bound_serial_ = link.serial();
    bound_link_ = link.weak_from_this();
  } else if (!MayPass(status)) {
    failed_serial_ = link.serial();
    failure_ = status;
  }
  return status;
}

void Resource::Close() {
  MutexLock lock(mutex_);
  if (closed_) return;
  closed_ = true;
  const std::shared_ptr<Link> link = bound_link_.lock();
  if (link != nullptr && !link->channel().forked() && link->alive()) Unregister(*link);
}

bool Resource::closed() const {
  MutexLock lock(mutex_);
  return closed_;
}

void LayerUses::BeginRegister(uint64_t serial) {
  MutexLock lock(mutex_);
  if (serial > serial_) {
    serial_ = serial;
    link_ = PerLink();
  }
  if (serial == serial_) ++link_.registering;
}

std::set<uint64_t> LayerUses::TakeWaiting(PerLink& link) {
  std::set<uint64_t> released;
  if (link.registering > 0) return released;
  for (uint64_t id : link.waiting) {
    if (link.users[id] == 0) released.insert(id);
  }
  link.waiting.clear();
  return released;
}

std::set<uint64_t> LayerUses::EndRegister(uint64_t serial, uint64_t id) {
  MutexLock lock(mutex_);
  if (serial != serial_) return {};
  --link_.registering;
  if (id != 0) ++link_.users[id];
  return TakeWaiting(link_);
}

bool LayerUses::Drop(uint64_t serial, uint64_t id) {
  MutexLock lock(mutex_);
  if (serial != serial_ || --link_.users[id] > 0) return false;
  if (link_.registering == 0) return true;
  link_.waiting.insert(id);
  return false;
}

std::set<uint64_t> LayerUses::Unused(uint64_t serial, const std::set<uint64_t>& ids) {
  MutexLock lock(mutex_);
  if (serial < serial_ || (serial == serial_ && link_.registering > 0)) return {};
  std::set<uint64_t> unused;
  for (const uint64_t id : ids) {
    const auto users = link_.users.find(id);
    if (serial > serial_ || users == link_.users.end() || users->second == 0) unused.insert(id);
  }
  return unused;
}

absl::StatusOr<std::shared_ptr<SessionState>> SessionState::Open(const SessionOptions& options) {
  auto state = std::shared_ptr<SessionState>(new SessionState(options));
  MutexLock reopening(state->reopen_mutex_);
  GEMMD_ASSIGN_OR_RETURN(auto link, state->OpenLink(absl::Now() + options.connect_timeout));
  MutexLock lock(state->mutex_);
  state->link_ = std::move(link);
  state->opened_links_ = 1;
  return state;
}

absl::StatusOr<std::shared_ptr<Link>> SessionState::OpenLink(absl::Time deadline) {
  const LinkOptions link_options{options_.address, options_.name, options_.use_session_socket};
  RetryPolicy until_deadline = options_.retry;
  until_deadline.max_attempts = std::numeric_limits<int>::max();
  Backoff backoff(until_deadline);
  while (true) {
    const absl::Time attempt_deadline = std::max(deadline, absl::Now() + options_.attempt_timeout);
    auto link = Link::Open(link_options, attempt_deadline);
    if (link.ok() || !backoff.Wait(link.status(), deadline)) return link;
  }
}

std::shared_ptr<Link> SessionState::Current() const {
  MutexLock lock(mutex_);
  return link_;
}

bool SessionState::connected() const {
  const std::shared_ptr<Link> link = Current();
  return link != nullptr && link->alive();
}

absl::StatusOr<std::shared_ptr<Link>> SessionState::Acquire(absl::Time deadline) {
  std::shared_ptr<Link> link = Current();
  GEMMD_RETURN_IF_ERROR(link->channel().Usable());
  if (link->alive()) return link;
  MutexLock reopening(reopen_mutex_);
  link = Current();
  if (link->alive()) return link;
  if (options_.on_reconnect) options_.on_reconnect();
  const absl::Time until = std::min(deadline, absl::Now() + options_.reconnect_timeout);
  GEMMD_ASSIGN_OR_RETURN(link, OpenLink(until));
  {
    MutexLock lock(mutex_);
    link_ = link;
    ++opened_links_;
  }
  BindAll(*link, deadline);
  return link;
}

void SessionState::BindAll(Link& link, absl::Time deadline) {
  std::vector<std::shared_ptr<Resource>> resources;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, resource] : resources_) resources.push_back(resource);
  }
  for (const auto& resource : resources) {
    if (!link.alive()) return;
    // A failure is met again, and reported, by whoever uses the resource.
    Note(link, resource->Bind(link, deadline));
  }
}

void SessionState::Note(Link& link, const absl::Status& failure) {
  if (NeverRan(failure) || IsTransportFailure(failure) || ReasonOf(failure) == "SESSION_ENDED") {
    link.MarkLost();
  }
}

absl::Status SessionState::Run(absl::Time deadline, bool idempotent, Attempt attempt) {
  Backoff backoff(options_.retry);
  bool repeated_unknown = false;
  while (true) {
    GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, Acquire(deadline));
    const absl::Status status = attempt(*link);
    if (status.ok()) return status;
    Note(*link, status);
    if (NeverRan(status) && !repeated_unknown) {
      repeated_unknown = true;
      continue;
    }
    const bool may_repeat = idempotent || WaitsForKernel(status);
    if (!may_repeat || !backoff.Wait(status, deadline)) return link->channel().Explain(status);
  }
}

absl::Status SessionState::Add(const std::shared_ptr<Resource>& resource, absl::Time deadline) {
  {
    MutexLock lock(mutex_);
    resource->order_ = next_resource_++;
    resources_.emplace(resource->order_, resource);
  }
  absl::Status status =
      Run(deadline, true, [&](Link& link) { return resource->Bind(link, deadline); });
  if (!status.ok()) Remove(resource);
  return status;
}

void SessionState::Remove(const std::shared_ptr<Resource>& resource) {
  {
    MutexLock lock(mutex_);
    const auto found = resources_.find(resource->order_);
    if (found != resources_.end() && found->second == resource) resources_.erase(found);
  }
  resource->Close();
}

absl::Time SessionState::DefaultDeadline() const { return absl::Now() + options_.call_timeout; }

uint64_t SessionState::reopened() const {
  MutexLock lock(mutex_);
  return opened_links_ - 1;
}

}  // namespace gemmd::client

#include "core/session/session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/session/random.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

absl::Status SessionEnded() {
  return Error(absl::StatusCode::kAborted, "SESSION_ENDED", "the session ended");
}

}  // namespace

Session::Session(const SessionIdentity& identity, const Limits& limits,
                 std::shared_ptr<ThreadTracker> tracker)
    : id_(RandomId()),
      token_(RandomBytes(16)),
      identity_(identity),
      limits_(limits),
      opened_at_(absl::Now()),
      tracker_(std::move(tracker)),
      queued_(std::make_shared<std::atomic<int>>(0)) {}

Session::~Session() { End(); }

bool Session::ended() const {
  MutexLock lock(mutex_);
  return ended_;
}

bool Session::End() {
  std::map<uint64_t, PassedMemory> tickets;
  std::map<Device*, std::unique_ptr<Executor>> executors;
  {
    MutexLock lock(mutex_);
    if (std::exchange(ended_, true)) return false;
    tickets.swap(tickets_);
    executors.swap(executors_);
  }
  UncountTickets(tickets.size());
  for (auto& [device, executor] : executors) executor->Stop();
  return true;
}

bool Session::CountTicket() {
  if (limits_.tickets_in_use == nullptr) return true;
  if (limits_.tickets_in_use->fetch_add(1) < limits_.node_tickets) return true;
  UncountTickets(1);
  return false;
}

void Session::UncountTickets(size_t count) {
  if (limits_.tickets_in_use != nullptr) *limits_.tickets_in_use -= static_cast<int>(count);
}

absl::Status Session::BeginKeep() {
  MutexLock lock(mutex_);
  if (ended_) return SessionEnded();
  ever_kept_ = true;
  ++keepers_;
  return absl::OkStatus();
}

bool Session::EndKeep() {
  MutexLock lock(mutex_);
  return --keepers_ == 0;
}

bool Session::ever_kept() const {
  MutexLock lock(mutex_);
  return ever_kept_;
}

absl::StatusOr<uint64_t> Session::AddTicket(PassedMemory memory) {
  MutexLock lock(mutex_);
  if (ended_) return SessionEnded();
  if (static_cast<int>(tickets_.size()) >= limits_.tickets) {
    return Error(
        absl::StatusCode::kResourceExhausted, "QUOTA",
        absl::StrCat("the session passed ", tickets_.size(),
                     " descriptors that it did not register, the limit is ", limits_.tickets));
  }
  if (!CountTicket()) {
    return Error(absl::StatusCode::kResourceExhausted, "QUOTA",
                 absl::StrCat("the sessions of this node passed ", limits_.node_tickets,
                              " descriptors that they did not register, which is the limit"));
  }
  uint64_t ticket = RandomId();
  while (tickets_.count(ticket) != 0) ticket = RandomId();
  tickets_[ticket] = std::move(memory);
  return ticket;
}

absl::StatusOr<Session::PassedMemory> Session::TakeTicket(uint64_t ticket) {
  MutexLock lock(mutex_);
  if (ended_) return SessionEnded();
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) {
    return Error(absl::StatusCode::kNotFound, "TICKET_NOT_FOUND",
                 absl::StrCat("ticket ", ticket, " is not one of this session, or was used"));
  }
  PassedMemory memory = std::move(found->second);
  tickets_.erase(found);
  UncountTickets(1);
  return memory;
}

absl::Status Session::Submit(Device& device, std::shared_ptr<Job> job) {
  MutexLock lock(mutex_);
  if (ended_) return SessionEnded();
  std::unique_ptr<Executor>& executor = executors_[&device];
  if (executor == nullptr) {
    executor = std::make_unique<Executor>(device, queued_, limits_.queued, tracker_);
  }
  GEMMD_RETURN_IF_ERROR(executor->Submit(std::move(job)));
  ++requests_;
  return absl::OkStatus();
}

}  // namespace gemmd

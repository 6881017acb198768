#include "kernels/jit/flights.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace gemmd::jit {
namespace {

constexpr absl::Duration kCancelPoll = absl::Milliseconds(20);

}  // namespace

absl::Status Unwanted() { return absl::CancelledError("nobody waits for the kernel any more"); }

absl::StatusOr<Flights::Boarding> Flights::Board(const KernelSource& source,
                                                 const std::string& compiler,
                                                 const std::string& key, CompilePriority priority,
                                                 KernelAnswer answer) {
  Boarding boarding;
  MutexLock lock(mutex_);
  if (closed_) return absl::CancelledError("the kernel cache is closed");
  std::shared_ptr<Flight>& flight = flights_[key];
  boarding.starts = flight == nullptr;
  if (boarding.starts) {
    flight = std::make_shared<Flight>(source, compiler, key, priority);
  } else {
    ++shared_waits_;
    flight->priority_ = std::min(flight->priority_, priority);
    if (flight->ticket_ != 0) queue_.Raise(flight->ticket_, priority);
  }
  boarding.flight = flight;
  if (answer == nullptr) {
    ++flight->waiters_;
    return boarding;
  }
  boarding.wish = next_wish_++;
  flight->answers_[boarding.wish] = std::move(answer);
  wishes_[boarding.wish] = flight;
  return boarding;
}

CompilePriority Flights::PriorityOf(const Flight& flight) const {
  MutexLock lock(mutex_);
  return flight.priority_;
}

void Flights::Queued(Flight& flight, uint64_t ticket, CompilePriority priority) {
  MutexLock lock(mutex_);
  flight.ticket_ = ticket;
  if (flight.priority_ < priority) queue_.Raise(ticket, flight.priority_);
  DropIfUnwanted(flight);
}

// A deadline that passes leaves the work to go on: its kernel will be asked for again.
absl::StatusOr<SharedKernel> Flights::Await(Flight& flight, const CompileRequest& request) {
  // Times before 1970 are as good as "now", and safer to convert.
  const absl::Time deadline = std::max(request.deadline, absl::UnixEpoch());
  MutexLock lock(mutex_);
  while (!flight.done_) {
    if (request.cancelled && request.cancelled()) {
      --flight.waiters_;
      DropIfUnwanted(flight);
      return Unwanted();
    }
    if (absl::Now() >= deadline) {
      --flight.waiters_;
      flight.goes_on_ = true;
      return absl::DeadlineExceededError(absl::StrCat(flight.source.name_expression, " for ",
                                                      flight.source.architecture,
                                                      " is still compiling"));
    }
    const absl::Time until =
        request.cancelled ? std::min(deadline, absl::Now() + kCancelPoll) : deadline;
    changed_.WaitUntil(mutex_, until, [&flight] { return flight.done_; });
  }
  --flight.waiters_;
  if (request.origin != nullptr) *request.origin = flight.origin_;
  return flight.result_;
}

void Flights::Forget(uint64_t wish) {
  MutexLock lock(mutex_);
  const auto found = wishes_.find(wish);
  if (found == wishes_.end()) return;
  const std::shared_ptr<Flight> flight = std::move(found->second);
  wishes_.erase(found);
  flight->answers_.erase(wish);
  DropIfUnwanted(*flight);
}

// A flight without a ticket is asked again as soon as it has one.
void Flights::DropIfUnwanted(Flight& flight) {
  const bool wanted = flight.waiters_ > 0 || !flight.answers_.empty() || flight.goes_on_;
  if (flight.done_ || wanted || flight.ticket_ == 0) return;
  flight.unwanted = true;
  queue_.Cancel(flight.ticket_);
  ++cancelled_;
  TakeOut(flight, Unwanted());
}

void Flights::Settle(Flight& flight, const absl::StatusOr<SharedKernel>& result,
                     KernelOrigin origin) {
  std::map<uint64_t, KernelAnswer> answers;
  {
    MutexLock lock(mutex_);
    if (flight.done_) return;
    flight.origin_ = origin;
    answers = TakeOut(flight, result);
  }
  for (const auto& [wish, answer] : answers) answer(result);
}

// Ends the flight, and returns the answers that are due.
std::map<uint64_t, KernelAnswer> Flights::TakeOut(Flight& flight,
                                                  absl::StatusOr<SharedKernel> result) {
  flight.result_ = std::move(result);
  flight.done_ = true;
  std::map<uint64_t, KernelAnswer> answers = std::move(flight.answers_);
  flight.answers_.clear();
  for (const auto& [wish, answer] : answers) wishes_.erase(wish);
  flights_.erase(std::string(flight.key));
  changed_.NotifyAll();
  return answers;
}

void Flights::Close() {
  std::map<std::string, std::shared_ptr<Flight>> flights;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    flights = flights_;
    for (const auto& [key, flight] : flights) {
      flight->unwanted = true;
      queue_.Cancel(flight->ticket_);
    }
  }
  for (const auto& [key, flight] : flights) {
    Settle(*flight, absl::CancelledError("the kernel cache is closed"), KernelOrigin::kCompiled);
  }
}

void Flights::AddTo(CacheStats& stats) const {
  MutexLock lock(mutex_);
  stats.shared_waits += shared_waits_;
  stats.cancelled += cancelled_;
}

}  // namespace gemmd::jit

// What    One client process: its token, the descriptors it passed and the queues of its requests.
// States  OPEN -> ENDED. What a session owns elsewhere (regions, layers) the node gives back at its
//         end.
// Errors  Aborted SESSION_ENDED after End; ResourceExhausted QUOTA, QUEUE_FULL; NotFound
//         TICKET_NOT_FOUND.
// Threads Thread-safe; no lock is held while a job's completion or a device runs.
#ifndef GEMMD_CORE_SESSION_SESSION_H_
#define GEMMD_CORE_SESSION_SESSION_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/exec/executor.h"
#include "core/session/unique_fd.h"
#include "core/types.h"

namespace gemmd {

class Session {
 public:
  struct Limits {
    int queued = 0;
    int tickets = 0;       // of this session
    int node_tickets = 0;  // of all sessions that share the counter
    std::shared_ptr<std::atomic<int>> tickets_in_use = nullptr;  // none: only `tickets` counts
  };
  Session(const SessionIdentity& identity, const Limits& limits,
          std::shared_ptr<ThreadTracker> tracker);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  uint64_t id() const { return id_; }
  const std::string& token() const { return token_; }  // 16 secret bytes
  const SessionIdentity& identity() const { return identity_; }
  absl::Time opened_at() const { return opened_at_; }
  uint64_t requests() const { return requests_; }
  int queued() const { return queued_->load(); }
  bool ended() const;

  // True for the first call. Fails the waiting requests; the running ones finish.
  bool End();

  // Streams that keep the session alive. BeginKeep fails after End; EndKeep is true for the last
  // one.
  absl::Status BeginKeep();
  bool EndKeep();
  bool ever_kept() const;

  // Memory handed over by descriptor, waiting to be registered. A ticket is good for one Take.
  struct PassedMemory {
    UniqueFd fd;
    uint64_t size = 0;
  };
  absl::StatusOr<uint64_t> AddTicket(PassedMemory memory);
  absl::StatusOr<PassedMemory> TakeTicket(uint64_t ticket);

  // Queues the job for the device. On an error the job is untouched.
  absl::Status Submit(Device& device, std::shared_ptr<Job> job);

 private:
  bool CountTicket();
  void UncountTickets(size_t count);

  const uint64_t id_;
  const std::string token_;
  const SessionIdentity identity_;
  const Limits limits_;
  const absl::Time opened_at_;
  const std::shared_ptr<ThreadTracker> tracker_;
  const std::shared_ptr<std::atomic<int>> queued_;
  std::atomic<uint64_t> requests_{0};

  mutable Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool ever_kept_ ABSL_GUARDED_BY(mutex_) = false;
  int keepers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, PassedMemory> tickets_ ABSL_GUARDED_BY(mutex_);
  std::map<Device*, std::unique_ptr<Executor>> executors_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd

#endif  // GEMMD_CORE_SESSION_SESSION_H_

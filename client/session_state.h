// What    What Session, Region, Layer and Submitter share: the current link, and the resources to
//         bring back after the daemon restarted. Internal to the library.
// Life    Regions and layers hold it, so the session ends after the last of them.
// Order   A resource is bound to one link at a time. Acquire() opens a new link when the old one is
//         lost and binds every live resource to it in order of creation; a use binds what is still
//         unbound.
// Threads Thread-safe. Locks, outermost first: reopen_mutex_, Resource::mutex_, mutex_.
#ifndef GEMMD_CLIENT_SESSION_STATE_H_
#define GEMMD_CLIENT_SESSION_STATE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/link.h"
#include "client/retry.h"
#include "kernels/base/mutex.h"

namespace gemmd::client {

struct SessionOptions {
  std::string address;                                    // empty: client/address.h
  std::string name = "gemmd-client";                      // label for operators
  absl::Duration connect_timeout = absl::ZeroDuration();  // of Open; 0 = one attempt
  absl::Duration attempt_timeout = absl::Seconds(5);      // of one attempt
  absl::Duration reconnect_timeout =
      absl::Seconds(10);                            // how long a call waits for a restarted daemon
  absl::Duration call_timeout = absl::Seconds(30);  // of calls that name no deadline
  absl::Duration load_timeout = absl::Minutes(30);  // of layer registrations
  RetryPolicy retry;
  bool use_session_socket = true;
  // Called when a call found the daemon gone and waits for another one; on the thread of that call, which
  // holds a lock: it must not use the session.
  std::function<void()> on_reconnect = nullptr;
};

// Something the daemon holds for this session and that must exist again after a restart.
class Resource {
 public:
  virtual ~Resource() = default;

  // Makes the resource exist on `link`; immediately OK when it does. A failure is remembered for
  // the link when it is final, so that a use does not repeat a hopeless registration.
  absl::Status Bind(Link& link, absl::Time deadline);

  // Unregisters from the link it is bound to, once. After the return the daemon does not use the
  // memory.
  void Close();
  bool closed() const;

 protected:
  virtual absl::Status Register(Link& link, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  virtual void Unregister(Link& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;

  mutable Mutex mutex_;

 private:
  friend class SessionState;
  uint64_t order_ = 0;  // among the session's resources; SessionState::mutex_ guards it
  uint64_t bound_serial_ ABSL_GUARDED_BY(mutex_) = 0;
  std::weak_ptr<Link> bound_link_ ABSL_GUARDED_BY(mutex_);
  uint64_t failed_serial_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// Layers of one link are counted by id: registering the same content twice gives one id and one
// reference of the session, which must go with the last user only.
class LayerUses {
 public:
  void BeginRegister(uint64_t serial);
  // Adds a user of `id`. Returns ids whose release had to wait for registrations in flight.
  std::set<uint64_t> EndRegister(uint64_t serial, uint64_t id);
  // Returns whether the caller must release `id` now.
  bool Drop(uint64_t serial, uint64_t id);
  // Those of `ids` that have no user; none while a registration is in flight, which may have got one of them.
  std::set<uint64_t> Unused(uint64_t serial, const std::set<uint64_t>& ids);

 private:
  struct PerLink {
    int registering = 0;
    std::map<uint64_t, int> users;
    std::set<uint64_t> waiting;
  };
  std::set<uint64_t> TakeWaiting(PerLink& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  uint64_t serial_ ABSL_GUARDED_BY(mutex_) = 0;  // counts of older links are void
  PerLink link_ ABSL_GUARDED_BY(mutex_);
};

class SessionState {
 public:
  static absl::StatusOr<std::shared_ptr<SessionState>> Open(const SessionOptions& options);

  const SessionOptions& options() const { return options_; }
  const std::shared_ptr<LayerUses>& layer_uses() const { return layer_uses_; }

  // Whether the session is open now; a call may open it anew.
  bool connected() const;

  // The live link; opens one, until the earlier of `deadline` and the reconnect timeout.
  absl::StatusOr<std::shared_ptr<Link>> Acquire(absl::Time deadline);

  // Notes that a call on `link` failed: the link is given up when the failure says that it is dead.
  void Note(Link& link, const absl::Status& failure);

  // Runs `attempt` on the live link. It is repeated when the session was unknown (it did not run
  // then), and with pauses on Unavailable KERNEL_COMPILING (nor did it) and, with `idempotent`, on every Unavailable.
  using Attempt = absl::FunctionRef<absl::Status(Link& link)>;
  absl::Status Run(absl::Time deadline, bool idempotent, Attempt attempt);

  // Registers `resource` and keeps it registered until Remove.
  absl::Status Add(const std::shared_ptr<Resource>& resource, absl::Time deadline);
  void Remove(const std::shared_ptr<Resource>& resource);

  absl::Time DefaultDeadline() const;
  uint64_t reopened() const;

 private:
  explicit SessionState(SessionOptions options) : options_(std::move(options)) {}
  std::shared_ptr<Link> Current() const;
  absl::StatusOr<std::shared_ptr<Link>> OpenLink(absl::Time deadline);
  void BindAll(Link& link, absl::Time deadline);

  const SessionOptions options_;
  const std::shared_ptr<LayerUses> layer_uses_ = std::make_shared<LayerUses>();
  Mutex reopen_mutex_;  // one thread opens a link
  mutable Mutex mutex_;
  std::shared_ptr<Link> link_ ABSL_GUARDED_BY(mutex_);
  uint64_t opened_links_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::shared_ptr<Resource>> resources_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_resource_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_SESSION_STATE_H_

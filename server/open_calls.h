// What    The open calls whose answers come from the node. Before connections close, a drain ends the
//         streams among them and waits until all answers are written.
// Why     A connection that closes on an answer leaves its client UNAVAILABLE without a reason.
// Threads Thread-safe.
#ifndef GEMMD_SERVER_OPEN_CALLS_H_
#define GEMMD_SERVER_OPEN_CALLS_H_

#include <set>

#include "absl/time/time.h"
#include "kernels/base/mutex.h"

namespace gemmd {

class OpenCalls {
 public:
  // A call that goes on until its client ends it.
  class Stream {
   public:
    virtual ~Stream() = default;
    // Reads nothing more, answers what it has read, then finishes with Unavailable DRAINING. Called
    // at most once, and not after Remove.
    virtual void End() = 0;
  };

  // Counts one call as long as it lives: a member of the call's reactor, which dies when gRPC is
  // done with the call.
  class Lease {
   public:
    explicit Lease(OpenCalls* calls);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

   private:
    OpenCalls* const calls_;
  };

  // A stream that is added after FinishAll ends at once.
  void Add(Stream* stream);
  void Remove(Stream* stream);

  // Ends all streams. Returns when no call is open, or at `deadline`; whether none is.
  bool FinishAll(absl::Time deadline);

 private:
  Mutex mutex_;
  CondVar changed_;
  int leases_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<Stream*> streams_ ABSL_GUARDED_BY(mutex_);
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_OPEN_CALLS_H_

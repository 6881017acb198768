// What    Pipelined requests on one stream: executed in order of submission, answered in that
//         order.
// Ends    Every submitted request gets exactly one Answer. When the stream breaks, requests without
//         an answer get Unavailable CONNECTION_LOST; the next Submit opens a new stream, after a
//         restart of the daemon in a session opened anew.
// Errors  Submit: what stops a request from being sent; it gets no Answer then.
// Threads Submit from one thread at a time, Next from one thread at a time, both at once.
//         Destruction cancels what is not answered yet.
#ifndef GEMMD_CLIENT_SUBMITTER_H_
#define GEMMD_CLIENT_SUBMITTER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/session.h"
#include "kernels/base/mutex.h"

namespace gemmd::client {

struct Answer {
  uint64_t tag = 0;
  absl::Status status;
  std::optional<v1::GemmResponse> gemm;
  std::optional<v1::MoeResponse> moe;
};

class Submitter {
 public:
  // At most `max_in_flight` requests are unanswered; the daemon queues 256 per session by default.
  explicit Submitter(const Session& session, int max_in_flight = 64);
  ~Submitter();
  Submitter(const Submitter&) = delete;
  Submitter& operator=(const Submitter&) = delete;

  // Returns when the request is on its way; waits while too many are in flight.
  absl::Status Submit(uint64_t tag, const Gemm& gemm);
  absl::Status Submit(uint64_t tag, const Moe& moe);

  // The next answer in order. FailedPrecondition NOTHING_SUBMITTED when none is outstanding,
  // DeadlineExceeded when none came until `deadline` (it still comes later).
  absl::StatusOr<Answer> Next(absl::Time deadline = absl::InfiniteFuture());

 private:
  struct Stream;  // one gRPC stream and the thread that reads it

  template <typename Fill>
  absl::Status Send(uint64_t tag, Fill fill);
  absl::StatusOr<Stream*> OpenStream(absl::Time deadline);
  absl::Status WaitForRoom(absl::Time deadline);
  void Read(Stream* stream);
  void Deliver(const v1::SubmitResponse& response);
  void FailOutstanding(const absl::Status& status);

  const std::shared_ptr<SessionState> session_;
  const size_t max_in_flight_;
  std::unique_ptr<Stream> stream_;  // used by Submit only
  Mutex mutex_;
  CondVar changed_;
  std::deque<uint64_t> in_flight_ ABSL_GUARDED_BY(mutex_);  // tags, oldest first
  std::deque<Answer> answers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_SUBMITTER_H_

// What    A streamed answer whose messages all arrive, in order: a producer that is faster than its
//         reader waits. For long answers of admin calls, made by a worker thread.
// Threads Push and Complete on one thread at a time, a worker's, the reactions on gRPC's. Complete comes once and
//         last; the stream finishes after it and then deletes itself.
#ifndef GEMMD_SERVER_QUEUED_STREAM_H_
#define GEMMD_SERVER_QUEUED_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <deque>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "server/status.h"

namespace gemmd {

template <typename Message>
class QueuedStream : public grpc::ServerWriteReactor<Message> {
 public:
  // False: the client has gone, and the message with it.
  bool Push(Message message) {
    {
      MutexLock lock(mutex_);
      changed_.Wait(mutex_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return cancelled_ || queue_.size() < kMostQueued;
      });
      if (cancelled_) return false;
      queue_.push_back(std::move(message));
    }
    Step();
    return true;
  }
  void Complete(const absl::Status& status) { Step(status); }
  bool cancelled() const {
    MutexLock lock(mutex_);
    return cancelled_;
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      busy_ = false;
      if (!ok) cancelled_ = true;
      changed_.NotifyAll();
    }
    Step();
  }
  void OnCancel() override {
    MutexLock lock(mutex_);
    cancelled_ = true;
    changed_.NotifyAll();
  }
  void OnDone() override { delete this; }

 private:
  static constexpr size_t kMostQueued = 16;

  // At most one operation is in flight. `completed` is recorded under the same lock that claims the next
  // operation: once it is visible, a reaction may finish and delete the stream.
  void Step(std::optional<absl::Status> completed = std::nullopt) {
    std::optional<absl::Status> result;
    {
      MutexLock lock(mutex_);
      if (completed.has_value()) result_ = std::move(completed);
      if (cancelled_) queue_.clear();
      if (busy_ || (queue_.empty() && !result_.has_value())) return;
      busy_ = true;
      if (queue_.empty()) {
        result.swap(result_);
      } else {
        message_ = std::move(queue_.front());
        queue_.pop_front();
      }
    }
    if (result.has_value()) {
      this->Finish(ToGrpcStatus(*result));
    } else {
      this->StartWrite(&message_);
    }
  }

  Message message_;  // being written
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Message> queue_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> result_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_QUEUED_STREAM_H_

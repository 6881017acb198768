#include "server/keep_streams.h"

#include <deque>
#include <utility>

#include "core/activity.h"
#include "server/convert.h"
#include "server/logging.h"
#include "server/status.h"

namespace gemmd {

namespace {

v1::SessionEvent EventOf(v1::SessionEvent::Kind kind) {
  v1::SessionEvent event;
  event.set_kind(kind);
  return event;
}

}  // namespace

// One stream. Its reads carry nothing; the end of them is the end of the session. Owns itself until OnDone.
class KeepStream : public KeepStreams::Reactor {
 public:
  KeepStream(KeepStreams* owner, std::shared_ptr<Session> session)
      : owner_(owner), session_(std::move(session)) {}

  void Start() {
    Send(EventOf(v1::SessionEvent::KIND_OPEN));
    StartRead(&request_);
  }

  void Send(v1::SessionEvent event) {
    {
      MutexLock lock(mutex_);
      events_.push_back(std::move(event));
    }
    Step();
  }

  // Ends the stream once its events are written.
  void End(grpc::Status status) {
    {
      MutexLock lock(mutex_);
      if (ending_) return;
      ending_ = true;
      final_ = std::move(status);
    }
    Step();
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      StartRead(&request_);
    } else {
      End(grpc::Status::OK);
    }
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) events_.clear();
    }
    Step();
  }

  void OnDone() override {
    owner_->Remove(this);
    LogInfo("session stream ended", {{"session", owner_->node_->IdOf(*session_)}});
    owner_->node_->EndKeep(session_);
    delete this;
  }

 private:
  // Starts the next operation, if any. Finish comes last and once, so nothing starts after it.
  void Step() {
    bool finish = false;
    grpc::Status status;
    {
      MutexLock lock(mutex_);
      if (writing_ || finished_) return;
      if (!events_.empty()) {
        event_ = std::move(events_.front());
        events_.pop_front();
        writing_ = true;
      } else if (ending_) {
        finish = finished_ = true;
        status = final_;
      } else {
        return;
      }
    }
    if (finish) {
      Finish(std::move(status));
    } else {
      StartWrite(&event_);
    }
  }

  KeepStreams* const owner_;
  const std::shared_ptr<Session> session_;
  v1::KeepSessionRequest request_;
  v1::SessionEvent event_;
  Mutex mutex_;
  std::deque<v1::SessionEvent> events_ ABSL_GUARDED_BY(mutex_);
  grpc::Status final_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

namespace {

class FailedStream : public KeepStreams::Reactor {
 public:
  explicit FailedStream(const absl::Status& status) { Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

grpc::Status LastAnswer() { return ToGrpcStatus(Draining()); }

}  // namespace

KeepStreams::Reactor* KeepStreams::Open(absl::StatusOr<std::shared_ptr<Session>> session) {
  if (!session.ok()) return new FailedStream(session.status());
  if (const absl::Status kept = node_->BeginKeep(**session); !kept.ok())
    return new FailedStream(kept);
  auto* stream = new KeepStream(this, *std::move(session));
  MutexLock lock(mutex_);
  streams_.insert(stream);
  stream->Start();
  if (draining_) stream->Send(EventOf(v1::SessionEvent::KIND_DRAINING));
  if (finishing_) stream->End(LastAnswer());
  return stream;
}

void KeepStreams::NotifyDraining() {
  MutexLock lock(mutex_);
  draining_ = true;
  SendToAll(EventOf(v1::SessionEvent::KIND_DRAINING));
}

void KeepStreams::NotifyNumerics(const std::string& device,
                                 const std::vector<KernelNumerics>& numerics) {
  v1::SessionEvent event = EventOf(v1::SessionEvent::KIND_NUMERICS);
  event.set_device(device);
  for (const KernelNumerics& kernel : numerics) *event.add_numerics() = ToProto(kernel);
  MutexLock lock(mutex_);
  SendToAll(event);
}

void KeepStreams::SendToAll(const v1::SessionEvent& event) {
  for (KeepStream* stream : streams_) stream->Send(event);
}

void KeepStreams::FinishAll(absl::Time deadline) {
  MutexLock lock(mutex_);
  finishing_ = true;
  for (KeepStream* stream : streams_) stream->End(LastAnswer());
  changed_.WaitUntil(mutex_, deadline, [this] { return streams_.empty(); });
}

void KeepStreams::Remove(KeepStream* stream) {
  MutexLock lock(mutex_);
  streams_.erase(stream);
  if (streams_.empty()) changed_.NotifyAll();
}

}  // namespace gemmd

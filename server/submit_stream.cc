#include "server/submit_stream.h"

#include <deque>
#include <utility>

#include "absl/time/clock.h"
#include "core/activity.h"
#include "kernels/base/mutex.h"
#include "server/convert.h"
#include "server/convert_errors.h"
#include "server/failure_log.h"
#include "server/status.h"

namespace gemmd {
namespace {

using Reactor = grpc::ServerBidiReactor<v1::SubmitRequest, v1::SubmitResponse>;

class FailedSubmit : public Reactor {
 public:
  explicit FailedSubmit(const absl::Status& status) { Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

void LogFailure(const absl::Status& status, absl::Duration took) {
  static FailureLog log("request failed", 5);
  log.Write({"Submit", status.code(), WireReason(status), std::string(status.message()), took});
}

class SubmitStream : public Reactor, public OpenCalls::Stream {
 public:
  SubmitStream(const ServiceContext* context, std::shared_ptr<Session> session, absl::Time deadline)
      : context_(*context),
        session_(std::move(session)),
        deadline_(deadline),
        lease_(context->open_calls) {}

  void Start() {
    Step();
    context_.open_calls->Add(this);
  }

  void End() override {
    {
      MutexLock lock(mutex_);
      ending_ = true;
    }
    Step();
  }

  void OnReadDone(bool ok) override {
    if (ok) Dispatch();
    {
      MutexLock lock(mutex_);
      reading_ = false;
      if (!ok) reads_done_ = true;
    }
    Step();
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) broken_ = true;
      slots_.pop_front();
    }
    Step();
  }

  void OnCancel() override { *cancelled_ = true; }
  void OnDone() override {
    context_.open_calls->Remove(this);
    delete this;
  }

 private:
  // One request, from its arrival until its answer is written.
  struct Slot {
    v1::SubmitResponse response;
    absl::Time arrived = absl::Now();
    bool answered = false;
  };

  // Queues the request just read, unless the stream has finished meanwhile. Its answer may come before
  // this returns.
  void Dispatch() {
    Slot* slot = nullptr;
    {
      MutexLock lock(mutex_);
      if (finished_) return;
      slots_.push_back(std::make_unique<Slot>());
      slot = slots_.back().get();
    }
    slot->response.set_tag(request_.tag());
    switch (request_.request_case()) {
      case v1::SubmitRequest::kGemm:
        return SubmitGemm(slot);
      case v1::SubmitRequest::kMoe:
        return SubmitMoe(slot);
      case v1::SubmitRequest::REQUEST_NOT_SET:
        break;
    }
    Answer(slot, context_.Refuse(MissingField("request (gemm or moe)")));
  }

  void SubmitGemm(Slot* slot) {
    const absl::StatusOr<GemmRequest> request = FromProto(request_.gemm());
    if (!request.ok()) return Answer(slot, context_.Refuse(request.status()));
    context_.node->SubmitGemm(session_, *request, deadline_, IsSet(cancelled_),
                              [this, slot](absl::StatusOr<GemmResult> result) {
                                if (result.ok()) *slot->response.mutable_gemm() = ToProto(*result);
                                Answer(slot, result.status());
                              });
  }

  void SubmitMoe(Slot* slot) {
    const absl::StatusOr<MoeRequest> request = FromProto(request_.moe());
    if (!request.ok()) return Answer(slot, context_.Refuse(request.status()));
    context_.node->SubmitMoe(session_, *request, deadline_, IsSet(cancelled_),
                             [this, slot](absl::StatusOr<MoeResult> result) {
                               if (result.ok()) *slot->response.mutable_moe() = ToProto(*result);
                               Answer(slot, result.status());
                             });
  }

  void Answer(Slot* slot, const absl::Status& status) {
    if (!status.ok()) {
      slot->response.set_code(static_cast<int>(status.code()));
      slot->response.set_reason(WireReason(status));
      slot->response.set_message(std::string(status.message()));
      LogFailure(status, absl::Now() - slot->arrived);
    }
    Step(slot);
  }

  // Starts what can start, after marking `answered`. Each operation is claimed under the lock and begun
  // outside it; Finish is the last: nothing else is in flight then, or a read whose request is dropped. A
  // caller that is no reaction must not touch `this` afterwards: the stream may be gone. So it claims no
  // read either, which Finish would not wait for.
  void Step(Slot* answered = nullptr) {
    bool read = false, finish = false;
    grpc::Status status;
    const v1::SubmitResponse* write = nullptr;
    {
      MutexLock lock(mutex_);
      if (answered != nullptr) answered->answered = true;
      while (broken_ && !writing_ && !slots_.empty() && slots_.front()->answered)
        slots_.pop_front();
      if (!broken_ && !writing_ && !slots_.empty() && slots_.front()->answered) {
        writing_ = true;
        write = &slots_.front()->response;
      }
      const bool reads_on = !reads_done_ && !ending_ && !broken_;
      const bool may_read = reads_on && !reading_ && slots_.size() < kMaxInFlight;
      if (may_read && answered == nullptr) reading_ = read = true;
      if (!reads_on && !writing_ && slots_.empty() && !finished_) {
        finished_ = finish = true;
        status = FinalStatus();
      }
    }
    if (write != nullptr) StartWrite(write);
    if (read) StartRead(&request_);
    if (finish) Finish(status);
  }

  // OK for a client that closed its side before the drain did.
  grpc::Status FinalStatus() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (*cancelled_ || broken_) return grpc::Status::CANCELLED;
    return reads_done_ ? grpc::Status::OK : ToGrpcStatus(Draining());
  }

  const ServiceContext& context_;
  const std::shared_ptr<Session> session_;
  const absl::Time deadline_;
  const OpenCalls::Lease lease_;
  const CancelFlag cancelled_ = MakeCancelFlag();
  v1::SubmitRequest request_;  // touched by the read in flight, then by Dispatch
  Mutex mutex_;
  std::deque<std::unique_ptr<Slot>> slots_ ABSL_GUARDED_BY(mutex_);  // in order of arrival
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool reads_done_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;  // the client no longer takes answers
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;  // the daemon reads no more requests
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

Reactor* NewSubmitStream(const ServiceContext* context,
                         absl::StatusOr<std::shared_ptr<Session>> session, absl::Time deadline) {
  if (!session.ok()) return new FailedSubmit(session.status());
  auto* stream = new SubmitStream(context, *std::move(session), deadline);
  stream->Start();
  return stream;
}

}  // namespace gemmd

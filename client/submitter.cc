#include "client/submitter.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/rpc_status.h"
#include "kernels/base/status.h"

namespace gemmd::client {

struct Submitter::Stream {
  std::shared_ptr<Link> link;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SubmitRequest, v1::SubmitResponse>> rpc;
  std::thread reader;
  std::atomic<bool> ended{false};
  std::atomic<bool> given_up{false};  // by us: its end says nothing of the daemon

  ~Stream() {
    given_up = true;
    context.TryCancel();
    if (reader.joinable()) reader.join();
  }
};

Submitter::Submitter(const Session& session, int max_in_flight)
    : session_(session.state()), max_in_flight_(static_cast<size_t>(std::max(1, max_in_flight))) {}

Submitter::~Submitter() {
  // In a child of fork() the reader thread does not exist.
  if (stream_ != nullptr && stream_->link->channel().forked()) stream_.release();
  stream_ = nullptr;  // its reader uses the other members until it is joined
}

absl::StatusOr<Submitter::Stream*> Submitter::OpenStream(absl::Time deadline) {
  GEMMD_ASSIGN_OR_RETURN(auto link, session_->Acquire(deadline));
  if (stream_ != nullptr && !stream_->ended && stream_->link == link) return stream_.get();
  stream_ = nullptr;  // joins its reader: everything outstanding is answered
  auto stream = std::make_unique<Stream>();
  stream->link = std::move(link);
  stream->link->Prepare(stream->context, absl::InfiniteFuture());
  stream->rpc = stream->link->stubs().gemm->Submit(&stream->context);
  stream->reader = std::thread([this, raw = stream.get()] { Read(raw); });
  stream_ = std::move(stream);
  return stream_.get();
}

void Submitter::Read(Stream* stream) {
  v1::SubmitResponse response;
  while (stream->rpc->Read(&response)) Deliver(response);
  absl::Status status = FromGrpc(stream->rpc->Finish(), "Submit");
  if (!stream->given_up) session_->Note(*stream->link, status);
  if (status.ok()) {
    status =
        Error(absl::StatusCode::kUnavailable, "CONNECTION_LOST", "the stream of requests ended");
  }
  stream->ended = true;
  FailOutstanding(status);
}

void Submitter::Deliver(const v1::SubmitResponse& response) {
  Answer answer;
  answer.tag = response.tag();
  if (response.code() != 0) {
    answer.status = Error(static_cast<absl::StatusCode>(response.code()), response.reason(),
                          response.message());
  }
  if (response.has_gemm()) answer.gemm = response.gemm();
  if (response.has_moe()) answer.moe = response.moe();
  MutexLock lock(mutex_);
  if (!in_flight_.empty()) in_flight_.pop_front();
  answers_.push_back(std::move(answer));
  changed_.NotifyAll();
}

void Submitter::FailOutstanding(const absl::Status& status) {
  MutexLock lock(mutex_);
  for (uint64_t tag : in_flight_) answers_.push_back(Answer{.tag = tag, .status = status});
  in_flight_.clear();
  changed_.NotifyAll();
}

absl::Status Submitter::WaitForRoom(absl::Time deadline) {
  MutexLock lock(mutex_);
  const bool room = changed_.WaitUntil(mutex_, deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return in_flight_.size() < max_in_flight_;
  });
  if (room) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat(max_in_flight_, " requests stayed without an answer"));
}

template <typename Fill>
absl::Status Submitter::Send(uint64_t tag, Fill fill) {
  const absl::Time deadline = session_->DefaultDeadline();
  GEMMD_RETURN_IF_ERROR(WaitForRoom(deadline));
  GEMMD_ASSIGN_OR_RETURN(Stream * stream, OpenStream(deadline));
  v1::SubmitRequest request;
  request.set_tag(tag);
  GEMMD_RETURN_IF_ERROR(fill(request, *stream->link, deadline));
  {
    // Before the write, so that the answer finds its tag.
    MutexLock lock(mutex_);
    if (!stream->ended) in_flight_.push_back(tag);
    if (stream->ended) {
      return Error(absl::StatusCode::kUnavailable, "CONNECTION_LOST",
                   "the stream of requests ended");
    }
  }
  // A failed write ends the stream, and the reader answers this request with the cause.
  stream->rpc->Write(request);
  return absl::OkStatus();
}

absl::Status Submitter::Submit(uint64_t tag, const Gemm& gemm) {
  return Send(tag,
              [&](v1::SubmitRequest& request, Link& link, absl::Time deadline) -> absl::Status {
                GEMMD_ASSIGN_OR_RETURN(*request.mutable_gemm(), ToProto(gemm, link, deadline));
                return absl::OkStatus();
              });
}

absl::Status Submitter::Submit(uint64_t tag, const Moe& moe) {
  return Send(tag,
              [&](v1::SubmitRequest& request, Link& link, absl::Time deadline) -> absl::Status {
                GEMMD_ASSIGN_OR_RETURN(*request.mutable_moe(), ToProto(moe, link, deadline));
                return absl::OkStatus();
              });
}

absl::StatusOr<Answer> Submitter::Next(absl::Time deadline) {
  MutexLock lock(mutex_);
  if (answers_.empty() && in_flight_.empty()) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOTHING_SUBMITTED",
                 "no request is outstanding");
  }
  const bool came = changed_.WaitUntil(
      mutex_, deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !answers_.empty(); });
  if (!came) return absl::DeadlineExceededError("no answer came in time");
  Answer answer = std::move(answers_.front());
  answers_.pop_front();
  return answer;
}

}  // namespace gemmd::client

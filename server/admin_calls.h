// What    Admin calls whose work waits for a worker thread: refused at once, or queued. What they answer is a
//         stream of progress, chunks of bytes, or one message.
// Errors  `allowed`, when it is not OK; ResourceExhausted QUEUE_FULL; StartJob: Unavailable DRAINING, then
//         what is wrong with the job.
// Threads Any; the work runs on the worker's thread.
#ifndef GEMMD_SERVER_ADMIN_CALLS_H_
#define GEMMD_SERVER_ADMIN_CALLS_H_

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/activity.h"
#include "gemmd/v1/admin.pb.h"
#include "server/admin_worker.h"
#include "server/queued_stream.h"
#include "server/service_context.h"

namespace gemmd {

using ChunkStream = QueuedStream<v1::CacheChunk>;

// Pushes `bytes` in chunks of 1 MiB.
absl::Status SendChunks(const std::string& bytes, ChunkStream& stream);

// Answers with what `work` returns.
grpc::ServerUnaryReactor* DeferCall(const ServiceContext& context, AdminWorker& worker,
                                    const absl::Status& allowed,
                                    std::function<absl::Status()> work);

// For the log: "OK", or the message.
std::string OutcomeText(const absl::Status& status);

// Queues run(job, stream), which logs how it ended. `waiting`, if any: what the client hears at once when so many jobs
// go before its own.
template <typename Progress, typename Job, typename Run>
grpc::ServerWriteReactor<Progress>* StartJob(const ServiceContext& context, AdminWorker& worker,
                                             const absl::Status& allowed, absl::StatusOr<Job> job, Run run,
                                             Progress (*waiting)(size_t ahead) = nullptr) {
  auto* stream = new QueuedStream<Progress>;
  if (!allowed.ok()) {
    stream->Complete(allowed);
    return stream;
  }
  if (context.node->Status().draining) {
    stream->Complete(context.Refuse(Draining()));
    return stream;
  }
  if (!job.ok()) {
    stream->Complete(context.Refuse(job.status()));
    return stream;
  }
  const auto work = [stream, run, job = *std::move(job), &worker] {
    const absl::Status status = run(job, *stream);
    worker.OnlyAnswers();
    stream->Complete(status);
  };
  const absl::Status added = worker.Add(work, [stream, waiting](size_t ahead) {
    if (waiting != nullptr) (void)stream->Push(waiting(ahead));
  });
  if (!added.ok()) stream->Complete(context.Refuse(added));
  return stream;
}

}  // namespace gemmd

#endif  // GEMMD_SERVER_ADMIN_CALLS_H_

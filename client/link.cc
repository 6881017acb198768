#include "client/link.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/rpc_status.h"
#include "kernels/base/status.h"

namespace gemmd::client {
namespace {

constexpr char kTokenKey[] = "gemmd-session-bin";

// The path the daemon names, or the file of that name beside its gRPC socket: in a container the
// folder may be mounted elsewhere.
std::string SessionSocketPath(const Address& address, const std::string& announced) {
  if (announced.empty() || address.path.empty()) return "";
  std::error_code ignored;
  if (std::filesystem::exists(announced, ignored)) return announced;
  const std::filesystem::path beside = std::filesystem::path(address.path).parent_path() /
                                       std::filesystem::path(announced).filename();
  return beside.string();
}

}  // namespace

struct Link::Keeper {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::KeepSessionRequest, v1::SessionEvent>> stream;
  std::thread thread;
  Mutex mutex;
  CondVar changed;
  bool opened ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
  absl::Status status ABSL_GUARDED_BY(mutex);

  void Read() {
    v1::SessionEvent event;
    while (stream->Read(&event)) {
      MutexLock lock(mutex);
      opened = true;
      changed.NotifyAll();
    }
    const absl::Status finished = FromGrpc(stream->Finish(), "KeepSession");
    MutexLock lock(mutex);
    ended = true;
    status = finished;
    changed.NotifyAll();
  }
};

Link::Link(Address address, uint64_t serial) : channel_(std::move(address)), serial_(serial) {}

absl::StatusOr<std::shared_ptr<Link>> Link::Open(const LinkOptions& options, absl::Time deadline) {
  GEMMD_ASSIGN_OR_RETURN(Address address, ResolveAddress(options.address));
  return Open(std::move(address), options, deadline);
}

absl::StatusOr<std::shared_ptr<Link>> Link::Open(Address address, const LinkOptions& options,
                                                 absl::Time deadline) {
  // A later link has a larger serial: links of one session are opened one after the other.
  const auto ticks = std::chrono::steady_clock::now().time_since_epoch().count();
  auto link = std::shared_ptr<Link>(new Link(std::move(address), static_cast<uint64_t>(ticks)));
  GEMMD_ASSIGN_OR_RETURN(link->hello_, Hello(link->channel_, deadline));
  absl::Status opened = link->OpenBySocket(options, deadline);
  if (ReasonOf(opened) == "NOT_RUNNING") opened = link->OpenByRpc(options, deadline);
  if (!opened.ok()) return link->channel_.Explain(opened);
  return link;
}

absl::Status Link::OpenBySocket(const LinkOptions& options, absl::Time deadline) {
  const std::string path = SessionSocketPath(channel_.address(), hello_.session_socket());
  if (path.empty() || !options.use_session_socket) {
    return Error(absl::StatusCode::kUnavailable, "NOT_RUNNING", "there is no session socket");
  }
  GEMMD_ASSIGN_OR_RETURN(auto socket, SessionSocket::Connect(path));
  GEMMD_ASSIGN_OR_RETURN(opened_, socket->Open(options.name, deadline));
  socket_ = std::move(socket);
  return absl::OkStatus();
}

absl::Status Link::OpenByRpc(const LinkOptions& options, absl::Time deadline) {
  grpc::ClientContext context;
  SetDeadline(context, deadline);
  v1::OpenSessionRequest request;
  request.set_name(options.name);
  GEMMD_RETURN_IF_ERROR(FromGrpc(stubs().sessions->OpenSession(&context, request, &opened_), "OpenSession"));
  keeper_ = std::make_unique<Keeper>();
  Prepare(keeper_->context, absl::InfiniteFuture());
  keeper_->stream = stubs().sessions->KeepSession(&keeper_->context);
  keeper_->thread = std::thread([keeper = keeper_.get()] { keeper->Read(); });
  MutexLock lock(keeper_->mutex);
  keeper_->changed.WaitUntil(keeper_->mutex, deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return keeper_->opened || keeper_->ended;
  });
  if (keeper_->ended) return Annotate(keeper_->status, "KeepSession");
  return keeper_->opened ? absl::OkStatus()
                         : absl::DeadlineExceededError("KeepSession sent no first event in time");
}

void Link::Prepare(grpc::ClientContext& context, absl::Time deadline) const {
  SetDeadline(context, deadline);
  context.AddMetadata(kTokenKey, opened_.token());
}

bool Link::alive() const {
  if (lost_) return false;
  if (socket_ != nullptr) return socket_->alive();
  if (keeper_ == nullptr) return false;
  MutexLock lock(keeper_->mutex);
  return !keeper_->ended;
}

absl::StatusOr<uint64_t> Link::PassMemory(int fd, uint64_t bytes, absl::Time deadline) {
  if (socket_ == nullptr) {
    return Error(
        absl::StatusCode::kFailedPrecondition, "NO_SESSION_SOCKET",
        "memory can be passed over the session socket only, and this session has none; use a "
        "daemon-owned region");
  }
  return socket_->PassMemory(fd, bytes, deadline);
}

void Link::Close() {
  if (alive()) {
    grpc::ClientContext context;
    Prepare(context, absl::Now() + absl::Seconds(2));
    v1::CloseSessionResponse response;
    stubs().sessions->CloseSession(&context, v1::CloseSessionRequest(), &response).IgnoreError();
  }
  if (keeper_ != nullptr) keeper_->context.TryCancel();
  if (keeper_ != nullptr && keeper_->thread.joinable()) keeper_->thread.join();
}

Link::~Link() {
  if (channel_.forked()) {
    keeper_.release();  // its thread exists in the parent only
    return;
  }
  Close();
}

}  // namespace gemmd::client

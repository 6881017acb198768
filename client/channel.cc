#include "client/channel.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/rpc_status.h"
#include "kernels/base/status.h"

namespace gemmd::client {
namespace {

constexpr char kVersion[] = "0.1.0";

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  // A daemon that was restarted is found quickly, and not with the pauses of another channel.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  // How long one attempt may take, too: a daemon that pauses is not one that is gone.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // The daemon closes connections that ping more often than every 10 seconds.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(64 << 20);
  arguments.SetMaxSendMessageSize(64 << 20);
  return arguments;
}

// What the system says to a connection, which gRPC does not pass on; 0: it takes it.
int ConnectError(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return ENAMETOOLONG;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  const bool connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  const int error = connected ? 0 : errno;
  close(fd);
  return error;
}

}  // namespace

Stubs::Stubs(const std::shared_ptr<grpc::Channel>& to)
    : channel(to),
      sessions(v1::SessionService::NewStub(to)),
      regions(v1::RegionService::NewStub(to)),
      layers(v1::LayerService::NewStub(to)),
      models(v1::ModelService::NewStub(to)),
      gemm(v1::GemmService::NewStub(to)),
      admin(v1::AdminService::NewStub(to)) {}

Channel::Channel(Address address)
    : address_(std::move(address)),
      pid_(getpid()),
      stubs_(std::make_unique<Stubs>(grpc::CreateCustomChannel(
          address_.target, grpc::InsecureChannelCredentials(), Arguments()))) {}

Channel::~Channel() {
  if (forked()) stubs_.release();
}

absl::Status Channel::Usable() const {
  if (!forked()) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, "FORKED",
               absl::StrCat("process ", pid_, " opened this connection and process ", getpid(),
                            " uses it after a fork; open a session of its own in the child"));
}

absl::Status Channel::Explain(const absl::Status& failure) const {
  if (!IsTransportFailure(failure)) return failure;
  return Annotate(failure, absl::StrCat("gemmd at ", address_.Text()));
}

void SetDeadline(grpc::ClientContext& context, absl::Time deadline) {
  if (deadline != absl::InfiniteFuture()) context.set_deadline(absl::ToChronoTime(deadline));
}

absl::Status NotReached(const Channel& channel, const absl::Status& failure) {
  const std::string& path = channel.address().path;
  const int error = path.empty() ? 0 : ConnectError(path);
  if (error == EACCES || error == EPERM) {
    return Error(absl::StatusCode::kPermissionDenied, "SOCKET_NOT_ALLOWED",
                 absl::StrCat("gemmd at ", channel.address().Text(), ": uid ", geteuid(),
                              " may not connect: ", std::strerror(error)));
  }
  return channel.Explain(
      Error(absl::StatusCode::kUnavailable, "NOT_RUNNING", failure.message()));
}

absl::StatusOr<v1::HelloResponse> Hello(const Channel& channel, absl::Time deadline) {
  GEMMD_RETURN_IF_ERROR(channel.Usable());
  grpc::ClientContext context;
  SetDeadline(context, deadline);
  v1::HelloRequest request;
  request.set_client_version(kVersion);
  v1::HelloResponse response;
  const absl::Status status =
      FromGrpc(channel.stubs().sessions->Hello(&context, request, &response), "Hello");
  if (IsTransportFailure(status)) return NotReached(channel, status);
  if (!status.ok()) return status;
  return response;
}

}  // namespace gemmd::client

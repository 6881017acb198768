#include <unistd.h>

#include "gemmd/v1/session.grpc.pb.h"
#include "server/convert.h"
#include "server/open_session.h"
#include "server/services.h"
#include "server/version.h"

namespace gemmd {
namespace {

// What a client may rely on; names it does not know are ignored.
constexpr const char* kFeatures[] = {
    "gemm",     "moe",           "submit_stream", "session_socket", "memfd",
    "cuda_ipc", "daemon_memory", "checkpoint",    "tensors",
};
constexpr uid_t kUnknownUid = static_cast<uid_t>(-1);  // gRPC tells nothing about the peer

class SessionService final : public v1::SessionService::CallbackService {
 public:
  explicit SessionService(const ServiceContext* context) : context_(*context) {}

  grpc::ServerUnaryReactor* Hello(grpc::CallbackServerContext* call, const v1::HelloRequest*,
                                  v1::HelloResponse* response) override {
    response->set_server_version(Version());
    for (const char* feature : kFeatures) response->add_features(feature);
    response->set_boot_id(context_.node->boot_id());
    for (const DeviceStatus& device : context_.node->Status().devices) {
      *response->add_devices() = ToProto(device);
    }
    response->set_session_socket(context_.config->config.session_socket);
    response->set_max_message_bytes(kMaxMessageBytes);
    response->set_pid(static_cast<uint32_t>(getpid()));
    return Reply(call, absl::OkStatus());
  }

  grpc::ServerUnaryReactor* OpenSession(grpc::CallbackServerContext* call,
                                        const v1::OpenSessionRequest* request,
                                        v1::OpenSessionResponse* response) override {
    const SessionIdentity identity = {request->name(), 0, kUnknownUid, "stream"};
    return Reply(call, gemmd::OpenSession(*context_.node, identity, *response).status());
  }

  grpc::ServerBidiReactor<v1::KeepSessionRequest, v1::SessionEvent>* KeepSession(
      grpc::CallbackServerContext* call) override {
    return context_.keep_streams->Open(context_.SessionOf(*call));
  }

  grpc::ServerUnaryReactor* CloseSession(grpc::CallbackServerContext* call,
                                         const v1::CloseSessionRequest*,
                                         v1::CloseSessionResponse*) override {
    const auto session = context_.SessionOf(*call);
    if (session.ok()) gemmd::CloseSession(*context_.node, *session, "close");
    return Reply(call, session.status());
  }

 private:
  const ServiceContext& context_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeSessionService(const ServiceContext* context) {
  return std::make_unique<SessionService>(context);
}

}  // namespace gemmd

// What    A gRPC channel to one address and the stubs on it, made by one process.
// Fork    A channel does not survive fork(): its threads stay in the parent. Usable() refuses in a
//         child, and the destructor leaks the channel there instead of waiting for threads that do
//         not exist.
// Errors  FailedPrecondition FORKED.
// Threads Thread-safe.
#ifndef GEMMD_CLIENT_CHANNEL_H_
#define GEMMD_CLIENT_CHANNEL_H_

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/address.h"
#include "gemmd/v1/admin.grpc.pb.h"
#include "gemmd/v1/gemm.grpc.pb.h"
#include "gemmd/v1/layer.grpc.pb.h"
#include "gemmd/v1/model.grpc.pb.h"
#include "gemmd/v1/region.grpc.pb.h"
#include "gemmd/v1/session.grpc.pb.h"

namespace gemmd::client {

struct Stubs {
  explicit Stubs(const std::shared_ptr<grpc::Channel>& to);
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::SessionService::Stub> sessions;
  std::unique_ptr<v1::RegionService::Stub> regions;
  std::unique_ptr<v1::LayerService::Stub> layers;
  std::unique_ptr<v1::ModelService::Stub> models;
  std::unique_ptr<v1::GemmService::Stub> gemm;
  std::unique_ptr<v1::AdminService::Stub> admin;
};

class Channel {
 public:
  // Connects with the first call.
  explicit Channel(Address address);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  const Address& address() const { return address_; }
  const Stubs& stubs() const { return *stubs_; }
  bool forked() const { return getpid() != pid_; }
  absl::Status Usable() const;

  // `failure` with the address tried, when the transport failed.
  absl::Status Explain(const absl::Status& failure) const;

 private:
  const Address address_;
  const pid_t pid_;
  std::unique_ptr<Stubs> stubs_;
};

// Deadline of a call; InfiniteFuture leaves it open.
void SetDeadline(grpc::ClientContext& context, absl::Time deadline);

// Why nothing answered, from the transport's failure: PermissionDenied SOCKET_NOT_ALLOWED, else Unavailable
// NOT_RUNNING; with the address.
absl::Status NotReached(const Channel& channel, const absl::Status& failure);

// Versions, devices and limits of the daemon behind `channel`.
absl::StatusOr<v1::HelloResponse> Hello(const Channel& channel, absl::Time deadline);

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_CHANNEL_H_

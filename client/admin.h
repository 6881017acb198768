// What    Calls for operators. Look-ups need no session and are repeated on Unavailable while the
//         daemon drains or starts; nothing is repeated when nothing listens. Calls that change the
//         daemon or its cache open a session for the call, whose socket tells the daemon which user
//         asks.
// Errors  Unavailable NOT_RUNNING with the address tried; PermissionDenied ROLE_REQUIRED; else the
//         daemon's.
// Threads Thread-safe.
#ifndef GEMMD_CLIENT_ADMIN_H_
#define GEMMD_CLIENT_ADMIN_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/channel.h"
#include "client/link.h"
#include "gemmd/v1/admin.pb.h"

namespace gemmd::client {

class Admin {
 public:
  // Connects with the first call. `address` empty: client/address.h.
  static absl::StatusOr<Admin> Open(const std::string& address,
                                    absl::Duration timeout = absl::Seconds(10));

  const Address& address() const { return channel_->address(); }
  const Channel& channel() const { return *channel_; }

  absl::StatusOr<v1::HelloResponse> Greet() const;
  absl::StatusOr<v1::GetStatusResponse> Status() const;
  absl::StatusOr<v1::ListSessionsResponse> Sessions() const;
  absl::StatusOr<v1::ListAllLayersResponse> Layers() const;
  absl::StatusOr<v1::GetConfigResponse> Config() const;
  absl::StatusOr<v1::GetMetricsResponse> Metrics() const;
  absl::Status SetLogLevel(const std::string& level, absl::Duration revert_after) const;
  // Zero: the daemon's own deadline.
  absl::Status Drain(absl::Duration deadline) const;

  // -- kernels (admin_kernels.cc); those that take long have no deadline --
  absl::Status Prewarm(const v1::PrewarmRequest& request,
                       const std::function<void(const v1::PrewarmProgress&)>& progress) const;
  absl::StatusOr<v1::ListCacheResponse> ListCache(const v1::ListCacheRequest& request) const;
  absl::StatusOr<v1::VerifyCacheResponse> VerifyCache() const;
  absl::StatusOr<v1::PurgeCacheResponse> PurgeCache(const v1::PurgeCacheRequest& request) const;
  // The bundle, in pieces, the first of which has no data but tells what is in it; `take` returns false to stop.
  absl::Status ExportCache(const v1::ExportCacheRequest& request,
                           const std::function<bool(const v1::CacheChunk&)>& take) const;
  // `give` fills the next piece of the bundle and returns false at its end.
  absl::StatusOr<v1::ImportCacheResponse> ImportCache(
      const std::function<bool(std::string*)>& give) const;

  // -- tuning (admin_tuning.cc); Tune has no deadline --
  absl::Status Tune(const v1::TuneRequest& request,
                    const std::function<void(const v1::TuneProgress&)>& progress) const;
  absl::StatusOr<v1::ListTuningResponse> ListTuning() const;
  absl::StatusOr<std::string> ExportTuning() const;  // JSON
  absl::StatusOr<v1::ImportTuningResponse> ImportTuning(const std::string& json) const;

 private:
  Admin(std::unique_ptr<Channel> channel, absl::Duration timeout)
      : channel_(std::move(channel)), timeout_(timeout) {}

  absl::StatusOr<std::shared_ptr<Link>> Identify(absl::Time deadline) const;

  std::unique_ptr<Channel> channel_;
  absl::Duration timeout_;
};

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_ADMIN_H_

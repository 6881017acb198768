// What    A daemon of a few lines on real sockets, in this process: enough of the contract to test
//         the client library, with faults on demand. Numbers are not computed.
// Threads Counters and knobs are guarded; set knobs before the calls they concern.
#ifndef GEMMD_TESTS_CLIENT_FAKE_DAEMON_H_
#define GEMMD_TESTS_CLIENT_FAKE_DAEMON_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gemmd/v1/admin.grpc.pb.h"
#include "gemmd/v1/gemm.grpc.pb.h"
#include "gemmd/v1/layer.grpc.pb.h"
#include "gemmd/v1/model.grpc.pb.h"
#include "gemmd/v1/region.grpc.pb.h"
#include "gemmd/v1/session.grpc.pb.h"
#include "kernels/base/mutex.h"

namespace gemmd::client {

// What the next calls of one method answer instead of their work.
struct Fault {
  int times = 0;
  grpc::StatusCode code = grpc::StatusCode::UNAVAILABLE;
  std::string reason;
  int retry_ms = -1;  // of RetryInfo; negative = none
};

class FakeDaemon : public v1::SessionService::Service,
                   public v1::RegionService::Service,
                   public v1::LayerService::Service {
 public:
  explicit FakeDaemon(const std::string& directory);
  ~FakeDaemon() override;

  void Start();
  // As if the process were killed: connections break, nothing is remembered.
  void Stop();
  void ForgetSessions();

  std::string socket_path() const { return directory_ + "/gemmd.sock"; }

  std::atomic<bool> offer_session_socket{true};
  std::string digest = "d1";
  std::string device;  // the only one; empty = none
  std::atomic<uint64_t> armed_numerics{0};  // that batch-invariant requests may name; 0 = none
  // Registrations tell that they are here, and are never answered.
  std::optional<v1::RegisterLayerProgress> stuck_at;
  v1::CheckpointSource checkpoint;      // that the last RegisterLayer named
  v1::RegisterModelRequest model;       // of the last RegisterModel
  std::vector<std::string> notes;       // what RegisterLayer says of every layer
  v1::ListCacheResponse listed_cache;  // what ListCache answers
  v1::CacheFilter cache_filter;        // that it was asked with last
  v1::ListTuningResponse listed_tuning;
  v1::ImportTuningResponse imported_tuning;  // what ImportTuning answers
  uint64_t imported_of_other_compiler = 0;   // of the one kernel that ImportCache takes
  std::vector<v1::PrewarmOutcome> prewarmed = {v1::PREWARM_OUTCOME_NOT_STORED};  // what Prewarm tells
  v1::GetStatusResponse status;
  int gemms_before_break = -1;  // the Submit stream ends after so many answers; -1 = never

  void Inject(const std::string& method, Fault fault);
  int calls(const std::string& method);
  size_t sessions();
  size_t regions();
  size_t layers();
  std::string imported_bundle();  // what the last ImportCache brought

 private:
  class Gemms;   // GemmService: its methods have the names of messages
  class Admins;  // AdminService: imports only
  class Models;  // ModelService: every model has one module, "m"

  grpc::Status Enter(const std::string& method, grpc::ServerContext* context, bool needs_session);
  std::string OpenToken();
  void CloseToken(const std::string& token);
  void AcceptLoop(int listener);
  void ServeSocket(int fd);

  grpc::Status Hello(grpc::ServerContext*, const v1::HelloRequest*, v1::HelloResponse*) override;
  grpc::Status OpenSession(grpc::ServerContext*, const v1::OpenSessionRequest*,
                           v1::OpenSessionResponse*) override;
  grpc::Status KeepSession(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::SessionEvent, v1::KeepSessionRequest>*) override;
  grpc::Status CloseSession(grpc::ServerContext*, const v1::CloseSessionRequest*,
                            v1::CloseSessionResponse*) override;
  grpc::Status RegisterRegion(grpc::ServerContext*, const v1::RegisterRegionRequest*,
                              v1::RegisterRegionResponse*) override;
  grpc::Status UnregisterRegion(grpc::ServerContext*, const v1::UnregisterRegionRequest*,
                                v1::UnregisterRegionResponse*) override;
  grpc::Status WriteRegion(grpc::ServerContext*, const v1::WriteRegionRequest*,
                           v1::WriteRegionResponse*) override;
  grpc::Status ReadRegion(grpc::ServerContext*, const v1::ReadRegionRequest*,
                          v1::ReadRegionResponse*) override;
  grpc::Status RegisterLayer(grpc::ServerContext*, const v1::RegisterLayerRequest*,
                             grpc::ServerWriter<v1::RegisterLayerProgress>*) override;
  grpc::Status ReleaseLayer(grpc::ServerContext*, const v1::ReleaseLayerRequest*,
                            v1::ReleaseLayerResponse*) override;

  const std::string directory_;
  std::unique_ptr<Gemms> gemms_;
  std::unique_ptr<Admins> admins_;
  std::unique_ptr<Models> models_;
  std::unique_ptr<grpc::Server> server_;
  int listener_ = -1;
  std::thread acceptor_;
  Mutex mutex_;
  std::map<std::string, Fault> faults_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> calls_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> tokens_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::string> regions_ ABSL_GUARDED_BY(mutex_);  // id to bytes
  std::string imported_bundle_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> layers_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> tickets_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::set<int> socket_fds_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> socket_threads_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gemmd::client

#endif  // GEMMD_TESTS_CLIENT_FAKE_DAEMON_H_

// What    The admin calls about tuning. AdminService checks who asks.
// Threads Thread-safe. Tunings run one after another on a worker thread, exports and imports on another.
#ifndef GEMMD_SERVER_TUNING_ADMIN_H_
#define GEMMD_SERVER_TUNING_ADMIN_H_

#include <grpcpp/support/server_callback.h>

#include <string>

#include "absl/status/status.h"
#include "gemmd/v1/admin.pb.h"
#include "server/admin_worker.h"
#include "server/service_context.h"

namespace gemmd {

class TuningAdmin {
 public:
  explicit TuningAdmin(const ServiceContext* context) : context_(*context) {}

  // `allowed`: OK, or the answer to somebody who may not call this.
  grpc::ServerWriteReactor<v1::TuneProgress>* Tune(const absl::Status& allowed,
                                                   const v1::TuneRequest& request);
  void List(v1::ListTuningResponse* response) const;
  grpc::ServerWriteReactor<v1::CacheChunk>* Export();
  grpc::ServerUnaryReactor* Import(const absl::Status& allowed,
                                   const v1::ImportTuningRequest& request,
                                   v1::ImportTuningResponse* response);

 private:
  absl::Status Take(const std::string& json, v1::ImportTuningResponse& response) const;

  const ServiceContext& context_;
  AdminWorker tune_worker_{4, "tunings"};
  AdminWorker store_worker_{16, "exports and imports of tuning"};
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_TUNING_ADMIN_H_

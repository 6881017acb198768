// What    The admin calls about kernels: prewarming and the cache. AdminService checks who asks.
// Threads Thread-safe. Calls are answered from worker threads: one for prewarming, one for the
//         cache.
#ifndef GEMMD_SERVER_KERNEL_ADMIN_H_
#define GEMMD_SERVER_KERNEL_ADMIN_H_

#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "gemmd/v1/admin.pb.h"
#include "server/admin_worker.h"
#include "server/service_context.h"

namespace gemmd {

class KernelAdmin {
 public:
  explicit KernelAdmin(const ServiceContext* context) : context_(*context) {}

  // `allowed`: OK, or the answer to somebody who may not call this.
  grpc::ServerWriteReactor<v1::PrewarmProgress>* Prewarm(const absl::Status& allowed,
                                                         const v1::PrewarmRequest& request);
  grpc::ServerUnaryReactor* List(const v1::ListCacheRequest& request,
                                 v1::ListCacheResponse* response);
  grpc::ServerUnaryReactor* Verify(const absl::Status& allowed, v1::VerifyCacheResponse* response);
  grpc::ServerUnaryReactor* Purge(const absl::Status& allowed, const v1::PurgeCacheRequest& request,
                                  v1::PurgeCacheResponse* response);
  grpc::ServerWriteReactor<v1::CacheChunk>* Export(const absl::Status& allowed,
                                                   const v1::ExportCacheRequest& request);
  grpc::ServerReadReactor<v1::CacheChunk>* Import(const absl::Status& allowed,
                                                  v1::ImportCacheResponse* response);

 private:
  class ImportStream;
  // Finishes `call` with what `work` returns, on the cache's worker.
  grpc::ServerUnaryReactor* Defer(const absl::Status& allowed, std::function<absl::Status()> work);

  const ServiceContext& context_;
  AdminWorker cache_worker_{16, "calls about the kernel cache"};
  AdminWorker prewarm_worker_{64, "prewarms"};  // beside the one that runs: every rank of a node may warm at its start
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_KERNEL_ADMIN_H_

// What    The gRPC services, one file each; every method converts, calls one function of core, converts back.
// Errors  status.h turns a Status into what travels; reasons are listed in proto/README.md.
// Threads gRPC calls the methods from its own threads; they never block. A reactor that answers later
//         deletes itself in OnDone.
#ifndef GEMMD_SERVER_SERVICES_H_
#define GEMMD_SERVER_SERVICES_H_

#include <grpcpp/impl/service_type.h>

#include <memory>
#include <vector>

#include "server/service_context.h"

namespace gemmd {

std::unique_ptr<grpc::Service> MakeSessionService(const ServiceContext* context);
std::unique_ptr<grpc::Service> MakeRegionService(const ServiceContext* context);
std::unique_ptr<grpc::Service> MakeLayerService(const ServiceContext* context);
std::unique_ptr<grpc::Service> MakeModelService(const ServiceContext* context);
std::unique_ptr<grpc::Service> MakeGemmService(const ServiceContext* context);
std::unique_ptr<grpc::Service> MakeAdminService(const ServiceContext* context);
// Not built yet: every method answers UNIMPLEMENTED.
std::unique_ptr<grpc::Service> MakeProgramService();
std::unique_ptr<grpc::Service> MakeAttachService();

}  // namespace gemmd

#endif  // GEMMD_SERVER_SERVICES_H_

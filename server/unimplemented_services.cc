#include "gemmd/v1/attach.grpc.pb.h"
#include "gemmd/v1/program.grpc.pb.h"
#include "kernels/base/status.h"
#include "server/services.h"

namespace gemmd {
namespace {

using Call = grpc::CallbackServerContext;
using Unary = grpc::ServerUnaryReactor;

Unary* NotBuilt(Call* call, const char* message) {
  return Reply(call, Error(absl::StatusCode::kUnimplemented, "NOT_IMPLEMENTED", message));
}

class ProgramService final : public v1::ProgramService::CallbackService {
 public:
  Unary* CreateProgram(Call* call, const v1::CreateProgramRequest*,
                       v1::CreateProgramResponse*) override {
    return NotBuilt(call, kMessage);
  }
  Unary* RunProgram(Call* call, const v1::RunProgramRequest*, v1::RunProgramResponse*) override {
    return NotBuilt(call, kMessage);
  }
  Unary* DeleteProgram(Call* call, const v1::DeleteProgramRequest*,
                       v1::DeleteProgramResponse*) override {
    return NotBuilt(call, kMessage);
  }

 private:
  static constexpr char kMessage[] = "this daemon has no executor of programs yet; use Submit";
};

class AttachService final : public v1::AttachService::CallbackService {
 public:
  Unary* AttachLayer(Call* call, const v1::AttachLayerRequest*, v1::AttachLayerResponse*) override {
    return NotBuilt(call, kMessage);
  }
  Unary* DetachLayer(Call* call, const v1::DetachLayerRequest*, v1::DetachLayerResponse*) override {
    return NotBuilt(call, kMessage);
  }

 private:
  static constexpr char kMessage[] =
      "this daemon cannot hand out plans yet; use Gemm, Moe or Submit";
};

}  // namespace

std::unique_ptr<grpc::Service> MakeProgramService() { return std::make_unique<ProgramService>(); }
std::unique_ptr<grpc::Service> MakeAttachService() { return std::make_unique<AttachService>(); }

}  // namespace gemmd

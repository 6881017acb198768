#include "client/session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/layer_slice.h"
#include "client/rpc_status.h"
#include "kernels/base/status.h"

namespace gemmd::client {

absl::StatusOr<Session> Session::Open(const SessionOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(auto state, SessionState::Open(options));
  return Session(std::move(state));
}

absl::StatusOr<v1::HelloResponse> Session::hello() const {
  GEMMD_ASSIGN_OR_RETURN(const auto link, state_->Acquire(state_->DefaultDeadline()));
  return link->hello();
}

absl::StatusOr<uint64_t> Session::session_id() const {
  GEMMD_ASSIGN_OR_RETURN(const auto link, state_->Acquire(state_->DefaultDeadline()));
  return link->session_id();
}

absl::StatusOr<Region> Session::Add(std::shared_ptr<RegionRecord> record) {
  GEMMD_RETURN_IF_ERROR(state_->Add(record, state_->DefaultDeadline()));
  return Region(state_, std::move(record));
}

absl::StatusOr<Layer> Session::Add(std::shared_ptr<LayerRecord> record) {
  GEMMD_RETURN_IF_ERROR(state_->Add(record, absl::Now() + state_->options().load_timeout));
  return Layer(state_, std::move(record));
}

absl::StatusOr<Region> Session::AllocateHost(uint64_t bytes, const std::string& label) {
  GEMMD_ASSIGN_OR_RETURN(auto arena, HostArena::Create(bytes, "gemmd-" + label));
  return RegisterHostMemory(std::move(arena), label);
}

absl::StatusOr<Region> Session::RegisterHostMemory(std::shared_ptr<HostArena> arena,
                                                   const std::string& label) {
  return Add(std::make_shared<HostRegionRecord>("cpu", std::move(arena), label));
}

absl::StatusOr<Region> Session::RegisterCuda(const void* pointer, uint64_t bytes,
                                             const std::string& label) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  GEMMD_ASSIGN_OR_RETURN(CudaExport exported, ExportCuda(address, bytes));
  return Add(std::make_shared<CudaRegionRecord>(std::move(exported), address, label));
}

absl::StatusOr<Region> Session::AllocateInDaemon(const std::string& device, uint64_t bytes,
                                                 const std::string& label) {
  return Add(std::make_shared<DaemonRegionRecord>(device, bytes, label));
}

absl::StatusOr<Layer> Session::RegisterCheckpoint(const std::string& path,
                                                  const std::string& module,
                                                  const std::string& device,
                                                  const std::string& name,
                                                  ProgressFunction progress) {
  v1::CheckpointSource source;
  source.set_path(path);
  source.set_module(module);
  return RegisterCheckpoint(source, device, name, std::move(progress));
}

absl::StatusOr<Layer> Session::RegisterCheckpoint(const v1::CheckpointSource& source,
                                                  const std::string& device,
                                                  const std::string& name,
                                                  ProgressFunction progress) {
  const std::string part = SliceText(source.slice());
  v1::RegisterLayerRequest request;
  request.set_device(device);
  request.set_name(!name.empty() ? name : DefaultLayerName(source.module(), part));
  *request.mutable_checkpoint() = source;
  return Add(std::make_shared<LayerRecord>(std::move(request),
                                           std::vector<LayerRecord::SourceRegion>(),
                                           state_->layer_uses(), std::move(progress)));
}

absl::StatusOr<Layer> Session::RegisterTensors(const LayerTensors& tensors,
                                               const std::string& device, const std::string& name,
                                               ProgressFunction progress) {
  std::vector<LayerRecord::SourceRegion> regions;
  v1::RegisterLayerRequest request = TensorsRequest(tensors, device, name, &regions);
  return Add(std::make_shared<LayerRecord>(std::move(request), std::move(regions),
                                           state_->layer_uses(), std::move(progress)));
}

absl::StatusOr<v1::LayerInfo> Session::Inspect(const Layer& layer) const {
  const absl::Time deadline = state_->DefaultDeadline();
  v1::GetLayerResponse response;
  GEMMD_RETURN_IF_ERROR(state_->Run(deadline, true, [&](Link& link) -> absl::Status {
    v1::GetLayerRequest request;
    GEMMD_ASSIGN_OR_RETURN(const uint64_t id, layer.record()->IdOn(link, deadline));
    request.set_layer_id(id);
    grpc::ClientContext context;
    link.Prepare(context, deadline);
    return FromGrpc(link.stubs().layers->GetLayer(&context, request, &response), "GetLayer");
  }));
  return response.layer();
}

absl::StatusOr<v1::ExplainLayerResponse> Session::Explain(const Layer& layer,
                                                          const std::vector<int64_t>& m) const {
  const absl::Time deadline = state_->DefaultDeadline();
  v1::ExplainLayerResponse response;
  GEMMD_RETURN_IF_ERROR(state_->Run(deadline, true, [&](Link& link) -> absl::Status {
    v1::ExplainLayerRequest request;
    GEMMD_ASSIGN_OR_RETURN(const uint64_t id, layer.record()->IdOn(link, deadline));
    request.set_layer_id(id);
    for (int64_t value : m) request.add_m(value);
    grpc::ClientContext context;
    link.Prepare(context, deadline);
    return FromGrpc(link.stubs().layers->ExplainLayer(&context, request, &response), "ExplainLayer");
  }));
  return response;
}

absl::StatusOr<v1::GemmResponse> Session::Run(const Gemm& gemm) const {
  return Run(gemm, state_->DefaultDeadline());
}

absl::StatusOr<v1::GemmResponse> Session::Run(const Gemm& gemm, absl::Time deadline) const {
  v1::GemmResponse response;
  GEMMD_RETURN_IF_ERROR(state_->Run(deadline, false, [&](Link& link) -> absl::Status {
    GEMMD_ASSIGN_OR_RETURN(const v1::GemmRequest request, ToProto(gemm, link, deadline));
    grpc::ClientContext context;
    link.Prepare(context, deadline);
    return FromGrpc(link.stubs().gemm->Gemm(&context, request, &response), "Gemm");
  }));
  return response;
}

absl::StatusOr<v1::MoeResponse> Session::Run(const Moe& moe) const {
  return Run(moe, state_->DefaultDeadline());
}

absl::StatusOr<v1::MoeResponse> Session::Run(const Moe& moe, absl::Time deadline) const {
  v1::MoeResponse response;
  GEMMD_RETURN_IF_ERROR(state_->Run(deadline, false, [&](Link& link) -> absl::Status {
    GEMMD_ASSIGN_OR_RETURN(const v1::MoeRequest request, ToProto(moe, link, deadline));
    grpc::ClientContext context;
    link.Prepare(context, deadline);
    return FromGrpc(link.stubs().gemm->Moe(&context, request, &response), "Moe");
  }));
  return response;
}

}  // namespace gemmd::client

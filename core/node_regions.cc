// Regions: registration, look-up and byte copies.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/node.h"
#include "core/node_impl.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

constexpr size_t kHandleBytes = 64;                     // cudaIpcMemHandle_t
constexpr uint64_t kLargestCopy = uint64_t{256} << 20;  // bytes of one Read

// What a source asks of its memory, before anything is opened.
struct Wanted {
  uint64_t offset = 0;
  uint64_t size = 0;  // 0 = to the end, passed memory only
};

absl::Status CheckIpc(const CudaIpcSource& source) {
  if (source.handle.size() != kHandleBytes) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_HANDLE_SIZE",
                 absl::StrCat("cuda_ipc.handle has ", source.handle.size(), " bytes, expected ",
                              kHandleBytes));
  }
  if (source.allocation_size == 0) {
    return Error(absl::StatusCode::kInvalidArgument, "MISSING_FIELD",
                 "cuda_ipc.allocation_size is not set");
  }
  if (source.size == 0) {
    return Error(absl::StatusCode::kInvalidArgument, "REGION_OUT_OF_BOUNDS",
                 "cuda_ipc.size is 0, expected at least 1 byte");
  }
  return ResolveBytes("cuda_ipc", source.offset, source.size, {0, source.allocation_size}).status();
}

// Tells processes apart; a session without a known process is its own exporter.
std::string ExporterOf(const Session& session) {
  const pid_t pid = session.identity().pid;
  return pid > 0 ? absl::StrCat("pid ", pid) : absl::StrCat("session ", session.id());
}

// Opens the memory of one source.
class Opener {
 public:
  Opener(Node::Impl& impl, Session& session, const Node::Impl::Place& place)
      : impl_(impl), session_(session), place_(place) {}

  absl::StatusOr<std::shared_ptr<SharedMapping>> operator()(const CudaIpcSource& source) {
    const MappingTable::Key key{place_.device->description().id, ExporterOf(session_),
                                source.handle};
    return impl_.mappings.Open(key, source.buffer_id, *place_.reaper, [&] {
      return place_.device->OpenCudaIpc(
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(source.handle.data()),
                              source.handle.size()),
          source.allocation_size);
    });
  }

  absl::StatusOr<std::shared_ptr<SharedMapping>> operator()(Session::PassedMemory& passed) {
    return Own(place_.device->OpenFd(passed.fd.get(), passed.size));
  }

  absl::StatusOr<std::shared_ptr<SharedMapping>> operator()(const DaemonSource& source) {
    return Own(place_.device->Allocate(source.size));
  }

 private:
  absl::StatusOr<std::shared_ptr<SharedMapping>> Own(
      absl::StatusOr<std::unique_ptr<Memory>> memory) {
    if (!memory.ok()) return memory.status();
    return std::make_shared<SharedMapping>(place_.reaper->Guard(*std::move(memory)));
  }

  Node::Impl& impl_;
  Session& session_;
  const Node::Impl::Place& place_;
};

// Opens under the session's quota and makes the region visible.
template <typename Source>
absl::StatusOr<RegionInfo> OpenRegion(Node::Impl& impl, Session& session,
                                      const Node::Impl::Place& place, const std::string& label,
                                      Source& source, const Wanted& wanted) {
  GEMMD_RETURN_IF_ERROR(impl.regions.Reserve(session.id(), wanted.size));
  absl::StatusOr<std::shared_ptr<SharedMapping>> mapping = Opener(impl, session, place)(source);
  absl::Status status = mapping.status();
  if (status.ok()) {
    status = ResolveBytes("region", wanted.offset, wanted.size, {0, (*mapping)->size()}).status();
  }
  if (!status.ok()) {
    impl.regions.Cancel(session.id(), wanted.size);
    return status;
  }
  Region region;
  region.session_id = session.id();
  region.device = place.device.get();
  region.mapping = *std::move(mapping);
  region.offset = wanted.offset;
  region.size = wanted.size;
  region.label = label;
  return impl.regions.Commit(std::move(region));
}

absl::StatusOr<RegionInfo> RegisterPassed(Node::Impl& impl, Session& session,
                                          const Node::Impl::Place& place, const std::string& label,
                                          const PassedSource& source) {
  GEMMD_ASSIGN_OR_RETURN(Session::PassedMemory passed, session.TakeTicket(source.ticket));
  Wanted wanted{source.offset, source.size};
  if (wanted.size == 0) wanted.size = passed.size - std::min(passed.size, wanted.offset);
  if (wanted.size == 0) {
    return Error(absl::StatusCode::kInvalidArgument, "REGION_OUT_OF_BOUNDS",
                 absl::StrCat("passed.offset ", source.offset, " leaves nothing of ", passed.size,
                              " bytes"));
  }
  return OpenRegion(impl, session, place, label, passed, wanted);
}

absl::StatusOr<RegionInfo> Register(Node::Impl& impl, Session& session,
                                    const RegionRequest& request) {
  GEMMD_ASSIGN_OR_RETURN(const Node::Impl::Place* const place, impl.FindPlace(request.device));
  if (const auto* ipc = std::get_if<CudaIpcSource>(&request.source)) {
    GEMMD_RETURN_IF_ERROR(CheckIpc(*ipc));
    return OpenRegion(impl, session, *place, request.label, *ipc, {ipc->offset, ipc->size});
  }
  if (const auto* passed = std::get_if<PassedSource>(&request.source)) {
    return RegisterPassed(impl, session, *place, request.label, *passed);
  }
  const auto& daemon = std::get<DaemonSource>(request.source);
  return OpenRegion(impl, session, *place, request.label, daemon, {0, daemon.size});
}

const char* KindOf(const RegionRequest& request) {
  static constexpr const char* kKinds[] = {"cuda_ipc", "passed", "daemon"};
  return kKinds[request.source.index()];
}

}  // namespace

absl::StatusOr<Node::Impl::Argument> Node::Impl::Acquire(const Session& session,
                                                         const RegionRef& ref) const {
  GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<const Region> region,
                         regions.Find(session.id(), ref));
  std::shared_ptr<Memory> memory = region->mapping->Acquire();
  if (memory == nullptr) {
    return Error(absl::StatusCode::kAborted, "STALE_EPOCH",
                 absl::StrCat("region ", ref.id,
                              ": its handle now names other memory (a new "
                              "buffer_id): register it again"));
  }
  const Extent extent{memory->address() + region->offset, region->size};
  return Argument{std::move(memory), region->device, extent};
}

absl::StatusOr<uint64_t> Node::PassMemory(Session& session, int fd, uint64_t size) {
  Session::PassedMemory memory{UniqueFd(fd), size};
  GEMMD_RETURN_IF_ERROR(impl_->activity.Begin());
  absl::StatusOr<uint64_t> ticket = session.AddTicket(std::move(memory));
  impl_->activity.End();
  return ticket;
}

absl::StatusOr<RegionInfo> Node::RegisterRegion(Session& session, const RegionRequest& request) {
  GEMMD_RETURN_IF_ERROR(impl_->activity.Begin());
  absl::StatusOr<RegionInfo> info = Register(*impl_, session, request);
  const std::string kind = info.ok() ? info->kind : KindOf(request);
  impl_->Observe([&](NodeObserver& o) { o.OnRegionOpen(kind, info.status()); });
  impl_->activity.End();
  return info;
}

absl::Status Node::UnregisterRegion(Session& session, const RegionRef& region) {
  return impl_->regions.Remove(session.id(), region).status();
}

std::vector<RegionInfo> Node::ListRegions(const Session& session) const {
  return impl_->regions.List(session.id());
}

absl::Status Node::WriteRegion(Session& session, const RegionRef& region, uint64_t offset,
                               absl::string_view data) {
  GEMMD_ASSIGN_OR_RETURN(const Impl::Argument argument, impl_->Acquire(session, region));
  GEMMD_ASSIGN_OR_RETURN(const Extent to,
                         ResolveBytes("data", offset, data.size(), argument.extent));
  return argument.device->CopyIn(
      to.address,
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(data.data()), data.size()));
}

absl::StatusOr<std::string> Node::ReadRegion(Session& session, const RegionRef& region,
                                             uint64_t offset, uint64_t size) {
  GEMMD_ASSIGN_OR_RETURN(const Impl::Argument argument, impl_->Acquire(session, region));
  GEMMD_ASSIGN_OR_RETURN(const Extent from, ResolveBytes("read", offset, size, argument.extent));
  if (size > kLargestCopy) {
    return Error(absl::StatusCode::kInvalidArgument, "REGION_OUT_OF_BOUNDS",
                 absl::StrCat("size ", size, " is beyond ", kLargestCopy, " bytes of one call"));
  }
  std::string data(static_cast<size_t>(size), '\0');
  GEMMD_RETURN_IF_ERROR(argument.device->CopyOut(
      from.address, absl::MakeSpan(reinterpret_cast<std::byte*>(data.data()), data.size())));
  return data;
}

}  // namespace gemmd

#include "client/region_record.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/rpc_status.h"
#include "kernels/base/status.h"

namespace gemmd::client {
namespace {

constexpr uint64_t kLargestChunk = uint64_t{1} << 20;

absl::Status CheckBounds(uint64_t offset, uint64_t bytes, uint64_t size) {
  if (offset <= size && bytes <= size - offset) return absl::OkStatus();
  return Error(
      absl::StatusCode::kInvalidArgument, "REGION_OUT_OF_BOUNDS",
      absl::StrCat(bytes, " bytes at offset ", offset, " leave a region of ", size, " bytes"));
}

// Half the message limit leaves room for the rest of the message.
uint64_t ChunkBytes(const Link& link) {
  const uint64_t limit = link.hello().max_message_bytes();
  return limit == 0 ? kLargestChunk : std::clamp<uint64_t>(limit / 2, 1024, kLargestChunk);
}

}  // namespace

absl::Status RegionRecord::Write(SessionState& session, uint64_t offset,
                                 absl::Span<const std::byte> bytes) {
  GEMMD_RETURN_IF_ERROR(CheckBounds(offset, bytes.size(), size_));
  return DoWrite(session, offset, bytes);
}

absl::Status RegionRecord::Read(SessionState& session, uint64_t offset,
                                absl::Span<std::byte> bytes) {
  GEMMD_RETURN_IF_ERROR(CheckBounds(offset, bytes.size(), size_));
  return DoRead(session, offset, bytes);
}

absl::StatusOr<v1::RegionRef> RegionRecord::RefOn(Link& link, absl::Time deadline, bool reads) {
  GEMMD_RETURN_IF_ERROR(Bind(link, deadline));
  MutexLock lock(mutex_);
  if (reads && content_lost_) {
    return Error(absl::StatusCode::kAborted, "CONTENT_LOST",
                 "the daemon was restarted and a daemon-owned region is empty; write it again");
  }
  return ref_;
}

absl::Status RegionRecord::Register(Link& link, absl::Time deadline) {
  v1::RegisterRegionRequest request;
  request.set_device(device_);
  request.set_label(label_);
  GEMMD_RETURN_IF_ERROR(FillSource(link, deadline, request));
  grpc::ClientContext context;
  link.Prepare(context, deadline);
  v1::RegisterRegionResponse response;
  GEMMD_RETURN_IF_ERROR(
      FromGrpc(link.stubs().regions->RegisterRegion(&context, request, &response), "RegisterRegion"));
  ref_ = response.region();
  content_lost_ = !keeps_content() && registrations_++ > 0;
  return absl::OkStatus();
}

void RegionRecord::Unregister(Link& link) {
  grpc::ClientContext context;
  link.Prepare(context, absl::Now() + absl::Seconds(5));
  v1::UnregisterRegionRequest request;
  *request.mutable_region() = ref_;
  v1::UnregisterRegionResponse response;
  // When the daemon does not answer, the end of the session gives the region back.
  link.stubs().regions->UnregisterRegion(&context, request, &response).IgnoreError();
}

void RegionRecord::MarkWritten() {
  MutexLock lock(mutex_);
  content_lost_ = false;
}

absl::Status HostRegionRecord::FillSource(Link& link, absl::Time deadline,
                                          v1::RegisterRegionRequest& request) {
  GEMMD_ASSIGN_OR_RETURN(const uint64_t ticket,
                         link.PassMemory(arena_->fd(), arena_->size(), deadline));
  request.mutable_passed()->set_ticket(ticket);
  request.mutable_passed()->set_size(arena_->size());
  return absl::OkStatus();
}

absl::Status HostRegionRecord::DoWrite(SessionState&, uint64_t offset,
                                       absl::Span<const std::byte> bytes) {
  if (!bytes.empty()) std::memcpy(arena_->data() + offset, bytes.data(), bytes.size());
  return absl::OkStatus();
}

absl::Status HostRegionRecord::DoRead(SessionState&, uint64_t offset, absl::Span<std::byte> bytes) {
  if (!bytes.empty()) std::memcpy(bytes.data(), arena_->data() + offset, bytes.size());
  return absl::OkStatus();
}

absl::Status CudaRegionRecord::FillSource(Link&, absl::Time, v1::RegisterRegionRequest& request) {
  *request.mutable_cuda_ipc() = exported_.memory;
  return absl::OkStatus();
}

absl::Status CudaRegionRecord::DoWrite(SessionState&, uint64_t offset,
                                       absl::Span<const std::byte> bytes) {
  return CopyToCuda(address_ + offset, bytes);
}

absl::Status CudaRegionRecord::DoRead(SessionState&, uint64_t offset, absl::Span<std::byte> bytes) {
  return CopyFromCuda(address_ + offset, bytes);
}

absl::Status DaemonRegionRecord::FillSource(Link&, absl::Time, v1::RegisterRegionRequest& request) {
  request.mutable_daemon_owned()->set_size(size());
  return absl::OkStatus();
}

absl::Status DaemonRegionRecord::DoWrite(SessionState& session, uint64_t offset,
                                         absl::Span<const std::byte> bytes) {
  uint64_t done = 0;
  while (done < bytes.size()) {
    const absl::Time deadline = session.DefaultDeadline();
    uint64_t chunk = 0;
    GEMMD_RETURN_IF_ERROR(session.Run(deadline, true, [&](Link& link) -> absl::Status {
      v1::WriteRegionRequest request;
      GEMMD_ASSIGN_OR_RETURN(*request.mutable_region(), RefOn(link, deadline, false));
      chunk = std::min<uint64_t>(ChunkBytes(link), bytes.size() - done);
      request.set_offset(offset + done);
      request.set_data(bytes.data() + done, chunk);
      grpc::ClientContext context;
      link.Prepare(context, deadline);
      v1::WriteRegionResponse response;
      return FromGrpc(link.stubs().regions->WriteRegion(&context, request, &response), "WriteRegion");
    }));
    done += chunk;
  }
  MarkWritten();
  return absl::OkStatus();
}

absl::Status DaemonRegionRecord::DoRead(SessionState& session, uint64_t offset,
                                        absl::Span<std::byte> bytes) {
  uint64_t done = 0;
  while (done < bytes.size()) {
    const absl::Time deadline = session.DefaultDeadline();
    v1::ReadRegionResponse response;
    GEMMD_RETURN_IF_ERROR(session.Run(deadline, true, [&](Link& link) -> absl::Status {
      v1::ReadRegionRequest request;
      GEMMD_ASSIGN_OR_RETURN(*request.mutable_region(), RefOn(link, deadline, true));
      request.set_offset(offset + done);
      request.set_size(std::min<uint64_t>(ChunkBytes(link), bytes.size() - done));
      grpc::ClientContext context;
      link.Prepare(context, deadline);
      return FromGrpc(link.stubs().regions->ReadRegion(&context, request, &response), "ReadRegion");
    }));
    if (response.data().empty() || response.data().size() > bytes.size() - done) {
      return absl::InternalError(
          absl::StrCat("ReadRegion returned ", response.data().size(), " bytes"));
    }
    std::memcpy(bytes.data() + done, response.data().data(), response.data().size());
    done += response.data().size();
  }
  return absl::OkStatus();
}

}  // namespace gemmd::client

#include "client/gemmctl/workspace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/gemmctl/numbers.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

std::string ResolveKind(const std::string& kind, const std::string& device) {
  if (kind != "auto") return kind;
  if (device == "cpu") return "memfd";
  return cuda::LoadDriver().ok() ? "ipc" : "daemon";
}

}  // namespace

uint64_t PlacedBytes(v1::DataType dtype, int64_t rows, int64_t columns) {
  const auto bytes = static_cast<uint64_t>(rows * columns * client::ElementBytes(dtype));
  return (bytes + 255) / 256 * 256;
}

absl::Status Workspace::CheckKind(const std::string& kind) {
  for (const char* known : {"auto", "ipc", "memfd", "daemon"}) {
    if (kind == known) return absl::OkStatus();
  }
  return Error(absl::StatusCode::kInvalidArgument, "BAD_ARGUMENT",
               absl::StrCat("memory '", kind, "' is none of auto, ipc, memfd, daemon"));
}

absl::StatusOr<Workspace> Workspace::Create(client::Session& session, const std::string& device,
                                            const std::string& wanted, uint64_t bytes) {
  GEMMD_RETURN_IF_ERROR(CheckKind(wanted));
  const std::string kind = ResolveKind(wanted, device);
  bytes = std::max<uint64_t>(bytes, 256);
  if (kind == "memfd") {
    GEMMD_ASSIGN_OR_RETURN(client::Region region, session.AllocateHost(bytes, "workspace"));
    return Workspace(kind, std::nullopt, std::move(region));
  }
  if (kind == "daemon") {
    GEMMD_ASSIGN_OR_RETURN(client::Region region,
                           session.AllocateInDaemon(device, bytes, "workspace"));
    return Workspace(kind, std::nullopt, std::move(region));
  }
  GEMMD_ASSIGN_OR_RETURN(client::CudaBuffer memory, client::CudaBuffer::Create(device, bytes));
  GEMMD_ASSIGN_OR_RETURN(
      client::Region region,
      session.RegisterCuda(reinterpret_cast<const void*>(memory.address()), bytes, "workspace"));
  return Workspace(kind, std::move(memory), std::move(region));
}

absl::StatusOr<client::Tensor> Workspace::Place(v1::DataType dtype, int64_t rows, int64_t columns) {
  const uint64_t bytes = PlacedBytes(dtype, rows, columns);
  if (bytes > region_->size() - used_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes, " bytes do not fit: ", used_, " of ", region_->size(), " are in use"));
  }
  client::Tensor tensor{.region = region_.get(),
                        .byte_offset = used_,
                        .dtype = dtype,
                        .rows = rows,
                        .columns = columns};
  used_ += bytes;
  return tensor;
}

absl::StatusOr<client::Tensor> Workspace::Put(v1::DataType dtype, int64_t rows, int64_t columns,
                                              absl::Span<const double> values) {
  GEMMD_ASSIGN_OR_RETURN(const client::Tensor tensor, Place(dtype, rows, columns));
  GEMMD_ASSIGN_OR_RETURN(const Bytes bytes, Encode(dtype, values));
  GEMMD_RETURN_IF_ERROR(region_->Write(tensor.byte_offset, bytes));
  return tensor;
}

absl::StatusOr<std::vector<double>> Workspace::Get(const client::Tensor& tensor) const {
  Bytes bytes(
      static_cast<size_t>(tensor.rows * tensor.columns * client::ElementBytes(tensor.dtype)));
  GEMMD_RETURN_IF_ERROR(region_->Read(tensor.byte_offset, absl::MakeSpan(bytes)));
  return Decode(tensor.dtype, bytes);
}

}  // namespace gemmd::gemmctl

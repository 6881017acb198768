// What    Wire messages <-> core structs. Nothing else in the daemon reads or writes their fields.
// Errors  FromProto: InvalidArgument MISSING_FIELD, UNKNOWN_ENUM, OUT_OF_RANGE or SHAPE_MISMATCH,
//         the message names the field, the value and the bound. What needs
//         the daemon's state (ids, sizes of regions) is checked by core.
// Threads Pure functions.
#ifndef GEMMD_SERVER_CONVERT_H_
#define GEMMD_SERVER_CONVERT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/node.h"
#include "gemmd/v1/admin.pb.h"
#include "gemmd/v1/gemm.pb.h"
#include "gemmd/v1/layer.pb.h"
#include "gemmd/v1/region.pb.h"
#include "gemmd/v1/session.pb.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd {

absl::StatusOr<NumberFormat> FromProto(const v1::NumberFormat& from, const std::string& field);
absl::StatusOr<QuantSpec> FromProto(const v1::QuantSpec& from);
absl::StatusOr<ActivationEncoding> FromProto(const v1::ActivationEncoding& from,
                                             const std::string& field);
// Errors name `field`.
absl::StatusOr<QuantizeTarget> FromProto(const v1::QuantizeTo& from, const std::string& field);
absl::StatusOr<AxisSlice> FromProto(const v1::AxisSlice& from, const std::string& field);
// nullopt: the request does not choose.
absl::StatusOr<std::optional<GptqZeroPoints>> FromProto(v1::GptqZeroPoints from, const std::string& field);
absl::StatusOr<CheckpointSource> FromProto(const v1::CheckpointSource& from);
absl::StatusOr<TensorSource> FromProto(const v1::TensorSource& from);
absl::StatusOr<TensorRef> FromProto(const v1::TensorRef& from, const std::string& field);
absl::StatusOr<RegionRequest> FromProto(const v1::RegisterRegionRequest& from);
absl::StatusOr<LayerRequest> FromProto(const v1::RegisterLayerRequest& from);
absl::StatusOr<GemmRequest> FromProto(const v1::GemmRequest& from);
absl::StatusOr<MoeRequest> FromProto(const v1::MoeRequest& from);
RegionRef FromProto(const v1::RegionRef& from);

v1::NumberFormat ToProto(const NumberFormat& from);
v1::QuantSpec ToProto(const QuantSpec& from);
v1::KernelNumerics ToProto(const KernelNumerics& from);
v1::ActivationEncoding ToProto(const ActivationEncoding& from);
v1::RegionRef ToProto(const RegionRef& from);
v1::RegionInfo ToProto(const RegionInfo& from);
v1::LayerInfo ToProto(const LayerInfo& from);
v1::RegisterLayerProgress ToProto(const LayerProgress& from);
// The end of a registration.
v1::RegisterLayerProgress ReadyToProto(const LayerInfo& from);
v1::KernelChoice ToProto(const KernelExplanation& from);
v1::GemmResponse ToProto(const GemmResult& from);
v1::MoeResponse ToProto(const MoeResult& from);
v1::SessionInfo ToProto(const SessionInfo& from);
v1::DeviceInfo ToProto(const DeviceStatus& from);

}  // namespace gemmd

#endif  // GEMMD_SERVER_CONVERT_H_

// What    Wire messages of ModelService <-> core structs, as convert.h.
// Errors  InvalidArgument OUT_OF_RANGE; paths and patterns are checked by core.
// Threads Pure functions.
#ifndef GEMMD_SERVER_CONVERT_MODELS_H_
#define GEMMD_SERVER_CONVERT_MODELS_H_

#include "absl/status/statusor.h"
#include "core/model_registration.h"
#include "core/prewarm.h"
#include "gemmd/v1/model.pb.h"

namespace gemmd {

absl::StatusOr<ModelRequest> FromProto(const v1::RegisterModelRequest& from);
absl::StatusOr<ModelModules> FromProto(const v1::ModelModules& from);

v1::LayerSlice ToProto(const SliceRequest& from);
v1::RegisterModelProgress ToProto(const ModelProgress& from);

}  // namespace gemmd

#endif  // GEMMD_SERVER_CONVERT_MODELS_H_

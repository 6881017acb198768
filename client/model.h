// What    The modules of a checkpoint directory as layers of a session, registered in one call.
// Use     v1::RegisterModelRequest request;
//         request.set_path("/models/llama");
//         request.set_fuse(true);
//         *request.mutable_slice()->mutable_tensor() = RankOf(rank, ranks).rank();
//         GEMMD_ASSIGN_OR_RETURN(Model model, RegisterModel(session, request));
//         ... model.layers.at("model.layers.0.self_attn.qkv_proj") ...
// Life    Each layer is one of its own: released when the object dies, read again by a restarted daemon.
// Errors  Of the first module that failed, naming all that did (proto/gemmd/v1/model.proto); Cancelled when
//         `progress` returns false. No layer is left then; but should the daemon have been done already while
//         another thread registers layers, what it registered stays until the session ends.
// Threads As Session.
#ifndef GEMMD_CLIENT_MODEL_H_
#define GEMMD_CLIENT_MODEL_H_

#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "client/layer.h"
#include "client/session.h"
#include "gemmd/v1/model.pb.h"

namespace gemmd::client {

struct Model {
  std::map<std::string, Layer> layers;                 // by module
  std::map<std::string, v1::ModuleFailure> failures;  // with keep_going
};

// Returns false to cancel.
using ModelProgressFunction = std::function<bool(const v1::RegisterModelProgress&)>;

absl::StatusOr<Model> RegisterModel(Session& session, const v1::RegisterModelRequest& request,
                                    const ModelProgressFunction& progress = nullptr);

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_MODEL_H_

// What    gemmctl register DIR --all: the modules of a checkpoint as layers, held for as long as asked.
// Threads One thread.
#ifndef GEMMD_CLIENT_GEMMCTL_REGISTER_MODEL_H_
#define GEMMD_CLIENT_GEMMCTL_REGISTER_MODEL_H_

#include <vector>

#include "absl/status/statusor.h"
#include "client/gemmctl/command.h"
#include "client/model.h"

namespace gemmd::gemmctl {

// --modules, --exclude, --fuse, --tp: which modules of a checkpoint. `when` comes before what each says.
std::vector<Option> SelectionOptions(const std::string& when = "");

// What they, --quantize and --experts of SliceOptions, say of the checkpoint at `path`.
absl::StatusOr<v1::ModelModules> SelectionOf(const Arguments& arguments, const std::string& path);

// --all, SelectionOptions, --keep-going.
std::vector<Option> ModelOptions();

// Without --all: InvalidArgument BAD_ARGUMENT when one of these options is given.
absl::Status CheckOneModule(const Arguments& arguments);

// With --all: what the arguments ask for.
absl::StatusOr<v1::RegisterModelRequest> ModelRequest(const Arguments& arguments);

// Registers and describes; the layers live as long as the result.
absl::StatusOr<client::Model> RegisterAll(const Context& context,
                                          const v1::RegisterModelRequest& request,
                                          client::Session& session);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_REGISTER_MODEL_H_

// What    gemmctl register DIR --all: the modules of a checkpoint as layers, held for as long as asked.
// Threads One thread.
#ifndef GEMMD_CLIENT_GEMMCTL_REGISTER_MODEL_H_
#define GEMMD_CLIENT_GEMMCTL_REGISTER_MODEL_H_

#include <vector>

#include "absl/status/statusor.h"
#include "client/gemmctl/command.h"
#include "client/model.h"

namespace gemmd::gemmctl {

// --all, --modules, --exclude, --fuse, --tp, --keep-going.
std::vector<Option> ModelOptions();

// Registers and describes; the layers live as long as the result.
absl::StatusOr<client::Model> RegisterAll(const Context& context, const Arguments& arguments,
                                          client::Session& session);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_REGISTER_MODEL_H_

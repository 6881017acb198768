// What    The layers of prewarm and tune: a manifest, which is layers by format and shape as JSON (a
//         PrewarmRequest), and what the command line names.
// Errors  InvalidArgument BAD_ARGUMENT; of ReadManifest it names the file. WriteManifest: as ExportFile.
// Threads One thread.
#ifndef GEMMD_CLIENT_GEMMCTL_MANIFEST_H_
#define GEMMD_CLIENT_GEMMCTL_MANIFEST_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/gemmctl/arguments.h"
#include "client/gemmctl/export_file.h"
#include "gemmd/v1/admin.pb.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {

// Adds what the file holds.
absl::Status ReadManifest(const std::string& path, v1::PrewarmRequest& request);
absl::Status WriteManifest(const v1::PrewarmRequest& manifest, ExportFile& file);

// --manifest, --running, and which modules of CHECKPOINT.
std::vector<Option> NamingOptions();

// The modules of CHECKPOINT that the command line names; none without it, where options that choose some are
// an error.
absl::StatusOr<std::optional<v1::ModelModules>> NamedModules(const Arguments& arguments);

// Adds them. Where nothing is named at all, and with --running, the layers that the daemon holds.
template <typename Request>
absl::Status AddNamedLayers(const Arguments& arguments, Request& request) {
  GEMMD_ASSIGN_OR_RETURN(const std::optional<v1::ModelModules> modules, NamedModules(arguments));
  if (modules) *request.add_models() = *modules;
  const bool nothing =
      request.layers().empty() && request.shapes().empty() && request.models().empty();
  request.set_running_layers(arguments.Has("running") || nothing);
  return absl::OkStatus();
}

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_MANIFEST_H_

// What    The layers of prewarm and tune: a manifest, which is layers by format and shape as JSON (a
//         PrewarmRequest), and what the command line names.
// Errors  ReadManifest: InvalidArgument BAD_ARGUMENT, naming the file. WriteManifest: as ExportFile.
// Threads One thread.
#ifndef GEMMD_CLIENT_GEMMCTL_MANIFEST_H_
#define GEMMD_CLIENT_GEMMCTL_MANIFEST_H_

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/gemmctl/arguments.h"
#include "client/gemmctl/export_file.h"
#include "gemmd/v1/admin.pb.h"

namespace gemmd::gemmctl {

// Adds what the file holds.
absl::Status ReadManifest(const std::string& path, v1::PrewarmRequest& request);
absl::Status WriteManifest(const v1::PrewarmRequest& manifest, ExportFile& file);

// Adds CHECKPOINT [MODULE] of the command line. Where nothing is named at all, and with --running, the layers
// that the daemon holds.
template <typename Request>
void AddNamedLayers(const Arguments& arguments, Request& request) {
  const std::vector<std::string>& words = arguments.positional();
  if (!words.empty()) {
    v1::CheckpointSource* source = request.add_layers();
    source->set_path(std::filesystem::absolute(words[0]).lexically_normal().string());
    if (words.size() > 1) source->set_module(words[1]);
  }
  const bool nothing = request.layers().empty() && request.shapes().empty();
  request.set_running_layers(arguments.Has("running") || nothing);
}

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_MANIFEST_H_

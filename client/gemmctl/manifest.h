// What    A manifest: layers by format and shape as JSON (a PrewarmRequest), for prewarm and tune.
// Errors  ReadManifest: InvalidArgument BAD_ARGUMENT, naming the file. WriteManifest: as ExportFile.
// Threads One thread.
#ifndef GEMMD_CLIENT_GEMMCTL_MANIFEST_H_
#define GEMMD_CLIENT_GEMMCTL_MANIFEST_H_

#include <string>

#include "absl/status/status.h"
#include "client/gemmctl/export_file.h"
#include "gemmd/v1/admin.pb.h"

namespace gemmd::gemmctl {

// Adds what the file holds.
absl::Status ReadManifest(const std::string& path, v1::PrewarmRequest& request);
absl::Status WriteManifest(const v1::PrewarmRequest& manifest, ExportFile& file);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_MANIFEST_H_

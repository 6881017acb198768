#include "client/gemmctl/manifest.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "client/gemmctl/arguments.h"
#include "client/gemmctl/bounded_file.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

// More does not fit into a message to the daemon either.
constexpr uint64_t kMostManifestBytes = uint64_t{64} << 20;

}  // namespace

absl::Status ReadManifest(const std::string& path, v1::PrewarmRequest& request) {
  const absl::StatusOr<std::string> text = ReadText(path, kMostManifestBytes);
  if (!text.ok()) return BadArgument(absl::StrCat("--manifest ", text.status().message()));
  v1::PrewarmRequest manifest;
  const auto parsed = google::protobuf::util::JsonStringToMessage(*text, &manifest);
  if (!parsed.ok()) {
    return BadArgument(absl::StrCat("--manifest '", path, "': ", parsed.message().ToString()));
  }
  request.MergeFrom(manifest);
  return absl::OkStatus();
}

absl::Status WriteManifest(const v1::PrewarmRequest& manifest, ExportFile& file) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(manifest, &text, options).ok()) {
    return absl::InternalError("the manifest does not print");
  }
  GEMMD_RETURN_IF_ERROR(file.Write(text.data(), text.size()));
  return file.Commit();
}

}  // namespace gemmd::gemmctl

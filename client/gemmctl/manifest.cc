#include "client/gemmctl/manifest.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "client/gemmctl/bounded_file.h"
#include "client/gemmctl/quantize_option.h"
#include "client/gemmctl/register_model.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

// More does not fit into a message to the daemon either.
constexpr uint64_t kMostManifestBytes = uint64_t{64} << 20;

}  // namespace

std::vector<Option> NamingOptions() {
  std::vector<Option> options = {
      {"manifest", 0, "FILE", "", "layers that 'gemmctl prewarm --save' wrote, or a list by hand"},
      {"running", 0, "", "", "also the layers that the daemon holds now"}};
  for (Option& option : SelectionOptions("of CHECKPOINT: ")) options.push_back(std::move(option));
  options.push_back({"experts", 0, "PART", "",
                     "of CHECKPOINT: one rank's part of the experts, RANK/SIZE or BEGIN:END"});
  options.push_back(QuantizeOption("of CHECKPOINT: "));
  return options;
}

absl::StatusOr<std::optional<v1::ModelModules>> NamedModules(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.positional();
  if (words.empty()) {
    for (const char* option : {"modules", "exclude", "fuse", "tp", "experts", "quantize"}) {
      if (arguments.Has(option)) return BadArgument(absl::StrCat("--", option, " needs a CHECKPOINT"));
    }
    return std::nullopt;
  }
  if (words.size() > 1 && arguments.Has("modules")) {
    return BadArgument("MODULE and --modules exclude each other");
  }
  GEMMD_ASSIGN_OR_RETURN(v1::ModelModules modules, SelectionOf(arguments, words[0]));
  if (words.size() > 1) modules.add_modules(words[1]);
  return modules;
}

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

#include <algorithm>
#include <cstdio>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/gemmctl/architecture_list.h"
#include "client/gemmctl/bounded_file.h"
#include "client/gemmctl/cache_text.h"
#include "client/gemmctl/command.h"
#include "client/gemmctl/export_file.h"
#include "client/gemmctl/proto_json.h"
#include "client/gemmctl/table.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

std::vector<Option> CacheOptions() {
  return {{"arch", 0, "LIST", "", "list, purge, export: only kernels for these architectures, comma separated"},
          {"key", 0, "PREFIX", "", "the same: only kernels whose key starts with this"},
          {"other-compilers", 0, "", "",
           "the same: only kernels that another compiler than the daemon's has made"},
          {"all", 0, "", "", "purge: everything, instead of what these select"},
          {"force", 0, "", "", "export: replace FILE when it exists"},
          {"limit", 0, "COUNT", "1000", "list: at most this many"}};
}

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
constexpr absl::string_view kBundleMagic = "GEMMDBND";  // kernels/jit/README.md

// Of --key and of show's operand: what the daemon would refuse by the name of its field.
absl::Status CheckKey(const std::string& what, const std::string& prefix) {
  constexpr size_t kMostDigits = 64;
  const bool digits = prefix.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (digits && prefix.size() <= kMostDigits) return absl::OkStatus();
  return BadArgument(absl::StrCat(what, " '", prefix, "' is no beginning of a key: expected at most ", kMostDigits,
                                  " lower-case hexadecimal digits"));
}

absl::StatusOr<v1::CacheFilter> FilterOf(const Arguments& arguments) {
  v1::CacheFilter filter;
  filter.set_key_prefix(arguments.Text("key"));
  if (arguments.Has("arch")) {
    GEMMD_ASSIGN_OR_RETURN(const std::vector<std::string> names, ArchitectureNames(arguments.Text("arch")));
    filter.set_architecture(names[0]);  // alone it is what older daemons know
    for (size_t i = 1; i < names.size(); ++i) filter.add_architectures(names[i]);
  }
  filter.set_other_compilers(arguments.Has("other-compilers"));
  return filter;
}

absl::StatusOr<std::string> Operand(const Arguments& arguments, const std::string& what) {
  if (arguments.positional().size() > 1) return arguments.positional()[1];
  return BadArgument(absl::StrCat("cache ", arguments.positional()[0], " needs ", what));
}

absl::StatusOr<int> List(const Context& context, const Arguments& arguments,
                         const client::Admin& admin) {
  v1::ListCacheRequest request;
  GEMMD_ASSIGN_OR_RETURN(*request.mutable_filter(), FilterOf(arguments));
  GEMMD_ASSIGN_OR_RETURN(const int64_t limit, arguments.Integer("limit", 1, 5000));
  request.set_limit(static_cast<uint32_t>(limit));
  GEMMD_ASSIGN_OR_RETURN(const v1::ListCacheResponse response, admin.ListCache(request));
  if (!response.warning().empty()) context.Warn(response.warning());
  if (context.json) {
    context.PrintJson(ToJson(response));
    return kDone;
  }
  Table table({"KEY", "ARCH", "SIZE", "LOADED", "COMPILER", "KERNEL"});
  for (const v1::CachedKernel& kernel : response.kernels()) {
    table.Add({kernel.key().substr(0, 12), kernel.architecture(), BytesText(kernel.bytes()),
               kernel.loaded() ? "yes" : "-", kernel.compiler().substr(0, 12),
               kernel.problem().empty() ? kernel.kernel() : "unusable: " + kernel.problem()});
  }
  context.Print(table.Text());
  context.Print(absl::StrCat("\n", response.matching(), " kernels, ",
                             BytesText(response.matching_bytes()), ", in ", response.directory(),
                             "\n"));
  return kDone;
}

absl::StatusOr<int> Show(const Context& context, const Arguments& arguments,
                         const client::Admin& admin) {
  GEMMD_ASSIGN_OR_RETURN(const std::string key, Operand(arguments, "a key or its first digits"));
  GEMMD_RETURN_IF_ERROR(CheckKey("show", key));
  v1::ListCacheRequest request;
  request.mutable_filter()->set_key_prefix(key);
  GEMMD_ASSIGN_OR_RETURN(const v1::ListCacheResponse response, admin.ListCache(request));
  if (response.kernels().empty()) {
    return absl::NotFoundError(absl::StrCat("no kernel's key starts with ", key));
  }
  if (response.matching() > 1) {
    return BadArgument(absl::StrCat(response.matching(), " kernels' keys start with '", key,
                                    "': write more of it"));
  }
  for (const v1::CachedKernel& kernel : response.kernels()) {
    if (context.json) {
      context.PrintJson(ToJson(kernel));
      continue;
    }
    Table table({"", ""});
    table.Add({"key", kernel.key()});
    table.Add({"kernel", kernel.kernel()});
    table.Add({"architecture", kernel.architecture()});
    table.Add({"compiler", kernel.compiler()});
    table.Add({"size", BytesText(kernel.bytes())});
    table.Add({"loaded", kernel.loaded() ? "yes" : "no"});
    if (!kernel.problem().empty()) table.Add({"unusable", kernel.problem()});
    context.Print(absl::StrCat(table.Text(), kernel.usage(), "\n"));
  }
  return kDone;
}

absl::StatusOr<int> Verify(const Context& context, const Arguments&, const client::Admin& admin) {
  GEMMD_ASSIGN_OR_RETURN(const v1::VerifyCacheResponse response, admin.VerifyCache());
  if (context.json) {
    context.PrintJson(ToJson(response));
  } else {
    for (const v1::CachedKernel& kernel : response.dropped()) {
      context.Print(absl::StrCat("dropped ", kernel.key(), ": ", kernel.problem(), "\n"));
    }
    std::string text = absl::StrCat(response.checked(), " checked, ", response.dropped_size(), " dropped");
    if (!response.unreadable().empty()) absl::StrAppend(&text, ", ", response.unreadable_size(), " unreadable");
    if (!response.kept().empty()) absl::StrAppend(&text, ", ", response.kept_size(), " damaged but not removed");
    context.Print(text + "\n");
  }
  TellProblems(context, "unreadable", response.unreadable());
  TellProblems(context, "damaged but not removed", response.kept());
  const bool all_good = response.dropped().empty() && response.unreadable().empty() && response.kept().empty();
  return all_good ? kDone : kFailed;
}

absl::StatusOr<int> Purge(const Context& context, const Arguments& arguments,
                          const client::Admin& admin) {
  v1::PurgeCacheRequest request;
  GEMMD_ASSIGN_OR_RETURN(*request.mutable_filter(), FilterOf(arguments));
  request.set_everything(arguments.Has("all"));
  if ((request.filter().ByteSizeLong() != 0) == request.everything()) {
    return BadArgument("purge removes either what --key, --arch and --other-compilers select, or --all");
  }
  GEMMD_ASSIGN_OR_RETURN(const v1::PurgeCacheResponse response, admin.PurgeCache(request));
  if (context.json) {
    context.PrintJson(ToJson(response));
  } else {
    context.Print(
        absl::StrCat(response.entries(), " kernels removed, ", BytesText(response.bytes()), "\n"));
  }
  TellProblems(context, "not removed", response.kept());
  if (response.kept().empty()) return kDone;
  std::fprintf(context.err, "%d kernels could not be removed\n", response.kept_size());
  return kFailed;
}

// Of a bundle that is too large: how its parts are chosen here.
absl::Status WithOptions(const absl::Status& status) {
  return Error(status.code(), ReasonOf(status), absl::StrCat(status.message(), " (--arch, --key)"));
}

absl::StatusOr<int> Export(const Context& context, const Arguments& arguments,
                           const client::Admin& admin) {
  GEMMD_ASSIGN_OR_RETURN(const std::string path, Operand(arguments, "the file to write"));
  GEMMD_ASSIGN_OR_RETURN(ExportFile file, ExportFile::Create(path, arguments.Has("force")));
  v1::ExportCacheRequest request;
  GEMMD_ASSIGN_OR_RETURN(*request.mutable_filter(), FilterOf(arguments));
  v1::CacheChunk contents;
  uint64_t bytes = 0;
  absl::Status written;
  const absl::Status received = admin.ExportCache(request, [&](const v1::CacheChunk& piece) {
    if (piece.data().empty()) contents = piece;
    if (written.ok()) written = file.Write(piece.data().data(), piece.data().size());
    bytes += piece.data().size();
    return written.ok();
  });
  GEMMD_RETURN_IF_ERROR(written);
  if (ReasonOf(received) == "OUT_OF_RANGE") return WithOptions(received);
  GEMMD_RETURN_IF_ERROR(received);
  TellProblems(context, "not exported", contents.skipped());
  if (contents.kernels() == 0) {
    return Error(absl::StatusCode::kNotFound, "NOTHING_SELECTED",
                 absl::StrCat("the cache has no such kernel", contents.skipped().empty() ? "" : " that is whole", "; ",
                              path, " is not written"));
  }
  GEMMD_RETURN_IF_ERROR(file.Commit());
  if (context.json) {
    context.PrintJson({{"file", path},
                       {"kernels", contents.kernels()},
                       {"skipped", contents.skipped_size()},
                       {"bytes", bytes}});
  } else {
    context.Print(absl::StrCat(contents.kernels(), " kernels, ", BytesText(bytes), ", written to ", path, "\n"));
  }
  if (contents.skipped().empty()) return kDone;
  std::fprintf(context.err, "%d kernels are damaged or unreadable and were not exported\n", contents.skipped_size());
  return kFailed;
}

absl::StatusOr<bool> BeginsAsBundle(const BoundedFile& file) {
  if (file.size() < kBundleMagic.size()) return false;
  GEMMD_ASSIGN_OR_RETURN(const std::string begin, file.Read(0, kBundleMagic.size()));
  return begin == kBundleMagic;
}

// A file that begins as 'cache export' writes them, and is not too large; the daemon verifies the rest.
absl::StatusOr<BoundedFile> OpenBundle(const Context& context, const std::string& path) {
  GEMMD_ASSIGN_OR_RETURN(BoundedFile file, BoundedFile::Open(path));
  GEMMD_ASSIGN_OR_RETURN(const bool is_bundle, BeginsAsBundle(file));
  if (!is_bundle) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_FILE",
                 absl::StrCat(path, ": is no bundle of kernels that 'gemmctl cache export' wrote"));
  }
  if (file.size() <= context.max_bundle_bytes) return file;
  return Error(absl::StatusCode::kInvalidArgument, "OUT_OF_RANGE",
               absl::StrCat(path, ": has ", file.size(), " bytes, a bundle has at most ", context.max_bundle_bytes,
                            "; where it was made, export it in parts (--arch, --key)"));
}

// What the daemon says of the bytes; it does not know the file.
bool IsAboutBundle(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  return reason == "BUNDLE_DAMAGED" || reason == "OUT_OF_RANGE";
}

// A daemon without a compiler counts every kernel as another's.
void WarnOfCompiler(const Context& context, const client::Admin& admin, uint64_t kernels) {
  const absl::StatusOr<v1::GetStatusResponse> status = admin.Status();
  const bool has_none = status.ok() && status->compiler().empty();
  const std::string text =
      has_none ? absl::StrCat("the daemon has no compiler (NVRTC): whether the ", kernels,
                              " kernels are of its version could not be compared; they serve as long as there is none")
               : absl::StrCat(kernels, " come from another compiler than this daemon's: they serve only ",
                              "where there is none");
  context.Warn(text);
}

absl::StatusOr<int> Import(const Context& context, const Arguments& arguments,
                           const client::Admin& admin) {
  GEMMD_ASSIGN_OR_RETURN(const std::string path, Operand(arguments, "the file to read"));
  GEMMD_ASSIGN_OR_RETURN(const BoundedFile file, OpenBundle(context, path));
  uint64_t sent = 0;
  absl::Status read;
  const absl::StatusOr<v1::ImportCacheResponse> answer = admin.ImportCache([&](std::string* piece) {
    if (sent == file.size()) return false;
    absl::StatusOr<std::string> bytes = file.Read(sent, std::min(kPieceBytes, file.size() - sent));
    read = bytes.status();
    if (!read.ok()) return false;  // the daemon takes nothing of a bundle that ends early
    sent += bytes->size();
    *piece = *std::move(bytes);
    return true;
  });
  GEMMD_RETURN_IF_ERROR(read);
  if (IsAboutBundle(answer.status())) return Annotate(answer.status(), path);
  GEMMD_RETURN_IF_ERROR(answer.status());
  const v1::ImportCacheResponse& response = *answer;
  WarnOfOverflow(context, "imported", response.overflow());
  if (response.other_compiler() > 0) WarnOfCompiler(context, admin, response.other_compiler());
  if (context.json) {
    context.PrintJson(ToJson(response));
  } else {
    context.Print(absl::StrCat(response.imported(), " imported, ", response.present(), " were there already\n"));
  }
  return kDone;
}

struct Action {
  std::string name;
  absl::StatusOr<int> (*run)(const Context&, const Arguments&, const client::Admin&);
  bool takes_operand;
  std::set<std::string> options;
};

const std::vector<Action>& Actions() {
  static const auto* const actions = new std::vector<Action>{
      {"list", &List, false, {"arch", "key", "other-compilers", "limit"}},
      {"show", &Show, true, {}},
      {"verify", &Verify, false, {}},
      {"purge", &Purge, false, {"arch", "key", "other-compilers", "all"}},
      {"export", &Export, true, {"arch", "key", "other-compilers", "force"}},
      {"import", &Import, true, {}}};
  return *actions;
}

absl::Status CheckWords(const Action& action, const Arguments& arguments) {
  if (arguments.positional().size() > (action.takes_operand ? 2u : 1u)) {
    return BadArgument(absl::StrCat("'", arguments.positional().back(), "' is one word too many"));
  }
  for (const Option& option : CacheOptions()) {
    if (!arguments.Given(option.name) || action.options.count(option.name) != 0) continue;
    return BadArgument(absl::StrCat("cache ", action.name, " takes no --", option.name));
  }
  for (const char* filter : {"arch", "key"}) {  // of an unset variable, it would select everything
    if (!arguments.Given(filter) || !arguments.Text(filter).empty()) continue;
    return BadArgument(absl::StrCat("--", filter, " is empty"));
  }
  GEMMD_RETURN_IF_ERROR(FilterOf(arguments).status());
  return CheckKey("--key", arguments.Text("key"));
}

absl::StatusOr<int> RunCache(const Context& context, const Arguments& arguments) {
  const std::string name = arguments.positional().empty() ? "list" : arguments.positional()[0];
  for (const Action& action : Actions()) {
    if (name != action.name) continue;
    GEMMD_RETURN_IF_ERROR(CheckWords(action, arguments));
    GEMMD_ASSIGN_OR_RETURN(const client::Admin admin, context.OpenAdmin());
    return action.run(context, arguments, admin);
  }
  return BadArgument(
      absl::StrCat("cache '", name, "' is none of list, show, verify, purge, export, import"));
}

}  // namespace

Command CacheCommand() {
  return {.name = "cache",
          .synopsis = "[list | show KEY | verify | purge | export FILE | import FILE]",
          .summary = "the compiled kernels of this node",
          .description =
              "  list    kernels on disk, most recently used first\n"
              "  show    one kernel: what it is, registers, spills\n"
              "  verify  read every entry, drop what is damaged; exit 1 when something was, or cannot be read\n"
              "  purge   remove what the options select; loaded kernels stay in use; exit 1 when a file cannot go\n"
              "  export  what the options select as one file, for another machine; exit 1 when that is nothing, and\n"
              "          when an entry is damaged: the others are in the file. A bundle has at most 1 GiB: export a\n"
          "          larger cache in parts, by --arch or --key (one file for each first digit of the keys)\n"
              "  import  take such a file; it is verified as a whole before anything is taken. A warning tells when\n"
              "          kernels did not stay, because cache_max_bytes is smaller than they are",
          .options = CacheOptions(),
          .examples =
              "  gemmctl cache list --arch sm_90a\n"
              "  gemmctl cache export llama-sm_90a.kernels --arch sm_90a\n"
              "  gemmctl cache import llama-sm_90a.kernels\n"
              "  gemmctl cache purge --arch sm_80,sm_86\n"
              "  gemmctl cache purge --other-compilers",
          .most_positional = 2,
          .run = RunCache};
}

}  // namespace gemmd::gemmctl

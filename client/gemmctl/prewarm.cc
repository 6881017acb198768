#include <filesystem>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/gemmctl/architecture_list.h"
#include "client/gemmctl/cache_text.h"
#include "client/gemmctl/command.h"
#include "client/gemmctl/export_file.h"
#include "client/gemmctl/manifest.h"
#include "client/gemmctl/proto_json.h"
#include "client/gemmctl/token_counts.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

const char* OutcomeText(v1::PrewarmOutcome outcome) {
  switch (outcome) {
    case v1::PREWARM_OUTCOME_CACHED:
      return "cached";
    case v1::PREWARM_OUTCOME_COMPILED:
      return "compiled";
    case v1::PREWARM_OUTCOME_FAILED:
      return "failed";
    case v1::PREWARM_OUTCOME_NO_KERNEL:
      return "no kernel";
    case v1::PREWARM_OUTCOME_NOT_STORED:
      return "not stored";
    default:
      return "unknown";
  }
}

absl::Status SetRows(const Arguments& arguments, v1::PrewarmRequest& request) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<TokenRange> ranges, TokenRanges(arguments, "m", {}));
  request.clear_rows();
  for (const TokenRange& range : ranges) {
    v1::RowRange* row = request.add_rows();
    row->set_first(range.first);
    row->set_last(range.last);
  }
  return absl::OkStatus();
}

absl::Status SetArchitectures(const std::string& list, v1::PrewarmRequest& request) {
  request.clear_architecture();
  request.clear_architectures();
  GEMMD_ASSIGN_OR_RETURN(const std::vector<std::string> names, ArchitectureNames(list));
  for (const std::string& name : names) request.add_architectures(name);
  return absl::OkStatus();
}

absl::StatusOr<v1::PrewarmRequest> MakeRequest(const Arguments& arguments) {
  v1::PrewarmRequest request;
  if (arguments.Has("manifest")) {
    GEMMD_RETURN_IF_ERROR(ReadManifest(arguments.Text("manifest"), request));
  }
  if (arguments.Has("arch")) GEMMD_RETURN_IF_ERROR(SetArchitectures(arguments.Text("arch"), request));
  if (arguments.Given("m")) GEMMD_RETURN_IF_ERROR(SetRows(arguments, request));
  GEMMD_RETURN_IF_ERROR(AddNamedLayers(arguments, request));
  return request;
}

// What happened, as it comes in.
class Report {
 public:
  explicit Report(const Context& context) : context_(context) {}

  void Take(const v1::PrewarmProgress& progress) {
    if (progress.waits_behind() > 0) {
      std::fprintf(context_.err, "waiting: %u other prewarm%s before this one\n", progress.waits_behind(),
                   progress.waits_behind() == 1 ? " goes" : "s go");
      return;
    }
    if (progress.has_overflow()) {
      overflow_ = progress.overflow();
      return;
    }
    if (progress.total() == 0) {
      *manifest_.mutable_shapes() = progress.layers();
      *manifest_.mutable_architectures() = progress.architectures();
      named_ = progress.named_layers();
      for (const std::string& note : progress.notes()) {
        std::fprintf(context_.err, "note: %s\n", Printable(note).c_str());
      }
      return;
    }
    ++counts_[progress.outcome()];
    whole_ = progress.done() == progress.total();
    if (context_.json) steps_.push_back(ToJson(progress));
    Print(progress);
  }

  void Summarize() const {
    WarnOfOverflow(context_, "prewarmed", overflow_);
    if (context_.json) {
      nlohmann::ordered_json all = {
          {"layers", manifest_.shapes_size()}, {"named_layers", named_}, {"kernels", steps_}};
      if (overflow_.kernels() + overflow_.removed() > 0) all["overflow"] = ToJson(overflow_);
      context_.PrintJson(all);
      return;
    }
    const std::string outcomes = absl::StrJoin(counts_, ", ", [](std::string* text, const auto& counted) {
      absl::StrAppend(text, counted.second, " ", OutcomeText(counted.first));
    });
    context_.Print(absl::StrCat(manifest_.shapes_size(), " distinct layers of ", named_, outcomes.empty() ? "" : ": ",
                                outcomes, "\n"));
  }

  // Every kernel was tried.
  bool is_whole() const { return whole_; }
  bool did_anything() const { return !counts_.empty(); }
  // No kernel failed, and where there were layers, there is one for them.
  bool IsGood() const {
    const int usable = Count(v1::PREWARM_OUTCOME_COMPILED) + Count(v1::PREWARM_OUTCOME_CACHED);
    return Count(v1::PREWARM_OUTCOME_FAILED) == 0 && (usable > 0 || counts_.empty());
  }
  const v1::PrewarmRequest& manifest() const { return manifest_; }

 private:
  int Count(v1::PrewarmOutcome outcome) const {
    const auto found = counts_.find(outcome);
    return found == counts_.end() ? 0 : found->second;
  }

  void Print(const v1::PrewarmProgress& step) const {
    std::fprintf(context_.err, "[%u/%u] %-10s %-8s %s", step.done(), step.total(),
                 OutcomeText(step.outcome()), Printable(step.architecture()).c_str(),
                 Printable(step.kernel()).c_str());
    if (step.outcome() == v1::PREWARM_OUTCOME_COMPILED) {
      std::fprintf(context_.err, "  %.2f s", step.seconds());
    }
    std::fprintf(context_.err, "\n");
    if (!step.message().empty()) {
      std::fprintf(context_.err, "    %s\n", PrintableLines(step.message()).c_str());
    }
  }

  const Context& context_;
  std::map<v1::PrewarmOutcome, int> counts_;
  v1::PrewarmRequest manifest_;
  uint32_t named_ = 0;  // layers, before equal ones became one
  bool whole_ = false;
  v1::CacheOverflow overflow_;
  nlohmann::ordered_json steps_ = nlohmann::ordered_json::array();
};

absl::StatusOr<int> RunPrewarm(const Context& context, const Arguments& arguments) {
  if (arguments.Has("force") && !arguments.Has("save")) return BadArgument("--force needs --save");
  GEMMD_ASSIGN_OR_RETURN(const v1::PrewarmRequest request, MakeRequest(arguments));
  std::optional<ExportFile> saved;  // refused before anything is compiled
  if (arguments.Has("save")) {
    GEMMD_ASSIGN_OR_RETURN(ExportFile file,
                           ExportFile::Create(arguments.Text("save"), arguments.Has("force")));
    saved.emplace(std::move(file));
  }
  GEMMD_ASSIGN_OR_RETURN(const client::Admin admin, context.OpenAdmin());
  Report report(context);
  const absl::Status prewarmed = admin.Prewarm(
      request, [&report](const v1::PrewarmProgress& progress) { report.Take(progress); });
  // All kernels were tried: what became of them is told, then the error.
  if (ReasonOf(prewarmed) == "NO_ARCHITECTURE") return Annotate(prewarmed, "--arch is missing");
  if (!prewarmed.ok() && !report.is_whole()) return prewarmed;
  const bool has_layers = report.manifest().shapes_size() > 0;
  if (saved.has_value() && has_layers) {
    v1::PrewarmRequest manifest = report.manifest();
    *manifest.mutable_rows() = request.rows();
    GEMMD_RETURN_IF_ERROR(WriteManifest(manifest, *saved));
  }
  report.Summarize();
  GEMMD_RETURN_IF_ERROR(prewarmed);
  if (!report.did_anything() && !arguments.Has("running")) {
    return absl::FailedPreconditionError(
        "nothing to compile: no layer was given, and the daemon holds none");
  }
  if (saved.has_value() && !has_layers) {
    return Error(absl::StatusCode::kNotFound, "NOTHING_SELECTED",
                 absl::StrCat("there is no layer; ", arguments.Text("save"), " is not written"));
  }
  return report.IsGood() ? kDone : kFailed;
}

std::vector<Option> PrewarmOptions() {
  std::vector<Option> options = {
      {"arch", 0, "LIST", "",
       "architectures, comma separated, as GPUs are named (sm_80, sm_90a: with a from sm_90 on); else the "
       "manifest's, else those of the daemon's GPUs"},
      {"m", 0, "LIST", "",
       "only kernels for requests of so many tokens, such as 1-64,256; else of any number"}};
  for (Option& option : NamingOptions()) options.push_back(std::move(option));
  options.push_back({"save", 0, "FILE", "", "write the layers as a manifest"});
  options.push_back({"force", 0, "", "", "replace the file of --save when it exists"});
  return options;
}

}  // namespace

Command PrewarmCommand() {
  return {
      .name = "prewarm",
      .synopsis = "[CHECKPOINT [MODULE]]",
      .summary = "compile kernels before they are needed",
      .description =
          "  Compiles what the quantized modules of CHECKPOINT need (a folder below one of the\n"
          "  daemon's checkpoint roots; or one MODULE of it), the layers of a manifest, or the\n"
          "  layers that the daemon holds now (also when nothing is given). Name the modules as the\n"
          "  workers register them, with the options of 'gemmctl register --all': fused and cut for a\n"
          "  rank they need other kernels. Layers whose names differ in numbers only, and whose tensors\n"
          "  have the same types and shapes, count as equal: one of them is read, and no model is too large.\n"
          "  An unquantized model takes the --quantize of the workers ('gemmctl register --help').\n"
          "  Kernels named Moe* come with dense layers too: a GPU loads them with every layer, before the layer\n"
          "  is ready, as it cannot know whether MoE requests will use it.\n"
          "\n"
          "  One prewarm runs at a time, on all processors; up to 64 more wait for their turn, and say how many\n"
          "  go first, so every rank of a node may start one.\n"
          "\n"
          "  Needs no GPU: with --arch a daemon on any machine fills a cache for others, see 'gemmctl\n"
          "  cache export'. A manifest is JSON: {\"shapes\": [{\"spec\": QuantSpec, \"experts\", \"n\", \"k\",\n"
          "  \"has_input_scale\": true where a GPU multiplies x by a factor per column first,\n"
          "  \"declares_activations\": true where the layer says how x is quantized}],\n"
          "  \"architectures\": [...], \"rows\": [{\"first\", \"last\"}]}; --save writes one. Progress goes to\n"
          "  stderr. Without NVRTC it finds what the cache has, and fails when that is not all; a warning tells\n"
          "  when cache_max_bytes is too small for what was compiled, and when it was purged meanwhile. Exit code 1 when a kernel does not compile\n"
          "  or does not reach the cache's directory, when no kernel exists for what was asked (an architecture\n"
          "  that gemmd has none for, or that there is not), and when there is no layer, but with --running;\n"
          "  with --save then too.",
      .options = PrewarmOptions(),
      .examples =
          "  gemmctl prewarm /models/llama --fuse --tp 0/4 --arch sm_90a,sm_80 --save llama.json\n"
          "  gemmctl prewarm /models/llama --m 1-64\n"
          "  gemmctl prewarm /models/llama-bf16 --quantize w4a16 --exclude '*embed_tokens,lm_head'\n"
          "  gemmctl prewarm --manifest llama.json\n"
          "  gemmctl prewarm --running",
      .most_positional = 2,
      .run = RunPrewarm};
}

}  // namespace gemmd::gemmctl

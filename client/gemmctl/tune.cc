#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/gemmctl/bounded_file.h"
#include "client/gemmctl/command.h"
#include "client/gemmctl/export_file.h"
#include "client/gemmctl/manifest.h"
#include "client/gemmctl/proto_json.h"
#include "client/gemmctl/table.h"
#include "client/gemmctl/token_counts.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 20;  // what the daemon measures at most, and at how many M
constexpr int64_t kMostPoints = 64;
constexpr int64_t kMostSeconds = 7 * 24 * 3600;
constexpr uint64_t kMostImportedBytes = uint64_t{256} << 20;
constexpr size_t kEntriesAtATime = 100;  // of an import: a message holds 4 MiB

std::string Microseconds(double ns) { return absl::StrFormat("%.2f", ns / 1000); }

std::string LayerText(const v1::TuneProgress& step) {
  return absl::StrCat(step.n(), "x", step.k(), " ", step.spec(),
                      step.x_type().empty() ? "" : absl::StrCat(", ", step.x_type(), " x"));
}

absl::StatusOr<v1::TuneRequest> MakeTuneRequest(const Arguments& arguments) {
  v1::TuneRequest request;
  if (arguments.Has("manifest")) {
    v1::PrewarmRequest manifest;
    GEMMD_RETURN_IF_ERROR(ReadManifest(arguments.Text("manifest"), manifest));
    *request.mutable_layers() = manifest.layers();
    *request.mutable_shapes() = manifest.shapes();
    *request.mutable_models() = manifest.models();
  }
  GEMMD_RETURN_IF_ERROR(AddNamedLayers(arguments, request));
  request.set_device(arguments.Text("device"));
  request.set_all_x_types(arguments.Has("all-x-types"));
  if (arguments.Given("m")) {
    GEMMD_ASSIGN_OR_RETURN(const std::vector<int64_t> rows,
                           TokenCounts(arguments, "m", {.most = kMostRows, .most_counts = kMostPoints}));
    for (const int64_t m : rows) request.add_m(m);
  }
  GEMMD_ASSIGN_OR_RETURN(const int64_t candidates, arguments.Integer("candidates", 1, 64));
  GEMMD_ASSIGN_OR_RETURN(const int64_t samples, arguments.Integer("samples", 1, 1001));
  request.set_candidates(static_cast<uint32_t>(candidates));
  request.set_samples(static_cast<uint32_t>(samples));
  if (arguments.Has("time-limit")) {
    GEMMD_ASSIGN_OR_RETURN(const int64_t seconds, arguments.Integer("time-limit", 1, kMostSeconds));
    request.set_time_limit_seconds(static_cast<uint32_t>(seconds));
  }
  return request;
}

// What was measured, as it comes in.
class TuneReport {
 public:
  explicit TuneReport(const Context& context) : context_(context) {}

  void Take(const v1::TuneProgress& step) {
    failed_ = failed_ || step.outcome() == v1::TUNE_OUTCOME_FAILED;
    if (context_.json) steps_.push_back(ToJson(step));
    Print(step);
    if (step.outcome() != v1::TUNE_OUTCOME_MEASURED) return;
    ++measured_;
    layers_.insert(absl::StrCat(step.n(), "x", step.k(), " ", step.spec()));
    if (step.kernel() == step.model_kernel() || step.point().model_choice_ns() == 0) return;
    if (step.point().ns() < step.point().model_choice_ns()) ++changed_;
  }

  void Summarize() const {
    if (context_.json) {
      context_.PrintJson({{"measured", measured_}, {"layers", layers_.size()}, {"points", steps_}});
      return;
    }
    context_.Print(absl::StrCat(measured_, " points of ", layers_.size(), " distinct layers measured; at ", changed_,
                                " of them another kernel than the model's is faster\n"));
  }

  bool failed() const { return failed_; }

 private:
  void Print(const v1::TuneProgress& step) const {
    std::string text = absl::StrCat("[", step.done(), "/", step.total(), "] ", LayerText(step));
    if (step.point().m() > 0) absl::StrAppend(&text, ", M = ", step.point().m());
    switch (step.outcome()) {
      case v1::TUNE_OUTCOME_MEASURED:
        absl::StrAppend(&text, ": ", Microseconds(step.point().ns()), " us ", step.kernel(),
                        " (the model's: ", Microseconds(step.point().model_choice_ns()), " us)");
        break;
      case v1::TUNE_OUTCOME_NO_KERNEL:
        absl::StrAppend(&text, ": nothing to choose");
        break;
      case v1::TUNE_OUTCOME_OUT_OF_TIME:
        text = "the time limit came first";
        break;
      default:
        absl::StrAppend(&text, ": failed");
    }
    if (!step.message().empty()) absl::StrAppend(&text, "\n    ", step.message());
    std::fprintf(context_.err, "%s\n", PrintableLines(text).c_str());
  }

  const Context& context_;
  int measured_ = 0;
  int changed_ = 0;
  bool failed_ = false;
  std::set<std::string> layers_;  // measured: of one format and shape there is one
  nlohmann::ordered_json steps_ = nlohmann::ordered_json::array();
};

absl::StatusOr<int> Measure(const Context& context, const Arguments& arguments,
                            const client::Admin& admin) {
  GEMMD_ASSIGN_OR_RETURN(const v1::TuneRequest request, MakeTuneRequest(arguments));
  TuneReport report(context);
  GEMMD_RETURN_IF_ERROR(
      admin.Tune(request, [&report](const v1::TuneProgress& step) { report.Take(step); }));
  report.Summarize();
  return report.failed() ? kFailed : kDone;
}

const char* OriginText(const v1::TunedLayer& layer) {
  if (layer.stale()) return "stale";
  return layer.built_in() ? "shipped" : "measured";
}

absl::StatusOr<int> ListTables(const Context& context, const Arguments&,
                               const client::Admin& admin) {
  GEMMD_ASSIGN_OR_RETURN(const v1::ListTuningResponse response, admin.ListTuning());
  for (const std::string& warning : response.warnings()) context.Warn(warning);
  if (context.json) {
    context.PrintJson(ToJson(response));
    return kDone;
  }
  Table table({"GPU", "N", "K", "X", "STATE", "DATE", "M", "US", "MODEL US", "FORMAT"});
  for (const v1::TunedLayer& layer : response.layers()) {
    for (const v1::MeasuredPoint& point : layer.points()) {
      table.Add({layer.device_name(), absl::StrCat(layer.n()), absl::StrCat(layer.k()),
                 layer.x_type(), OriginText(layer), layer.date(), absl::StrCat(point.m()),
                 Microseconds(point.ns()), Microseconds(point.model_choice_ns()), layer.spec()});
    }
  }
  context.Print(table.Text());
  if (response.truncated()) context.Print("there are more; --export writes all\n");
  if (response.directory().empty()) context.Print("kept in memory only\n");
  return kDone;
}

absl::StatusOr<int> ExportTables(const Context& context, const Arguments& arguments,
                                 const client::Admin& admin) {
  const std::string path = arguments.Text("export");
  GEMMD_ASSIGN_OR_RETURN(ExportFile file, ExportFile::Create(path, arguments.Has("force")));
  GEMMD_ASSIGN_OR_RETURN(const std::string json, admin.ExportTuning());
  const nlohmann::json parsed = nlohmann::json::parse(json, nullptr, false);
  const size_t layers = parsed.is_object() ? parsed.value("entries", nlohmann::json()).size() : 0;
  if (layers == 0) {
    return Error(absl::StatusCode::kNotFound, "NOTHING_SELECTED",
                 absl::StrCat("nothing was measured or imported here; ", path, " is not written"));
  }
  GEMMD_RETURN_IF_ERROR(file.Write(json.data(), json.size()));
  GEMMD_RETURN_IF_ERROR(file.Commit());
  if (context.json) {
    context.PrintJson({{"file", path}, {"layers", layers}});
  } else {
    context.Print(absl::StrCat(layers, " layers written to ", path, "\n"));
  }
  return kDone;
}

// The file in pieces that fit a message; what is no list of entries goes as it is, for the daemon to judge.
std::vector<std::string> Pieces(const std::string& text) {
  const auto file = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!file.is_object() || !file.contains("entries") || !file["entries"].is_array()) return {text};
  std::vector<std::string> pieces;
  const auto& entries = file["entries"];
  for (size_t at = 0; at < std::max<size_t>(entries.size(), 1); at += kEntriesAtATime) {
    nlohmann::ordered_json piece = file;
    const auto first = entries.begin() + static_cast<ptrdiff_t>(at);
    const size_t count = std::min(kEntriesAtATime, entries.size() - at);
    piece["entries"] = nlohmann::ordered_json::array();
    piece["entries"].insert(piece["entries"].end(), first, first + static_cast<ptrdiff_t>(count));
    pieces.push_back(piece.dump());
  }
  return pieces;
}

// The daemon sees a piece and not the file: what it says of one is about entries from `first` on.
absl::Status AboutFile(const absl::Status& status, const std::string& path, size_t first,
                       const v1::ImportTuningResponse& before) {
  if (ReasonOf(status) != "TUNING_DAMAGED") return status;
  std::string place = absl::StrCat(path, ": ");
  if (first > 0) {
    absl::StrAppend(&place, "after ", before.layers(), " layers were imported, counting entries from ", first, ": ");
  }
  return Error(status.code(), ReasonOf(status), absl::StrCat(place, status.message()));
}

absl::StatusOr<int> ImportTables(const Context& context, const Arguments& arguments,
                                 const client::Admin& admin) {
  GEMMD_ASSIGN_OR_RETURN(const std::string text,
                         ReadText(arguments.Text("import"), kMostImportedBytes));
  v1::ImportTuningResponse sum;
  size_t first = 0;  // entry of the piece
  for (const std::string& piece : Pieces(text)) {
    const absl::StatusOr<v1::ImportTuningResponse> response = admin.ImportTuning(piece);
    if (!response.ok()) return AboutFile(response.status(), arguments.Text("import"), first, sum);
    sum.set_layers(sum.layers() + response->layers());
    sum.set_stale(sum.stale() + response->stale());
    first += kEntriesAtATime;
  }
  const int code = sum.layers() == 0 && sum.stale() > 0 ? kFailed : kDone;
  if (sum.stale() > 0) context.Warn(absl::StrCat(sum.stale(), " were measured with other kernels and are not taken"));
  if (context.json) {
    context.PrintJson(ToJson(sum));
    return code;
  }
  context.Print(absl::StrCat(sum.layers(), " layers imported\n"));
  return code;
}

std::vector<Option> TuneOptions() {
  std::vector<Option> options = NamingOptions();
  for (const Option& option : std::vector<Option>{
           {"device", 0, "ID", "", "which GPU, as 'gemmctl devices' names it; else the best"},
           {"m", 0, "LIST", "",
            "numbers of tokens and ranges of them, such as 1-8,64, at most 64; else "
            "1,8,16,32,64,128,256,512,1024,2048,4096"},
           {"candidates", 0, "COUNT", "6", "kernels measured for each M"},
           {"samples", 0, "COUNT", "15", "times of each; the median counts"},
           {"time-limit", 0, "SECONDS", "", "stop after so long; what was measured stays"},
           {"all-x-types", 0, "", "", "every type that x may have, not only bfloat16"},
           {"list", 0, "", "", "what is known, and from where"},
           {"export", 0, "FILE", "",
            "write what was measured or imported here; exit 1 when that is nothing"},
           {"force", 0, "", "", "export: replace the file when it exists"},
           {"import", 0, "FILE", "",
            "take what another machine with the same GPU exported; exit 1 when all of it is stale"}}) {
    options.push_back(option);
  }
  return options;
}

struct TuneAction {
  const char* name;  // its option; empty: to measure
  absl::StatusOr<int> (*run)(const Context&, const Arguments&, const client::Admin&);
};

constexpr TuneAction kMeasure = {"", &Measure};
constexpr TuneAction kTuneActions[] = {{"list", &ListTables}, {"export", &ExportTables}, {"import", &ImportTables}};

absl::StatusOr<TuneAction> TuneActionOf(const Arguments& arguments) {
  TuneAction chosen = kMeasure;
  for (const TuneAction& action : kTuneActions) {
    if (!arguments.Has(action.name)) continue;
    if (chosen.run != kMeasure.run) return BadArgument("--list, --export and --import are commands of their own");
    chosen = action;
  }
  return chosen;
}

// --list, --export and --import take nothing of what measuring takes; --force goes with --export only.
absl::Status CheckTuneWords(const TuneAction& action, const Arguments& arguments) {
  const std::string name = action.name;
  if (arguments.Has("force") && name != "export") return BadArgument("--force needs --export");
  if (name.empty()) return absl::OkStatus();
  if (!arguments.positional().empty()) {
    return BadArgument(absl::StrCat("'", arguments.positional()[0], "' is one word too many"));
  }
  for (const Option& option : TuneOptions()) {
    if (!arguments.Given(option.name) || option.name == name || option.name == "force") continue;
    return BadArgument(absl::StrCat("tune --", name, " takes no --", option.name));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RunTune(const Context& context, const Arguments& arguments) {
  GEMMD_ASSIGN_OR_RETURN(const TuneAction action, TuneActionOf(arguments));
  GEMMD_RETURN_IF_ERROR(CheckTuneWords(action, arguments));
  GEMMD_ASSIGN_OR_RETURN(const client::Admin admin, context.OpenAdmin());
  return action.run(context, arguments, admin);
}

}  // namespace

Command TuneCommand() {
  return {
      .name = "tune",
      .synopsis = "[CHECKPOINT [MODULE]] | --list | --export FILE | --import FILE",
      .summary = "measure on the GPU which kernels serve layers best",
      .description =
          "  Measures kernels for the quantized modules of CHECKPOINT (a folder below one of the "
          "daemon's\n"
          "  checkpoint roots; or one MODULE of it), the layers of a manifest, or the layers that "
          "the daemon\n"
          "  holds now (also when nothing is given). Name the modules as the workers register them, with the\n"
          "  options of 'gemmctl register --all', --quantize too. For each M the candidates that the model "
          "thinks best are\n"
          "  compiled, self-tested and timed in turns, each time with a cold L2; the fastest is "
          "kept, with the\n"
          "  conditions, in the folder 'tuning' of the daemon's cache. Weights and activations are "
          "random.\n"
          "  Measuring waits while requests are queued or run, and counts no time that one "
          "disturbed; work of\n"
          "  other processes on the GPU it cannot see.\n"
          "\n"
          "  Layers that are loaded follow what was found at the end of the run, others when they "
          "are loaded.\n"
          "  What is imported counts for layers that are loaded afterwards. What was measured of "
          "kernels that\n"
          "  have changed since is stale and decides nothing. 'gemmctl explain' shows what was chosen "
          "by what.",
      .options = TuneOptions(),
      .examples =
          "  gemmctl tune /models/llama --fuse --tp 0/4 --time-limit 300\n"
          "  gemmctl tune --running --m 1,16,64 --candidates 10\n"
          "  gemmctl tune --export h200.json",
      .most_positional = 2,
      .run = RunTune};
}

}  // namespace gemmd::gemmctl

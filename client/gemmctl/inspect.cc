// What    gemmctl inspect: what is in a checkpoint, without a daemon.
#include "absl/strings/str_cat.h"
#include "client/gemmctl/command.h"
#include "client/gemmctl/inspect_checkpoint.h"
#include "client/gemmctl/inspect_text.h"
#include "client/gemmctl/progress_line.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

absl::StatusOr<int> RunInspect(const Context& context, const Arguments& arguments) {
  if (arguments.positional().empty()) return BadArgument("the checkpoint's folder is needed");
  absl::StatusOr<CheckpointReport> report;
  {
    ProgressLine line(context);
    report = InspectCheckpoint(arguments.positional()[0],
                               [&line](uint64_t done, uint64_t total, const std::string& module) {
                                 if (line.due())
                                   line.Show(absl::StrCat("[", done, "/", total, "] ", module));
                               });
  }
  if (!report.ok()) return report.status();
  if (context.json) {
    context.PrintJson(ReportJson(*report));
  } else {
    context.Print(ReportText(*report, arguments.Has("all")));
  }
  return report->problems.empty() ? kDone : kFailed;
}

}  // namespace

Command InspectCommand() {
  return {
      .name = "inspect",
      .synopsis = "DIR",
      .summary = "what is in a checkpoint, without a daemon",
      .description =
          "  Reads every quantized module of the checkpoint as the daemon would, one at a time, "
          "and\n"
          "  says its scheme, shape and bytes, the type of activations that its config declares,\n"
          "  and with which kernels each device runs it: the CPU, and every architecture from\n"
          "  Turing on. 'specialised' kernels exist for the types of x that are named, 'generic'\n"
          "  ones take every type. A problem is named with file, module, tensor, expected and "
          "got,\n"
          "  and gives exit code 1; so does a checkpoint without a module, with experts missing "
          "or\n"
          "  layers missing that config.json counts, or with a layer that lacks one of q, k, v, of\n"
          "  gate and up, or o_proj or down_proj where others have it ('register --fuse' refuses\n"
          "  these). Without an index every *.safetensors file is read; one that is damaged or missing is\n"
          "  a problem of its own. Modules whose names differ in numbers only share a line.\n"
          "  Progress goes to stderr.",
      .options = {{"all", 0, "", "", "a line for every module"}},
      .examples =
          "  gemmctl inspect /models/llama\n"
          "  gemmctl inspect /models/llama -o json | jq '.problems'",
      .most_positional = 1,
      .offline = true,
      .run = RunInspect};
}

}  // namespace gemmd::gemmctl

// What    gemmctl inspect: what is in a checkpoint, without a daemon.
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/gemmctl/command.h"
#include "client/gemmctl/inspect_checkpoint.h"
#include "client/gemmctl/inspect_text.h"
#include "client/gemmctl/progress_line.h"
#include "client/gemmctl/quantize_option.h"
#include "client/gemmctl/reading_option.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

absl::StatusOr<int> RunInspect(const Context& context, const Arguments& arguments) {
  if (arguments.positional().empty()) return BadArgument("the checkpoint's folder is needed");
  GEMMD_ASSIGN_OR_RETURN(const std::optional<QuantizeTarget> quantize, QuantizeTargetOf(arguments));
  GEMMD_ASSIGN_OR_RETURN(const ReadingOptions reading, ReadingOptionsOf(arguments));
  absl::StatusOr<CheckpointReport> report;
  {
    ProgressLine line(context);
    report = InspectCheckpoint(arguments.positional()[0],
                               [&line](uint64_t done, uint64_t total, const std::string& module) {
                                 if (line.due())
                                   line.Show(absl::StrCat("[", done, "/", total, "] ", module));
                               },
                               quantize, reading);
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
          "  Progress goes to stderr.\n"
          "\n"
          "  With --quantize the modules of an unquantized checkpoint are quantized as 'register "
          "--quantize'\n"
          "  would do it, and thrown away: what is told is the result, ERROR what rounding takes from "
          "the\n"
          "  weights. Nothing is written. A module that cannot be quantized (it is already, or has a NaN) "
          "is a\n"
          "  problem; groups that do not divide K are told as a note. It takes a core 8 to 30 seconds "
          "for\n"
          "  1e9 weights. 'gemmctl register --help' says what SPEC is.",
      .options = {{"all", 0, "", "", "a line for every module"},
                  QuantizeOption("show what this would give: "),
                  GptqZeroPointsOption("else word")},
      .examples =
          "  gemmctl inspect /models/llama\n"
          "  gemmctl inspect /models/llama-bf16 --quantize int4,group=128\n"
          "  gemmctl inspect /models/llama -o json | jq '.problems'",
      .most_positional = 1,
      .offline = true,
      .run = RunInspect};
}

}  // namespace gemmd::gemmctl

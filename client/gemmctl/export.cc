// What    gemmctl export: one layer of a checkpoint as a file, without a daemon.
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/gemmctl/command.h"
#include "client/gemmctl/export_file.h"
#include "client/gemmctl/export_layer.h"
#include "client/gemmctl/printable.h"
#include "client/gemmctl/progress_line.h"
#include "client/gemmctl/quantize_option.h"
#include "client/gemmctl/reading_option.h"
#include "client/gemmctl/table.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/reading_notes.h"
#include "core/quant/standard_tensor.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

struct ExportJob {
  std::string directory;
  std::string module;
  std::string path;
  bool float32 = false;
  bool replace = false;
  std::optional<QuantizeTarget> quantize;
  ReadingOptions reading;
};

absl::StatusOr<ExportJob> ReadJob(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.positional();
  if (words.size() != 3) {
    return BadArgument("the checkpoint's folder, the module and FILE are needed");
  }
  const std::string form = arguments.Text("as");
  if (form != "standard" && form != "float32") {
    return BadArgument(absl::StrCat("--as '", form, "' is neither standard nor float32"));
  }
  ExportJob job{words[0], words[1], words[2], form == "float32", arguments.Has("force"), std::nullopt, {}};
  GEMMD_ASSIGN_OR_RETURN(job.quantize, QuantizeTargetOf(arguments));
  GEMMD_ASSIGN_OR_RETURN(job.reading, ReadingOptionsOf(arguments));
  return job;
}

ProgressFunction Showing(ProgressLine& line, const std::string& what) {
  return [&line, what](uint64_t done, uint64_t total) {
    if (line.due()) line.Show(absl::StrCat(what, " ", BytesText(done), " of ", BytesText(total)));
    return true;
  };
}

// The file that the caller may not have is refused before the layer is read.
absl::StatusOr<ExportedLayer> Export(const Context& context, const ExportJob& job) {
  GEMMD_ASSIGN_OR_RETURN(ExportFile file, ExportFile::Create(job.path, job.replace));
  ProgressLine line(context);
  // Whoever runs this tool may read what the system lets them read.
  std::optional<QuantizeOnRead> quantize;
  if (job.quantize.has_value()) quantize = QuantizeOnRead{*job.quantize, nullptr, Showing(line, "quantized")};
  GEMMD_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(job.directory, {"/"}));
  GEMMD_ASSIGN_OR_RETURN(CheckpointLayer layer,
                         checkpoint->ReadLayer(job.module, Showing(line, "read"), {},
                                               quantize.has_value() ? &*quantize : nullptr, job.reading));
  layer.notes = ReadingNotes(*checkpoint, {{.module = job.module, .slice = {}}}, job.reading);
  const std::string digest = Digest(layer.tensor);
  ExportedLayer exported{std::move(layer), job.module, digest};
  const auto write = job.float32 ? WriteFloat32 : WriteStandard;
  GEMMD_RETURN_IF_ERROR(write(exported, Showing(line, "written"), file));
  GEMMD_RETURN_IF_ERROR(file.Commit());
  return exported;
}

absl::StatusOr<int> RunExport(const Context& context, const Arguments& arguments) {
  GEMMD_ASSIGN_OR_RETURN(const ExportJob job, ReadJob(arguments));
  GEMMD_ASSIGN_OR_RETURN(const ExportedLayer exported, Export(context, job));
  const LayerShape& shape = exported.layer.tensor.shape;
  for (const std::string& note : exported.layer.notes) {
    std::fprintf(context.err, "note: %s\n", Printable(note).c_str());
  }
  const uint64_t bytes = std::filesystem::file_size(job.path);
  const std::optional<QuantizedHere>& quantized = exported.layer.quantized;
  const double lost = quantized.has_value() ? quantized->error.relative() : 0;
  if (context.json) {
    context.PrintJson({{"file", job.path},
                       {"bytes", bytes},
                       {"form", job.float32 ? "float32" : "standard"},
                       {"module", job.module},
                       {"exporter", exported.layer.format},
                       {"quantized", quantized.has_value()},
                       {"quantization_error", lost},
                       {"experts", shape.experts},
                       {"n", shape.n},
                       {"k", shape.k},
                       {"digest", exported.digest},
                       {"notes", exported.layer.notes}});
    return kDone;
  }
  context.Print(absl::StrCat(job.path, ": ", BytesText(bytes), ", ", shape.experts, " x ", shape.n,
                             " x ", shape.k, ", digest ", exported.digest,
                             quantized.has_value() ? absl::StrFormat(", relative error of the weights %.2e", lost) : "",
                             "\n"));
  return kDone;
}

}  // namespace

Command ExportCommand() {
  return {
      .name = "export",
      .synopsis = "DIR MODULE FILE",
      .summary = "write a layer of a checkpoint as safetensors, without a daemon",
      .description =
          "  Reads one module as the daemon would and writes it to FILE, in the standard\n"
          "  representation (codes, scales, zero points; core/quant/README.md has the layout) or\n"
          "  as float32 weights, rounded as the exporter's own code does. FILE appears when it is\n"
          "  complete. Weights of --as float32 serve 'gemmctl run --expected FILE:MODULE.weight'.\n"
          "  With --quantize unquantized weights are quantized first, as the daemon does when a layer is\n"
          "  registered so: FILE has what it would hold. Progress goes to stderr.\n"
          "\n" +
          QuantizeHelp(),
      .options = {{"as", 0, "FORM", "standard", "standard or float32"},
                  QuantizeOption(),
                  GptqZeroPointsOption("else word"),
                  {"force", 0, "", "", "replace FILE when it exists"}},
      .examples =
          "  gemmctl export /models/llama model.layers.0.mlp.down_proj down.safetensors\n"
          "  gemmctl export /models/llama model.layers.0.mlp.down_proj w.safetensors --as float32\n"
          "  gemmctl export /models/llama-bf16 model.layers.0.mlp.down_proj w4.safetensors --quantize w4a16",
      .most_positional = 3,
      .offline = true,
      .run = RunExport};
}

}  // namespace gemmd::gemmctl

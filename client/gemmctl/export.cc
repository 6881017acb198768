// What    gemmctl export: one layer of a checkpoint as a file, without a daemon.
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "client/gemmctl/command.h"
#include "client/gemmctl/export_file.h"
#include "client/gemmctl/export_layer.h"
#include "client/gemmctl/progress_line.h"
#include "client/gemmctl/table.h"
#include "core/checkpoint/checkpoint.h"
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
  return ExportJob{words[0], words[1], words[2], form == "float32", arguments.Has("force")};
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
  GEMMD_ASSIGN_OR_RETURN(CheckpointLayer layer,
                         ReadLayer(job.directory, job.module, Showing(line, "read"), {"/"}));
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
  const uint64_t bytes = std::filesystem::file_size(job.path);
  if (context.json) {
    context.PrintJson({{"file", job.path},
                       {"bytes", bytes},
                       {"form", job.float32 ? "float32" : "standard"},
                       {"module", job.module},
                       {"exporter", exported.layer.format},
                       {"experts", shape.experts},
                       {"n", shape.n},
                       {"k", shape.k},
                       {"digest", exported.digest}});
    return kDone;
  }
  context.Print(absl::StrCat(job.path, ": ", BytesText(bytes), ", ", shape.experts, " x ", shape.n,
                             " x ", shape.k, ", digest ", exported.digest, "\n"));
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
          "  Progress goes to stderr.",
      .options = {{"as", 0, "FORM", "standard", "standard or float32"},
                  {"force", 0, "", "", "replace FILE when it exists"}},
      .examples =
          "  gemmctl export /models/llama model.layers.0.mlp.down_proj down.safetensors\n"
          "  gemmctl export /models/llama model.layers.0.mlp.down_proj w.safetensors --as float32",
      .most_positional = 3,
      .offline = true,
      .run = RunExport};
}

}  // namespace gemmd::gemmctl

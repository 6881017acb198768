#include "client/gemmctl/layer_source.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/gemmctl/printable.h"
#include "client/gemmctl/proto_json.h"
#include "client/gemmctl/quantize_option.h"
#include "client/gemmctl/reading_option.h"
#include "client/gemmctl/table.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

const char* StageText(v1::RegisterLayerProgress::Stage stage) {
  switch (stage) {
    case v1::RegisterLayerProgress::STAGE_LOADING:
      return "loading";
    case v1::RegisterLayerProgress::STAGE_QUANTIZING:
      return "quantizing";
    case v1::RegisterLayerProgress::STAGE_PACKING:
      return "packing";
    case v1::RegisterLayerProgress::STAGE_READY:
      return "ready";
    default:
      return "waiting";
  }
}

// Redraws one line on a terminal; elsewhere one line per stage, which may come again.
class ProgressPrinter {
 public:
  explicit ProgressPrinter(const Context& context) : context_(context) {}

  void Show(const v1::RegisterLayerProgress& progress) {
    if (context_.progress_bar) {
      Bar(progress);
    } else if (told_.insert(progress.stage()).second) {
      std::fprintf(context_.err, "%s\n", StageText(progress.stage()));
    }
  }

 private:
  void Bar(const v1::RegisterLayerProgress& progress) {
    constexpr int kWidth = 40;
    const bool ready = progress.stage() == v1::RegisterLayerProgress::STAGE_READY;
    const uint64_t total = std::max<uint64_t>(progress.bytes_total(), 1);
    const uint64_t done = ready ? total : std::min(progress.bytes_done(), total);
    const int filled =
        static_cast<int>(static_cast<double>(done) / static_cast<double>(total) * kWidth);
    std::fprintf(context_.err, "\r%-10s [%s%s] %s / %s%s", StageText(progress.stage()),
                 std::string(filled, '#').c_str(), std::string(kWidth - filled, ' ').c_str(),
                 BytesText(ready ? progress.bytes_total() : done).c_str(),
                 BytesText(progress.bytes_total()).c_str(), ready ? "\n" : "");
    std::fflush(context_.err);
  }

  const Context& context_;
  std::set<v1::RegisterLayerProgress::Stage> told_;
};

absl::Status FindDevice(const client::Session& session, const std::string& wanted,
                        LayerSource* source) {
  GEMMD_ASSIGN_OR_RETURN(const v1::HelloResponse hello, session.hello());
  std::string known;
  for (const v1::DeviceInfo& device : hello.devices()) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", device.id());
    if (wanted == "auto" ? !device.ready() : device.id() != wanted) continue;
    source->device = device.id();
    source->device_text = absl::StrCat(device.id(), ", ", device.name());
    return absl::OkStatus();
  }
  return BadArgument(absl::StrCat("--device '", wanted, "' is not one of: ", known));
}

// As the arguments have it.
LayerSource NamedSource(const Arguments& arguments) {
  LayerSource source{.path = arguments.Text("checkpoint"),
                     .module = arguments.Text("module"),
                     .name = arguments.Text("name")};
  const std::vector<std::string>& words = arguments.positional();
  if (!words.empty()) source.path = words[0];
  if (words.size() > 1) source.module = words[1];
  return source;
}

}  // namespace

std::vector<Option> LayerOptions() {
  return {{"checkpoint", 0, "DIR", "", "folder of the checkpoint; or the first argument"},
          {"module", 0, "MODULE", "", "module in it; or the second argument"},
          {"device", 0, "ID", "auto", "auto (the best ready device), cpu or cuda:<GPU UUID>"},
          {"name", 0, "NAME", "", "label of the layer; else the module's name"},
          QuantizeOption(),
          GptqZeroPointsOption("else as the daemon is set")};
}

absl::Status CheckSource(const Arguments& arguments) {
  const LayerSource source = NamedSource(arguments);
  if (source.path.empty() || source.module.empty()) {
    return BadArgument("the checkpoint's folder and the module are needed");
  }
  GEMMD_RETURN_IF_ERROR(QuantizeOf(arguments).status());
  return GptqZeroPointsOf(arguments).status();
}

absl::StatusOr<LayerSource> FindSource(const Arguments& arguments, const client::Session& session) {
  GEMMD_RETURN_IF_ERROR(CheckSource(arguments));
  LayerSource source = NamedSource(arguments);
  GEMMD_ASSIGN_OR_RETURN(source.quantize, QuantizeOf(arguments));
  GEMMD_ASSIGN_OR_RETURN(source.gptq_zero_points, GptqZeroPointsOf(arguments));
  source.path = std::filesystem::absolute(source.path).lexically_normal().string();
  GEMMD_RETURN_IF_ERROR(FindDevice(session, arguments.Text("device"), &source));
  return source;
}

v1::CheckpointSource LayerSource::Checkpoint() const {
  v1::CheckpointSource checkpoint;
  checkpoint.set_path(path);
  checkpoint.set_module(module);
  *checkpoint.mutable_slice() = slice;
  if (quantize.has_value()) *checkpoint.mutable_quantize() = *quantize;
  checkpoint.set_gptq_zero_points(gptq_zero_points);
  return checkpoint;
}

absl::StatusOr<client::Layer> RegisterWithProgress(const Context& context, client::Session& session,
                                                   const LayerSource& source,
                                                   const std::string& device) {
  auto printer = std::make_shared<ProgressPrinter>(context);
  return session.RegisterCheckpoint(
      source.Checkpoint(), device, source.name,
      [printer](const v1::RegisterLayerProgress& progress) { printer->Show(progress); });
}

void TellNotes(const Context& context, const client::Layer& layer) {
  for (const std::string& note : layer.notes()) std::fprintf(context.err, "note: %s\n", Printable(note).c_str());
}

nlohmann::ordered_json LayerJson(const client::Layer& layer) {
  nlohmann::ordered_json json = ToJson(layer.info());
  json["notes"] = layer.notes();
  return json;
}

}  // namespace gemmd::gemmctl

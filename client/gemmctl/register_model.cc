#include "client/gemmctl/register_model.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/gemmctl/format_text.h"
#include "client/gemmctl/layer_source.h"
#include "client/gemmctl/progress_line.h"
#include "client/gemmctl/proto_json.h"
#include "client/gemmctl/quantize_option.h"
#include "client/gemmctl/reading_option.h"
#include "client/gemmctl/slice_options.h"
#include "client/gemmctl/table.h"
#include "client/layer_slice.h"
#include "core/checkpoint/errors.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

// None where the option is not given; an empty one, of an unset variable for example, would choose every module.
absl::StatusOr<std::vector<std::string>> Patterns(const Arguments& arguments, const std::string& option) {
  if (!arguments.Has(option)) return std::vector<std::string>();
  std::vector<std::string> patterns = absl::StrSplit(arguments.Text(option), ',');
  for (const std::string& pattern : patterns) {
    if (!pattern.empty()) continue;
    return BadArgument(absl::StrCat("--", option, " '", arguments.Text(option),
                                    "' has an empty pattern; '*' is every module"));
  }
  return patterns;
}

absl::Status SetTensor(const Arguments& arguments, v1::ModelSlice& slice) {
  const std::string text = arguments.Text("tp");
  const std::vector<std::string> numbers = absl::StrSplit(text, '/');
  uint32_t rank = 0;
  uint32_t size = 0;
  if (numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &rank) ||
      !absl::SimpleAtoi(numbers[1], &size)) {
    return BadArgument(absl::StrCat("--tp '", text, "' is not RANK/SIZE, such as 0/4"));
  }
  GEMMD_RETURN_IF_ERROR(CheckRank("tp", text, rank, size));
  *slice.mutable_tensor() = client::RankOf(rank, size).rank();
  return absl::OkStatus();
}

std::string ProgressText(const v1::RegisterModelProgress& progress) {
  return absl::StrCat(progress.modules_done(), " of ", progress.modules_total(), " modules, ",
                      BytesText(progress.bytes_done()), " of ", BytesText(progress.bytes_total()),
                      "  ", progress.module().module());
}

// A line for each fault: one of the config fails every module that it concerns.
std::string FailuresText(const client::Model& model) {
  struct Fault {
    std::string module;  // the first
    size_t more = 0;
    std::string reason;
    std::string message;
  };
  std::vector<Fault> faults;
  std::map<std::string, size_t> known;  // by what is wrong
  for (const auto& [module, failure] : model.failures) {
    const auto [at, is_new] = known.emplace(FaultOf(failure.reason(), failure.message()), faults.size());
    if (is_new) {
      faults.push_back({module, 0, failure.reason(), failure.message()});
    } else {
      ++faults[at->second].more;
    }
  }
  Table table({"MODULE", "REASON", "MESSAGE"});
  for (const Fault& fault : faults) {
    table.Add({fault.more == 0 ? fault.module : absl::StrCat(fault.module, " and ", fault.more, " more"),
               fault.reason, fault.message});
  }
  return table.Text();
}

// "3.41e-02"; "-" of weights that were quantized before.
std::string ErrorText(const v1::LayerInfo& info) {
  if (info.quantized() == v1::SCALE_RULE_UNSPECIFIED) return "-";
  return absl::StrFormat("%.2e", info.quantization_error());
}

bool AnyQuantizedHere(const client::Model& model) {
  return std::any_of(model.layers.begin(), model.layers.end(), [](const auto& entry) {
    return entry.second.info().quantized() != v1::SCALE_RULE_UNSPECIFIED;
  });
}

std::string ModelText(const client::Model& model) {
  const bool quantized = AnyQuantizedHere(model);
  std::vector<std::string> header = {"MODULE", "E x N x K", "WEIGHT", "FORMAT", "ON DEVICE", "HELD BY"};
  if (quantized) header.push_back("RELATIVE ERROR");
  Table layers(header);
  uint64_t bytes = 0;
  for (const auto& [module, layer] : model.layers) {
    const v1::LayerInfo info = layer.info();
    bytes += info.bytes();
    std::vector<std::string> row = {module,
                                    absl::StrCat(info.experts(), " x ", info.n(), " x ", info.k()),
                                    FormatText(info.spec().weight(), "none"),
                                    SourceText(info),
                                    BytesText(info.bytes()),
                                    absl::StrCat(info.references())};
    if (quantized) row.push_back(ErrorText(info));
    layers.Add(std::move(row));
  }
  std::string text = absl::StrCat(layers.Text(), "\n", model.layers.size(), " layers, ",
                                  BytesText(bytes), " on the device\n");
  if (model.failures.empty()) return text;
  return absl::StrCat(text, "\n", model.failures.size(), " of ",
                      model.layers.size() + model.failures.size(), " modules were not registered:\n",
                      FailuresText(model));
}

void WarnOfWeights(const Context& context, const client::Model& model) {
  for (const auto& [module, layer] : model.layers) {
    const int64_t count = layer.info().not_finite_weights();
    if (count == 0) continue;
    std::fprintf(context.err, "warning: module %s: %lld of its weights are NaN or infinite\n",
                 Printable(module).c_str(), static_cast<long long>(count));
  }
}

// Whether --experts chose anything: of a stack, or among experts that are stored one by one.
bool HasExperts(const client::Model& model) {
  return std::any_of(model.layers.begin(), model.layers.end(), [](const auto& entry) {
    return entry.second.info().experts() > 1 || absl::StrContains(entry.first, "experts.");
  });
}

nlohmann::ordered_json ModelJson(const client::Model& model) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::object();
  for (const auto& [module, layer] : model.layers) layers[module] = LayerJson(layer);
  nlohmann::ordered_json failures = nlohmann::ordered_json::object();
  for (const auto& [module, failure] : model.failures) failures[module] = ToJson(failure);
  return {{"layers", layers}, {"failures", failures}};
}

}  // namespace

std::vector<Option> SelectionOptions(const std::string& when) {
  return {{"modules", 0, "LIST", "",
           when + "patterns ('*', '?') or names, comma separated; also of fused modules"},
          {"exclude", 0, "LIST", "", when + "patterns of modules to leave out"},
          {"fuse", 0, "", "",
           when + "q, k, v as qkv_proj, gate, up as gate_up_proj, experts as stacks"},
          {"tp", 0, "RANK/SIZE", "",
           when + "one rank of tensor parallelism; modules are cut as their names say"}};
}

absl::StatusOr<v1::ModelModules> SelectionOf(const Arguments& arguments, const std::string& path) {
  v1::ModelModules selection;
  selection.set_path(std::filesystem::absolute(path).lexically_normal().string());
  GEMMD_ASSIGN_OR_RETURN(const std::vector<std::string> modules, Patterns(arguments, "modules"));
  *selection.mutable_modules() = {modules.begin(), modules.end()};
  GEMMD_ASSIGN_OR_RETURN(const std::vector<std::string> excluded, Patterns(arguments, "exclude"));
  *selection.mutable_exclude() = {excluded.begin(), excluded.end()};
  selection.set_fuse(arguments.Has("fuse"));
  GEMMD_ASSIGN_OR_RETURN(const v1::LayerSlice slice, SliceOf(arguments));
  if (slice.has_experts()) *selection.mutable_slice()->mutable_experts() = slice.experts();
  if (arguments.Has("tp")) GEMMD_RETURN_IF_ERROR(SetTensor(arguments, *selection.mutable_slice()));
  GEMMD_ASSIGN_OR_RETURN(const std::optional<v1::QuantizeTo> quantize, QuantizeOf(arguments));
  if (quantize.has_value()) *selection.mutable_quantize() = *quantize;
  return selection;
}

std::vector<Option> ModelOptions() {
  std::vector<Option> options = {
      {"all", 0, "", "", "every module of the checkpoint, or those of --modules"}};
  for (Option& option : SelectionOptions("with --all: ")) options.push_back(std::move(option));
  options.push_back({"keep-going", 0, "", "", "with --all: register the others when a module fails"});
  return options;
}

absl::Status CheckOneModule(const Arguments& arguments) {
  for (const Option& option : ModelOptions()) {
    if (!arguments.Has(option.name)) continue;
    const char* const hint =
        option.name == "tp" ? "; a module alone is cut with --rows, --columns, --experts" : "";
    return BadArgument(absl::StrCat("--", option.name, " needs --all", hint));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::RegisterModelRequest> ModelRequest(const Arguments& arguments) {
  std::string path = arguments.Text("checkpoint");
  const std::vector<std::string>& words = arguments.positional();
  if (!words.empty()) path = words[0];
  if (path.empty()) return BadArgument("the checkpoint's folder is needed");
  if (words.size() > 1 || arguments.Has("module")) {
    return BadArgument("--all takes no module; --modules chooses some");
  }
  for (const char* option : {"rows", "columns", "row-parts", "name"}) {
    if (!arguments.Has(option)) continue;
    return BadArgument(absl::StrCat("--", option, " is of one module; --all takes --tp, --experts"));
  }
  GEMMD_ASSIGN_OR_RETURN(v1::ModelModules selection, SelectionOf(arguments, path));
  v1::RegisterModelRequest request;
  GEMMD_ASSIGN_OR_RETURN(const v1::GptqZeroPoints zero_points, GptqZeroPointsOf(arguments));
  request.set_gptq_zero_points(zero_points);
  if (selection.has_quantize()) request.mutable_quantize()->Swap(selection.mutable_quantize());
  request.set_path(selection.path());
  const std::string device = arguments.Text("device");
  if (device != "auto") request.set_device(device);
  request.mutable_modules()->Swap(selection.mutable_modules());
  request.mutable_exclude()->Swap(selection.mutable_exclude());
  request.set_fuse(selection.fuse());
  request.set_keep_going(arguments.Has("keep-going"));
  if (selection.has_slice()) request.mutable_slice()->Swap(selection.mutable_slice());
  return request;
}

absl::StatusOr<client::Model> RegisterAll(const Context& context,
                                          const v1::RegisterModelRequest& request,
                                          client::Session& session) {
  auto line = std::make_unique<ProgressLine>(context);
  auto model = client::RegisterModel(session, request, [&](const auto& progress) {
    for (const std::string& pattern : progress.unmatched_exclude()) {
      std::fprintf(context.err, "warning: --exclude '%s' matches none of the chosen modules\n", Printable(pattern).c_str());
    }
    for (const std::string& note : progress.notes()) {
      std::fprintf(context.err, "note: %s\n", Printable(note).c_str());
    }
    if (line->due()) line->Show(ProgressText(progress));
    return true;
  });
  line.reset();  // wiped before anything is printed
  GEMMD_RETURN_IF_ERROR(model.status());
  if (request.slice().has_experts() && !HasExperts(*model)) {
    std::fprintf(context.err, "warning: --experts chose nothing: no module has experts\n");
  }
  WarnOfWeights(context, *model);
  if (context.json) {
    context.PrintJson(ModelJson(*model));
  } else {
    context.Print(ModelText(*model));
  }
  return model;
}

}  // namespace gemmd::gemmctl

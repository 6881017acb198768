#include "client/gemmctl/inspect_text.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/gemmctl/export_spec.h"
#include "client/gemmctl/table.h"

namespace gemmd::gemmctl {
namespace {

std::string BlockText(int64_t block_n, int64_t block_k) {
  if (block_n == 0 && block_k == 0) return "per tensor";
  if (block_n == 1 && block_k == 0) return "per channel";
  const auto extent = [](int64_t block) { return block == 0 ? "all" : absl::StrCat(block); };
  return absl::StrCat("per ", extent(block_n), " x ", extent(block_k));
}

std::string ScaleText(ActivationScaleKind kind, int64_t group) {
  switch (kind) {
    case ActivationScaleKind::kNone:
      break;
    case ActivationScaleKind::kStaticTensor:
      return ", static";
    case ActivationScaleKind::kDynamicToken:
      return ", per token";
    case ActivationScaleKind::kDynamicGroup:
      return absl::StrCat(", per ", group, " columns");
  }
  return "";
}

// Layers with numbers in their names, "model.layers.0.mlp" and "model.layers.1.mlp", as one pattern.
std::string PatternOf(const std::string& module) {
  std::string pattern;
  for (const char c : module) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    const bool part_starts = pattern.empty() || pattern.back() == '.';
    if (!digit || !(part_starts || pattern.back() == '*')) {
      pattern += c;
    } else if (pattern.empty() || pattern.back() != '*') {
      pattern += '*';
    }
  }
  return pattern;
}

// The distinct answers of devices: most modules of a checkpoint share one.
class DeviceSets {
 public:
  explicit DeviceSets(const CheckpointReport& report) {
    for (const ModuleReport& module : report.modules) {
      const auto found = std::find(sets_.begin(), sets_.end(), module.devices);
      index_.push_back(static_cast<size_t>(found - sets_.begin()));
      if (found == sets_.end()) sets_.push_back(module.devices);
    }
  }
  const std::vector<std::vector<DeviceSupport>>& all() const { return sets_; }
  size_t IndexOf(size_t module) const { return index_[module]; }

 private:
  std::vector<std::vector<DeviceSupport>> sets_;
  std::vector<size_t> index_;  // of each module
};

std::string ShapeText(const ModuleReport& module) {
  const auto& [experts, n, k] = module.facts.shape;
  return absl::StrCat(experts, " x ", n, " x ", k);
}

double ErrorOf(const ModuleReport& module) {
  return module.quantized.has_value() ? module.quantized->error.relative() : 0;
}

struct ModuleGroup {
  std::string first;  // name of one of them
  uint64_t modules = 0;
  uint64_t stored_bytes = 0;
  uint64_t layer_bytes = 0;
  double error = 0;  // the largest
};

std::string ModulesText(const CheckpointReport& report, bool every_module) {
  std::map<std::vector<std::string>, ModuleGroup> groups;
  for (const ModuleReport& module : report.modules) {
    ModuleGroup& group =
        groups[{every_module ? module.module : PatternOf(module.module), ShapeText(module),
                SchemeText(module.facts), ActivationText(module.facts)}];
    group.first = module.module;
    ++group.modules;
    group.stored_bytes += module.stored_bytes;
    group.layer_bytes += module.layer_bytes;
    group.error = std::max(group.error, ErrorOf(module));
  }
  const bool quantized = report.modules[0].quantized.has_value();
  std::vector<std::string> header = {"MODULE", "COUNT", "E x N x K", "IN FILES", "AS LAYERS", "ASKS FOR", "SCHEME"};
  if (quantized) header.emplace_back("ERROR");
  Table table(header);
  for (const auto& [text, group] : groups) {
    std::vector<std::string> cells = {group.modules == 1 ? group.first : text[0],
                                      absl::StrCat(group.modules),
                                      text[1],
                                      BytesText(group.stored_bytes),
                                      BytesText(group.layer_bytes),
                                      text[3],
                                      text[2]};
    if (quantized) cells.push_back(absl::StrFormat("%.2e", group.error));
    table.Add(cells);
  }
  return table.Text();
}

// What a row of the devices' table says about one device.
std::vector<std::string> DeviceCells(const DeviceSupport& support) {
  if (support.kernels == KernelFamily::kNone) return {"none", "-", support.why};
  std::string types =
      absl::StrJoin(support.specialised.empty() ? support.activations : support.specialised, ", ");
  if (!support.specialised.empty()) absl::StrAppend(&types, "; others generic");
  return {KernelFamilyName(support.kernels), types, support.why.empty() ? "-" : support.why};
}

// Whether both answer the same, but for their own names in the reason.
bool AnswerAlike(const DeviceSupport& a, const DeviceSupport& b) {
  DeviceSupport renamed = b;
  renamed.device = a.device;
  absl::StrReplaceAll({{b.device, a.device}}, &renamed.why);
  return a == renamed;
}

// Neighbouring devices that answer alike share a row.
void AddDevices(const std::string& scheme, uint64_t layers,
                const std::vector<DeviceSupport>& devices, Table& table) {
  for (size_t i = 0, next = 0; i < devices.size(); i = next) {
    std::string names = devices[i].device;
    for (next = i + 1; next < devices.size() && AnswerAlike(devices[i], devices[next]); ++next) {
      absl::StrAppend(&names, " ", devices[next].device);
    }
    const std::vector<std::string> cells = DeviceCells(devices[i]);
    table.Add({i == 0 ? scheme : "", i == 0 ? absl::StrCat(layers) : "", names, cells[0], cells[1],
               cells[2]});
  }
}

std::string DevicesText(const CheckpointReport& report) {
  std::map<std::pair<std::string, size_t>, uint64_t> schemes;
  const DeviceSets sets(report);
  for (size_t i = 0; i < report.modules.size(); ++i) {
    const StandardTensor& facts = report.modules[i].facts;
    ++schemes[{absl::StrCat(SchemeText(facts), "; ", ActivationText(facts)), sets.IndexOf(i)}];
  }
  Table table({"SCHEME; ASKS FOR", "LAYERS", "DEVICE", "KERNELS", "TYPES OF X", "WHY"});
  for (const auto& [scheme, layers] : schemes) {
    AddDevices(scheme.first, layers, sets.all()[scheme.second], table);
  }
  return table.Text();
}

// "3 weights of 1 module are NaN or infinite, the first in a.b"; empty where none is.
std::string NotFiniteText(const CheckpointReport& report) {
  int64_t weights = 0;
  int64_t modules = 0;
  std::string first;
  for (const ModuleReport& module : report.modules) {
    if (module.not_finite_weights == 0) continue;
    if (modules++ == 0) first = module.module;
    weights += module.not_finite_weights;
  }
  if (modules == 0) return "";
  return absl::StrCat(weights, weights == 1 ? " weight of " : " weights of ", modules,
                      modules == 1 ? " module" : " modules", weights == 1 ? " is" : " are",
                      " NaN or infinite, the first in ", first);
}

// Empty where nothing was quantized for the report.
std::string QuantizedText(const CheckpointReport& report) {
  QuantizationError all;
  const ModuleReport* worst = nullptr;
  for (const ModuleReport& module : report.modules) {
    if (!module.quantized.has_value()) continue;
    all.Add(module.quantized->error);
    if (worst == nullptr || ErrorOf(module) > ErrorOf(*worst)) worst = &module;
  }
  if (worst == nullptr) return "";
  return absl::StrFormat("for this report only; relative error of the weights %.2e, at most %.2e (%s)", all.relative(),
                         ErrorOf(*worst), worst->module);
}

std::string SummaryText(const CheckpointReport& report) {
  uint64_t stored = 0;
  uint64_t as_layers = 0;
  for (const ModuleReport& module : report.modules) {
    stored += module.stored_bytes;
    as_layers += module.layer_bytes;
  }
  Table table({"checkpoint", report.directory});
  table.Add({"exporter", report.exporter.empty() ? "-" : report.exporter});
  table.Add({"layers", absl::StrCat(report.modules.size(), " of ", report.quantized_modules,
                                    " modules can be loaded")});
  table.Add({"bytes", absl::StrCat(BytesText(report.tensor_bytes), " in ", report.tensors,
                                   " tensors of ", report.files, " files; the layers ",
                                   BytesText(stored), ", once loaded ", BytesText(as_layers))});
  const std::string quantized = QuantizedText(report);
  if (!quantized.empty()) table.Add({"quantized", quantized});
  const std::string not_finite = NotFiniteText(report);
  if (!not_finite.empty()) table.Add({"not finite", not_finite});
  for (const std::string& note : report.notes) table.Add({"note", note});
  table.Add({"problems", absl::StrCat(report.problems.size())});
  return table.Text();
}

std::string ProblemsText(const CheckpointReport& report) {
  std::string text = "PROBLEMS\n";
  for (const Problem& problem : report.problems) {
    absl::StrAppend(&text, "  ", problem.reason, "  ");
    // Messages of the reader name the module where they are about one.
    if (problem.message.find(problem.module) == std::string::npos) {
      absl::StrAppend(&text, "module ", problem.module, ": ");
    }
    absl::StrAppend(&text, problem.message, "\n");
  }
  return text;
}

nlohmann::ordered_json DevicesJson(const std::vector<DeviceSupport>& devices) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const DeviceSupport& support : devices) {
    json.push_back({{"device", support.device},
                    {"runs", support.kernels != KernelFamily::kNone},
                    {"kernels", KernelFamilyName(support.kernels)},
                    {"activations", support.activations},
                    {"specialised", support.specialised},
                    {"why", support.why}});
  }
  return json;
}

nlohmann::ordered_json ModuleJson(const ModuleReport& module, size_t device_set) {
  nlohmann::ordered_json json = {{"module", module.module},
                                 {"exporter", module.exporter},
                                 {"scheme", SchemeText(module.facts)},
                                 {"activations", ActivationText(module.facts)},
                                 {"stored_bytes", module.stored_bytes},
                                 {"layer_bytes", module.layer_bytes},
                                 {"not_finite_weights", module.not_finite_weights},
                                 {"quantized", module.quantized.has_value()},
                                 {"quantization_error", ErrorOf(module)},
                                 {"device_set", device_set}};
  json.update(LayerJson(module.facts));
  return json;
}

}  // namespace

std::string SchemeText(const StandardTensor& tensor) {
  const QuantSpec& spec = tensor.spec;
  std::string text = FormatName(spec.weight, "none");
  if (spec.zero_point == ZeroPointKind::kInteger) absl::StrAppend(&text, " with zero points");
  if (spec.zero_point == ZeroPointKind::kFloat) absl::StrAppend(&text, " with float zero points");
  if (spec.scale.present()) {
    absl::StrAppend(&text, ", ", FormatName(spec.scale, ""), " scale ",
                    BlockText(spec.scale_block_n, spec.scale_block_k));
  }
  if (spec.secondary_scale == SecondaryScaleKind::kTensor) absl::StrAppend(&text, " and tensor");
  if (spec.secondary_scale == SecondaryScaleKind::kChannel) absl::StrAppend(&text, " and channel");
  if (spec.has_group_index) absl::StrAppend(&text, ", reordered columns");
  if (tensor.has_input_scale) absl::StrAppend(&text, ", input scale");
  if (spec.bias.present()) absl::StrAppend(&text, ", bias");
  return text;
}

std::string ActivationText(const StandardTensor& tensor) {
  const QuantSpec& spec = tensor.spec;
  const ActivationEncoding& encoding = tensor.encoding;
  if (!encoding.present()) {
    return FormatName(spec.activation, "as given") +
           ScaleText(spec.activation_scale, spec.activation_group);
  }
  std::string text = FormatName(encoding.format, "") + ScaleText(encoding.scale, encoding.group);
  if (encoding.zero_points) absl::StrAppend(&text, ", zero points");
  if (encoding.group_scale.present()) {
    absl::StrAppend(&text, ", ", FormatName(encoding.group_scale, ""), " scales");
  }
  return text;
}

std::string ReportText(const CheckpointReport& report, bool every_module) {
  std::string text = SummaryText(report);
  if (!report.modules.empty()) {
    absl::StrAppend(&text, "\n", ModulesText(report, every_module), "\n", DevicesText(report));
  }
  if (!report.problems.empty()) absl::StrAppend(&text, "\n", ProblemsText(report));
  return text;
}

nlohmann::ordered_json ReportJson(const CheckpointReport& report) {
  nlohmann::ordered_json modules = nlohmann::ordered_json::array();
  nlohmann::ordered_json device_sets = nlohmann::ordered_json::array();
  const DeviceSets sets(report);
  for (const auto& set : sets.all()) device_sets.push_back(DevicesJson(set));
  for (size_t i = 0; i < report.modules.size(); ++i) {
    modules.push_back(ModuleJson(report.modules[i], sets.IndexOf(i)));
  }
  nlohmann::ordered_json problems = nlohmann::ordered_json::array();
  for (const Problem& problem : report.problems) {
    problems.push_back({{"file", problem.file},
                        {"module", problem.module},
                        {"tensor", problem.tensor},
                        {"reason", problem.reason},
                        {"message", problem.message}});
  }
  return {{"directory", report.directory},
          {"exporter", report.exporter},
          {"files", report.files},
          {"tensors", report.tensors},
          {"tensor_bytes", report.tensor_bytes},
          {"quantized_modules", report.quantized_modules},
          {"modules", std::move(modules)},
          {"device_sets", std::move(device_sets)},
          {"notes", report.notes},
          {"problems", std::move(problems)}};
}

}  // namespace gemmd::gemmctl

// What    Resolution of config.json: which module gets which scheme. Input: the name of a module, a
//         line feed, quantization_config.
#include <string>

#include "absl/strings/string_view.h"
#include "core/checkpoint/json.h"
#include "core/checkpoint/modelopt.h"
#include "core/checkpoint/module_rules.h"
#include "core/checkpoint/quark.h"
#include "tests/fuzz/checkpoint_seeds.h"
#include "tests/fuzz/fuzz_target.h"

namespace gemmd {

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const auto& directory : SeedCheckpoints()) {
    const auto config = ParseJsonObject<Json>(ReadWhole(directory / "config.json"));
    if (!config.ok()) continue;
    const Json* quantization = FindField(*config, {"quantization_config"});
    if (quantization == nullptr) continue;
    seeds.push_back("model.layers.0.mlp.down_proj\n" + quantization->dump());
  }
  seeds.push_back(
      "model.layers.0.mlp.down_proj\n"
      R"({"dynamic": {"-:.*\\.gate.*": {}, "+:.*down.*": {"bits": 8}}, "quant_algo": "MIXED_PRECISION",)"
      R"( "quantized_layers": {"model.*": {"quant_algo": "FP8"}}, "exclude_modules": ["*gate", "lm?head"],)"
      R"( "modules_to_not_convert": ["model.layers.*.x", "re"]})");
  return seeds;
}

namespace {

void Resolve(const Json& config, const std::string& module) {
  // Whatever they answer: no fault, and in polynomial time.
  (void)ResolveConfigGroups(config, module).ok();
  (void)ApplyDynamic(config, module).ok();
  const auto patterns = StringsField(config, {"modules_to_not_convert"});
  if (patterns.ok()) (void)SkippedByPatterns(*patterns, module).ok();
  (void)QuarkSchemeOf(config, module).ok();
  (void)IsModelOptConfig(config);
  for (const Json& file : {Json(), Json({{"quantization", config}})}) {
    const auto merged =
        MergeModelOptConfig(config, "config.json", file, "hf_quant_config.json", "llama");
    if (merged.ok()) (void)ModelOptSchemeOf(*merged, module).ok();
  }
}

}  // namespace

}  // namespace gemmd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = input.find('\n');
  if (line == absl::string_view::npos) return 0;
  const auto config = gemmd::ParseJsonObject<gemmd::Json>(input.substr(line + 1), gemmd::JsonDialect::kPython);
  if (config.ok()) gemmd::Resolve(*config, std::string(input.substr(0, line)));
  return 0;
}

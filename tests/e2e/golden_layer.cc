#include "tests/e2e/golden_layer.h"

#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/gemmctl/numbers.h"
#include "gtest/gtest.h"
#include "tests/core/checkpoint/test_checkpoint.h"
#include "tests/e2e/environment.h"

namespace gemmd::e2e {
namespace {

v1::DataType TypeOf(const std::string& dtype) {
  if (dtype == "F32") return v1::DATA_TYPE_FLOAT32;
  return dtype == "F16" ? v1::DATA_TYPE_FLOAT16 : v1::DATA_TYPE_BFLOAT16;
}

std::vector<double> ValuesOf(const RawTensor& tensor) {
  const auto values =
      gemmctl::Decode(TypeOf(tensor.dtype),
                      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(tensor.bytes.data()),
                                          tensor.bytes.size()));
  EXPECT_TRUE(values.ok()) << values.status();
  return values.value_or(std::vector<double>());
}

std::vector<double> FirstOf(const RawTensors& tensors, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto found = tensors.find(name);
    if (found != tensors.end()) return ValuesOf(found->second);
  }
  return {};
}

// Names of gpt-oss too: "mlp1_weight" has "mlp1_bias".
std::vector<std::string> BiasNames(const std::string& module) {
  std::vector<std::string> names = {module + ".bias", module + "_bias"};
  if (absl::EndsWith(module, "_weight")) {
    names.push_back(module.substr(0, module.size() - std::string("_weight").size()) + "_bias");
  }
  return names;
}

std::vector<GoldenLayer> LayersOf(const std::string& name, const std::string& outcome) {
  const std::filesystem::path folder = Checkpoints() + "/" + name;
  const RawTensors stored = LoadTensors(folder / "model.safetensors");
  std::vector<GoldenLayer> layers;
  for (const auto& [key, tensor] : LoadTensors(folder / "expected.safetensors")) {
    const std::string what = ".weight_f32";
    const size_t at = key.rfind(what);
    if (at == std::string::npos) continue;
    GoldenLayer layer;
    layer.checkpoint = name;
    layer.module = key.substr(0, at);
    layer.outcome = outcome;
    const std::string rest = key.substr(at + what.size());  // "" or "_from_<first row>"
    if (!rest.empty()) layer.first_row = std::stoll(rest.substr(std::string("_from_").size()));
    const std::vector<int64_t>& shape = tensor.shape;
    if (shape.size() == 3) layer.experts = shape[0];
    layer.rows = shape[shape.size() - 2];
    layer.k = shape.back();
    layer.weights = ValuesOf(tensor);
    layer.bias = FirstOf(stored, BiasNames(layer.module));
    layer.input_scale = FirstOf(stored, {layer.module + ".pre_quant_scale"});
    layers.push_back(std::move(layer));
  }
  EXPECT_FALSE(layers.empty()) << name;
  return layers;
}

}  // namespace

std::vector<GoldenLayer> GoldenLayers() {
  std::vector<GoldenLayer> layers;
  const auto cases = LoadJson(Checkpoints() + "/cases.json");
  for (const auto& [name, facts] : cases.items()) {
    for (GoldenLayer& layer : LayersOf(name, facts["outcome"])) {
      layers.push_back(std::move(layer));
    }
  }
  return layers;
}

}  // namespace gemmd::e2e

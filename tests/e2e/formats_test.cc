// Every golden checkpoint and every damaged one through a real daemon: what it computes, and what it answers.
// GEMMD_E2E_FORMATS names a file for the results; formats.py makes the tables of the READMEs from it.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/gemmctl/format_text.h"
#include "client/gemmctl/inspect_devices.h"
#include "client/gemmctl/numbers.h"
#include "client/session.h"
#include "core/checkpoint/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"
#include "tests/e2e/environment.h"
#include "tests/e2e/golden_layer.h"
#include "tests/e2e/layer_check.h"
#include "tests/support/mutations.h"

namespace gemmd::e2e {
namespace {

using client::Layer;
using nlohmann::json;

// The results of both tests in one file; each replaces its own part.
class Results {
 public:
  explicit Results(std::string part) : part_(std::move(part)) {}

  void SetDevice(const v1::DeviceInfo& device) {
    device_ = {{"id", device.id() == "cpu" ? "cpu" : "cuda"},
               {"name", device.name()},
               {"architecture", device.architecture()}};
  }
  void Add(json row) { rows_.push_back(std::move(row)); }

  ~Results() {
    const std::string path = Variable("GEMMD_E2E_FORMATS", "");
    if (path.empty()) return;
    json all = json::object();
    if (std::ifstream file(path); file) all = json::parse(file, nullptr, false);
    if (!all.is_object()) all = json::object();
    all["device"] = device_;
    all[part_] = rows_;
    std::ofstream(path, std::ios::trunc) << all.dump(1) << "\n";
  }

 private:
  const std::string part_;
  json device_;
  json rows_ = json::array();
};

class FormatsTest : public DaemonTest {
 protected:
  void SetUp() override {
    StartDaemon();
    auto session = client::Session::Open({.address = socket(), .name = "formats"});
    ASSERT_TRUE(session.ok()) << session.status();
    session_.emplace(*std::move(session));
    const v1::HelloResponse hello = *session_->hello();
    for (const v1::DeviceInfo& device : hello.devices()) {
      if ((device.id() != "cpu") == OnCuda()) device_ = device;
    }
    ASSERT_FALSE(device_.id().empty()) << "the daemon has no device of the kind under test";
  }

  absl::StatusOr<Layer> Register(const std::string& folder, const std::string& module) {
    return session_->RegisterCheckpoint(folder, module, device_.id(),
                                        absl::StrCat("formats ", ++registrations_));
  }
  absl::StatusOr<LayerCheck> Check(const Layer& layer, const GoldenLayer& golden,
                                   v1::DataType type) {
    const StandardTensor tensor = TensorOf(golden);
    return CheckLayer(*session_, layer, golden, tensor, type, absl::Seconds(OnCuda() ? 20 : 0));
  }

  static StandardTensor TensorOf(const GoldenLayer& golden) {
    auto layer = ReadLayer(Checkpoints() + "/" + golden.checkpoint, golden.module);
    EXPECT_TRUE(layer.ok()) << layer.status();
    return layer.ok() ? std::move(layer->tensor) : StandardTensor();
  }

  // Whether `gemmctl inspect` says that the device runs the layer.
  bool Inspected(const GoldenLayer& golden) {
    const std::string name = OnCuda() ? device_.architecture() : "cpu";
    for (const gemmctl::DeviceSupport& support : gemmctl::DevicesFor(TensorOf(golden))) {
      if (support.device == name) return support.kernels != gemmctl::KernelFamily::kNone;
    }
    ADD_FAILURE() << "inspect knows no " << name;
    return false;
  }

  json Row(const GoldenLayer& golden) {
    return {{"case", golden.checkpoint}, {"module", golden.module}};
  }

  void CheckGolden(const GoldenLayer& golden, Results& results);
  void CheckAccepted(const Layer& layer, const GoldenLayer& golden, json& row);

  std::optional<client::Session> session_;
  v1::DeviceInfo device_;
  int registrations_ = 0;
};

std::string NameOf(v1::DataType type) {
  if (type == v1::DATA_TYPE_FLOAT8_E4M3) return "e4m3";
  if (type == v1::DATA_TYPE_FLOAT8_E5M2) return "e5m2";
  return type == v1::DATA_TYPE_INT8 ? "int8" : gemmctl::DataTypeName(type);
}

json Facts(const v1::LayerInfo& info) {
  return {{"exporter", info.source_format()},
          {"weight", gemmctl::FormatText(info.spec().weight(), "none")},
          {"zero_points", info.spec().zero_point() > v1::ZERO_POINT_KIND_NONE},
          {"scale", gemmctl::FormatText(info.spec().scale(), "none")},
          {"scale_block", {info.spec().scale_block_n(), info.spec().scale_block_k()}},
          {"activation", gemmctl::FormatText(info.spec().activation(), "as given")},
          {"experts", info.experts()},
          {"n", info.n()},
          {"k", info.k()}};
}

void FormatsTest::CheckGolden(const GoldenLayer& golden, Results& results) {
  SCOPED_TRACE(golden.checkpoint + " " + golden.module);
  const auto layer = Register(Checkpoints() + "/" + golden.checkpoint, golden.module);
  json row = Row(golden);
  if (golden.outcome == "UNSUPPORTED_FORMAT") {
    EXPECT_EQ(ReasonOf(layer.status()), "UNSUPPORTED_FORMAT") << layer.status();
    row.update({{"result", "UNSUPPORTED_FORMAT"}, {"message", layer.status().message()}});
    return results.Add(std::move(row));
  }
  EXPECT_EQ(layer.ok(), Inspected(golden)) << layer.status();
  if (!layer.ok()) {
    // Files are read on every device; only a kernel may be missing, and never on the CPU.
    EXPECT_EQ(ReasonOf(layer.status()), "NO_KERNEL") << layer.status();
    EXPECT_TRUE(OnCuda());
    row.update({{"result", ReasonOf(layer.status())}, {"message", layer.status().message()}});
    return results.Add(std::move(row));
  }
  row.update(Facts(layer->info()));
  for (const v1::DataType type : TypesToCheck(layer->info())) {
    json typed = row;
    typed["x"] = NameOf(type);
    const auto check = Check(*layer, golden, type);
    EXPECT_TRUE(check.ok()) << check.status();
    if (!check.ok()) {
      typed.update({{"result", ReasonOf(check.status())}, {"message", check.status().message()}});
      results.Add(std::move(typed));
      continue;
    }
    typed.update({{"kernels", check->kernels}, {"activation_used", check->activation_used}});
    // On purpose other weights than its writer's own code makes of damaged zero points.
    const bool own_rule = golden.outcome == "word rule";
    EXPECT_EQ(check->right(), !own_rule)
        << typed["x"] << ": " << check->error_of_bound << " times the bound, relative error "
        << check->relative_error;
    typed["result"] = own_rule ? "own rule" : check->right() ? "right" : "wrong";
    if (!own_rule) {
      typed["error_of_bound"] = check->error_of_bound;
      typed["relative_error"] = check->relative_error;
    }
    results.Add(std::move(typed));
  }
}

TEST_F(FormatsTest, EveryGoldenLayerComputesWhatItsExporterMeans) {
  Results results("golden");
  results.SetDevice(device_);
  const std::vector<GoldenLayer> layers = GoldenLayers();
  EXPECT_GT(layers.size(), 100u);
  for (const GoldenLayer& golden : layers) CheckGolden(golden, results);
}

void FormatsTest::CheckAccepted(const Layer& layer, const GoldenLayer& golden, json& row) {
  const auto check = Check(layer, golden, TypesToCheck(layer.info()).front());
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_TRUE(check->right()) << check->error_of_bound << " times the bound";
  row["result"] = check->right() ? "right" : "wrong";
  row["error_of_bound"] = check->error_of_bound;
}

TEST_F(FormatsTest, EveryDamagedCheckpointGetsItsAnswerAndHarmsNobody) {
  Results results("mutations");
  results.SetDevice(device_);
  std::map<std::string, std::vector<GoldenLayer>> golden;
  for (GoldenLayer& layer : GoldenLayers()) golden[layer.checkpoint].push_back(std::move(layer));
  const GoldenLayer& witness = golden.at("gptq_v1_autogptq_b4_g128_sym").front();
  const auto bystander = Register(Checkpoints() + "/" + witness.checkpoint, witness.module);
  ASSERT_TRUE(bystander.ok()) << bystander.status();
  const json mutations = LoadJson(Data() + "/mutations.json")["cases"];
  EXPECT_GE(mutations.size(), 55u);
  for (size_t i = 0; i < mutations.size(); ++i) {
    const json& mutation = mutations[i];
    SCOPED_TRACE(mutation.dump());
    const std::string base = mutation["base"];
    const std::vector<GoldenLayer>& layers = golden.at(base);
    const std::string module = MutatedModule(mutation, layers.front().module);
    EditableCheckpoint checkpoint(Checkpoints() + "/" + base);  // an absolute path stays one
    Mutate(checkpoint, mutation);
    const std::string folder = absl::StrCat(directory_, "/ckpt/", i);
    std::filesystem::create_directory(folder);
    checkpoint.Write(folder);
    const auto layer = Register(folder, module);
    json row = {{"case", base}, {"why", mutation["why"]}, {"expect", mutation["expect"]}};
    const auto found = std::find_if(layers.begin(), layers.end(),
                                    [&module](const auto& one) { return one.module == module; });
    switch (OutcomeOf(mutation)) {
      case MutationOutcome::kSameWeights:
        ASSERT_TRUE(layer.ok()) << layer.status();
        ASSERT_NE(found, layers.end());
        CheckAccepted(*layer, *found, row);
        break;
      case MutationOutcome::kOtherGrouping: {
        ASSERT_TRUE(layer.ok()) << layer.status();
        const auto unchanged = Register(Checkpoints() + "/" + base, module);
        ASSERT_TRUE(unchanged.ok()) << unchanged.status();
        EXPECT_TRUE(layer->info().spec().has_group_index());
        EXPECT_NE(layer->info().digest(), unchanged->info().digest());
        row["result"] = "regrouped";
        break;
      }
      case MutationOutcome::kRejected: {
        const std::string reason = ReasonOf(layer.status());
        EXPECT_TRUE(reason == "BAD_CHECKPOINT" || reason == "UNSUPPORTED_FORMAT") << layer.status();
        row["result"] = reason;
        row["message"] = layer.status().message();
        break;
      }
    }
    results.Add(std::move(row));
  }
  EXPECT_TRUE(daemon_->running());
  const auto check = Check(*bystander, witness, v1::DATA_TYPE_BFLOAT16);
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_TRUE(check->right());
}

}  // namespace
}  // namespace gemmd::e2e

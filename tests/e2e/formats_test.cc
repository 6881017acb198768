// Every golden checkpoint and every damaged one through a real daemon: what it computes, and what it answers.
// GEMMD_E2E_FORMATS names a journal for the results (format_journal.h); formats.py makes the tables of the READMEs
// from it. GEMMD_E2E_JOBS layers are checked at a time, on one daemon.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
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
#include "tests/e2e/format_journal.h"
#include "tests/e2e/golden_layer.h"
#include "tests/e2e/layer_check.h"
#include "tests/e2e/parallel.h"
#include "tests/support/mutations.h"

namespace gemmd::e2e {
namespace {

using client::Layer;
using nlohmann::json;

std::string JournalPath() { return Variable("GEMMD_E2E_FORMATS", ""); }

size_t Jobs() {
  uint32_t jobs = 0;
  if (absl::SimpleAtoi(Variable("GEMMD_E2E_JOBS", ""), &jobs) && jobs > 0) return jobs;
  return std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
}

// What became of one unit: rows of the table, and whether they are what is to be expected.
struct Finding {
  json rows = json::array();
  bool as_expected = true;

  // As EXPECT_TRUE(holds) << message.
  bool Expect(bool holds, const std::string& message) {
    EXPECT_TRUE(holds) << message;
    as_expected = as_expected && holds;
    return holds;
  }
  bool ExpectOk(const absl::Status& status) { return Expect(status.ok(), status.ToString()); }
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
    return CheckLayer(*session_, layer, golden, tensor, type, absl::Seconds(OnCuda() ? 90 : 0));
  }
  json DeviceFacts() const {
    return {{"id", device_.id() == "cpu" ? "cpu" : "cuda"},
            {"name", device_.name()},
            {"architecture", device_.architecture()}};
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

  Finding CheckGolden(const GoldenLayer& golden);
  json CheckTyped(const Layer& layer, const GoldenLayer& golden, v1::DataType type, json row,
                  Finding& finding);
  Finding CheckMutation(const json& mutation, size_t index, const std::vector<GoldenLayer>& layers);
  void CheckAccepted(const Layer& layer, const GoldenLayer& golden, json& row, Finding& finding);

  std::optional<client::Session> session_;
  v1::DeviceInfo device_;
  std::atomic<int> registrations_ = 0;
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

json FormatsTest::CheckTyped(const Layer& layer, const GoldenLayer& golden, v1::DataType type,
                             json row, Finding& finding) {
  row["x"] = NameOf(type);
  const auto check = Check(layer, golden, type);
  if (!finding.ExpectOk(check.status())) {
    row.update({{"result", ReasonOf(check.status())}, {"message", check.status().message()}});
    return row;
  }
  row.update({{"kernels", check->kernels}, {"activation_used", check->activation_used}});
  if (check->beyond_float32 && check->compared == 0) {
    row["result"] = "beyond float32";
    return row;
  }
  // On purpose other weights than its writer's own code makes of damaged zero points.
  const bool own_rule = golden.outcome == "word rule";
  finding.Expect(check->right() != own_rule,
                 absl::StrCat(NameOf(type), ": ", check->error_of_bound,
                              " times the bound, relative error ", check->relative_error));
  row["result"] = own_rule ? "own rule" : check->right() ? "right" : "wrong";
  if (!own_rule) {
    row["error_of_bound"] = check->error_of_bound;
    row["relative_error"] = check->relative_error;
  }
  return row;
}

Finding FormatsTest::CheckGolden(const GoldenLayer& golden) {
  SCOPED_TRACE(golden.checkpoint + " " + golden.module);
  Finding finding;
  const auto layer = Register(Checkpoints() + "/" + golden.checkpoint, golden.module);
  const std::string reason = ReasonOf(layer.status());
  const bool readable = golden.outcome != "UNSUPPORTED_FORMAT";
  json row = Row(golden);
  if (!layer.ok() || !readable) {
    // Files are read on every device; only a kernel may be missing, and never on the CPU.
    const bool expected = readable ? OnCuda() && reason == "NO_KERNEL" && !Inspected(golden)
                                   : reason == "UNSUPPORTED_FORMAT";
    finding.Expect(expected, layer.status().ToString());
    row.update({{"result", reason}, {"message", layer.status().message()}});
    finding.rows.push_back(std::move(row));
    return finding;
  }
  finding.Expect(Inspected(golden), "loads, and gemmctl inspect says that it does not");
  row.update(Facts(layer->info()));
  for (const v1::DataType type : TypesToCheck(layer->info())) {
    finding.rows.push_back(CheckTyped(*layer, golden, type, row, finding));
  }
  return finding;
}

TEST_F(FormatsTest, EveryGoldenLayerComputesWhatItsExporterMeans) {
  const std::vector<GoldenLayer> layers = GoldenLayers();
  EXPECT_GT(layers.size(), 100u);
  FormatJournal journal(JournalPath(), "golden", layers.size());
  journal.SetDevice(DeviceFacts());
  ForEachInParallel(layers.size(), Jobs(), [&](size_t i) {
    const std::string key = layers[i].checkpoint + " " + layers[i].module;
    if (journal.Has(key)) return;
    const Finding finding = CheckGolden(layers[i]);
    journal.Add(i, key, finding.rows, finding.as_expected);
  });
}

void FormatsTest::CheckAccepted(const Layer& layer, const GoldenLayer& golden, json& row,
                                Finding& finding) {
  const auto check = Check(layer, golden, TypesToCheck(layer.info()).front());
  if (!finding.ExpectOk(check.status())) return;
  finding.Expect(check->right(), absl::StrCat(check->error_of_bound, " times the bound"));
  row["result"] = check->right() ? "right" : "wrong";
  row["error_of_bound"] = check->error_of_bound;
}

Finding FormatsTest::CheckMutation(const json& mutation, size_t index,
                                   const std::vector<GoldenLayer>& layers) {
  SCOPED_TRACE(mutation.dump());
  Finding finding;
  const std::string base = Checkpoints() + "/" + std::string(mutation["base"]);
  const std::string module = MutatedModule(mutation, layers.front().module);
  EditableCheckpoint checkpoint(base);  // an absolute path stays one
  Mutate(checkpoint, mutation);
  const std::string folder = absl::StrCat(directory_, "/ckpt/", index);
  std::filesystem::create_directory(folder);
  checkpoint.Write(folder);
  const auto layer = Register(folder, module);
  json row = {{"case", mutation["base"]}, {"why", mutation["why"]}, {"expect", mutation["expect"]}};
  const MutationOutcome outcome = OutcomeOf(mutation);
  if (outcome == MutationOutcome::kRejected) {
    const std::string reason = ReasonOf(layer.status());
    finding.Expect(reason == "BAD_CHECKPOINT" || reason == "UNSUPPORTED_FORMAT",
                   layer.status().ToString());
    row["result"] = reason;
    row["message"] = layer.status().message();
  } else if (!finding.ExpectOk(layer.status())) {
    row["result"] = ReasonOf(layer.status());
  } else if (outcome == MutationOutcome::kSameWeights) {
    const auto found = std::find_if(layers.begin(), layers.end(),
                                    [&module](const auto& one) { return one.module == module; });
    if (finding.Expect(found != layers.end(), module)) CheckAccepted(*layer, *found, row, finding);
  } else {
    const auto unchanged = Register(base, module);
    if (finding.ExpectOk(unchanged.status())) {
      finding.Expect(layer->info().spec().has_group_index(), "keeps no group index");
      finding.Expect(layer->info().digest() != unchanged->info().digest(), "is the unchanged layer");
    }
    row["result"] = "regrouped";
  }
  finding.rows.push_back(std::move(row));
  return finding;
}

TEST_F(FormatsTest, EveryDamagedCheckpointGetsItsAnswerAndHarmsNobody) {
  std::map<std::string, std::vector<GoldenLayer>> golden;
  for (GoldenLayer& layer : GoldenLayers()) golden[layer.checkpoint].push_back(std::move(layer));
  const GoldenLayer& witness = golden.at("gptq_v1_autogptq_b4_g128_sym").front();
  const auto bystander = Register(Checkpoints() + "/" + witness.checkpoint, witness.module);
  ASSERT_TRUE(bystander.ok()) << bystander.status();
  const json mutations = LoadJson(Data() + "/mutations.json")["cases"];
  EXPECT_GE(mutations.size(), 55u);
  FormatJournal journal(JournalPath(), "mutations", mutations.size());
  journal.SetDevice(DeviceFacts());
  ForEachInParallel(mutations.size(), Jobs(), [&](size_t i) {
    const json& mutation = mutations[i];
    const std::string base = mutation["base"];
    const std::string key = absl::StrCat(base, ": ", std::string(mutation["why"]));
    if (journal.Has(key)) return;
    const Finding finding = CheckMutation(mutation, i, golden.at(base));
    journal.Add(i, key, finding.rows, finding.as_expected);
  });
  EXPECT_TRUE(daemon_->running());
  const auto check = Check(*bystander, witness, v1::DATA_TYPE_BFLOAT16);
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_TRUE(check->right());
}

}  // namespace
}  // namespace gemmd::e2e

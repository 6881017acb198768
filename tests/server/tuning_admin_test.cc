// Tuning through a daemon on the CPU device: who may, what is refused and why, what comes and goes as JSON.
// Measuring: tests/kernels/tune, tests/gpu/tune_test.cc.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/base/status.h"
#include "kernels/tuning.h"
#include "tests/client/gemmctl/tool.h"
#include "tests/kernels/tune/tuning_entries.h"
#include "tests/server/fixture.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

// JSON of a store that holds `entries`, of this program's kernels.
std::string Exported(const std::vector<TuningEntry>& entries) {
  const auto store = TuningStore::Open({});
  for (const TuningEntry& entry : entries) EXPECT_TRUE(store->Put(entry).ok());
  return store->Export();
}
TuningEntry Entry(int64_t n) {
  return MakeEntry(n, TuningStore::Open({})->kernels_digest(), {MakePoint(1, 10), MakePoint(64, 20)});
}

class TuningAdminTest : public DaemonTest {
 protected:
  static v1::TuneRequest SmallRequest() {
    v1::TuneRequest request;
    v1::PrewarmLayer* layer = request.add_shapes();
    layer->mutable_spec()->mutable_weight()->set_kind(v1::NUMBER_KIND_INTEGER);
    layer->mutable_spec()->mutable_weight()->set_bits(4);
    layer->set_n(64);
    layer->set_k(64);
    return request;
  }
  grpc::Status Tune(const std::string& token, const v1::TuneRequest& request) {
    const auto context = Context(token);
    const auto reader = admin_->Tune(context.get(), request);
    v1::TuneProgress message;
    while (reader->Read(&message)) ++messages_;
    return reader->Finish();
  }
  grpc::Status Import(const std::string& token, const std::string& json,
                      v1::ImportTuningResponse* response) {
    v1::ImportTuningRequest request;
    request.set_json(json);
    return admin_->ImportTuning(Context(token).get(), request, response);
  }
  v1::ListTuningResponse ListAll() {
    v1::ListTuningResponse response;
    const grpc::Status status = admin_->ListTuning(Context("").get(), {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  // Without what ships.
  v1::ListTuningResponse List() {
    v1::ListTuningResponse response = ListAll();
    auto& layers = *response.mutable_layers();
    layers.erase(std::remove_if(layers.begin(), layers.end(),
                                [](const v1::TunedLayer& layer) { return layer.built_in(); }),
                 layers.end());
    return response;
  }
  std::string Export() {
    const auto context = Context("");
    const auto reader = admin_->ExportTuning(context.get(), {});
    std::string json;
    v1::CacheChunk chunk;
    while (reader->Read(&chunk)) json += chunk.data();
    EXPECT_TRUE(reader->Finish().ok());
    return json;
  }
  gemmctl::ToolRun Gemmctl(std::vector<std::string> words) {
    words.insert(words.begin(), {"--socket", daemon_->config().socket});
    return gemmctl::Tool(words);
  }

  int messages_ = 0;
};

TEST_F(TuningAdminTest, ANodeWithoutGpuSaysSo) {
  const grpc::Status status = Tune(OpenBySocket(), SmallRequest());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ReasonOf(status), "NOT_TUNABLE");
  EXPECT_THAT(status.error_message(), HasSubstr("no GPU"));
  EXPECT_EQ(messages_, 0);

  v1::TuneRequest request = SmallRequest();
  request.set_device("cpu");
  EXPECT_EQ(ReasonOf(Tune(OpenBySocket(), request)), "NOT_TUNABLE");
  request.set_device("cuda:GPU-none");
  EXPECT_EQ(ReasonOf(Tune(OpenBySocket(), request)), "WRONG_DEVICE");
}

TEST_F(TuningAdminTest, NeedsAnOperator) {
  EXPECT_EQ(ReasonOf(Tune("", SmallRequest())), "NO_SESSION");
  v1::ImportTuningResponse response;
  EXPECT_EQ(ReasonOf(Import("", Exported({Entry(64)}), &response)), "NO_SESSION");
  EXPECT_EQ(List().layers_size(), 0);
}

TEST_F(TuningAdminTest, ListsWhatShips) {
  const v1::ListTuningResponse all = ListAll();
  ASSERT_GT(all.layers_size(), 0);
  for (const v1::TunedLayer& layer : all.layers()) {
    EXPECT_TRUE(layer.built_in());
    EXPECT_FALSE(layer.device_name().empty());
  }
}

TEST_F(TuningAdminTest, NamesWhatIsMissingOrWrong) {
  const std::string token = OpenBySocket();
  EXPECT_EQ(ReasonOf(Tune(token, {})), "MISSING_FIELD");
  const auto refused = [&](auto change) {
    v1::TuneRequest request = SmallRequest();
    change(request);
    const grpc::Status status = Tune(token, request);
    EXPECT_EQ(ReasonOf(status), "OUT_OF_RANGE") << status.error_message();
    return status.error_message();
  };
  EXPECT_THAT(refused([](v1::TuneRequest& r) { r.add_m(0); }), HasSubstr("m[0] is 0"));
  EXPECT_THAT(refused([](v1::TuneRequest& r) { r.add_m((1 << 20) + 1); }), HasSubstr("1048576"));
  EXPECT_THAT(refused([](v1::TuneRequest& r) {
                r.add_m(8);
                r.add_m(8);
              }),
              HasSubstr("m[1] is 8, must be ascending, 9"));
  EXPECT_THAT(refused([](v1::TuneRequest& r) {
                for (int m = 1; m <= 65; ++m) r.add_m(m);
              }),
              HasSubstr("at most 64"));
  refused([](v1::TuneRequest& r) { r.set_candidates(65); });
  refused([](v1::TuneRequest& r) { r.set_samples(1002); });
  refused([](v1::TuneRequest& r) { r.mutable_shapes(0)->set_n(0); });
  v1::TuneRequest request = SmallRequest();
  request.add_layers()->set_path("/etc");
  EXPECT_EQ(ReasonOf(Tune(token, request)), "PATH_NOT_ALLOWED");
}

TEST_F(TuningAdminTest, WhatIsImportedIsListedAndExported) {
  const std::string token = OpenBySocket();
  const TuningEntry entry = Entry(8192);
  v1::ImportTuningResponse response;
  const grpc::Status status = Import(token, Exported({entry, Entry(6144)}), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.layers(), 2u);
  EXPECT_EQ(response.stale(), 0u);
  const v1::ListTuningResponse list = List();
  ASSERT_EQ(list.layers_size(), 2);
  EXPECT_FALSE(list.truncated());
  EXPECT_THAT(list.directory(), HasSubstr("/tuning"));
  const v1::TunedLayer& layer = list.layers(1);  // in the order of N
  EXPECT_EQ(layer.device_name(), "Fake GPU");
  EXPECT_EQ(layer.multiprocessors(), 132u);
  EXPECT_EQ(layer.clock_mhz(), 1980u);
  EXPECT_EQ(layer.n(), 8192);
  EXPECT_EQ(layer.k(), 4096);
  EXPECT_EQ(layer.spec(), entry.key.spec);
  EXPECT_EQ(layer.x_type(), "bfloat16");
  EXPECT_EQ(layer.driver(), "13.0");
  EXPECT_EQ(layer.date(), entry.conditions.date);
  EXPECT_EQ(layer.kernels(), entry.conditions.kernels);
  EXPECT_EQ(layer.empty_kernel_ns(), 2660.5);
  EXPECT_FALSE(layer.stale());
  EXPECT_FALSE(layer.built_in());
  ASSERT_EQ(layer.points_size(), 2);
  EXPECT_EQ(layer.points(1).m(), 64);
  EXPECT_EQ(layer.points(1).ns(), 20);
  EXPECT_EQ(layer.points(1).fastest_ns(), 19.5);
  EXPECT_EQ(layer.points(1).slowest_ns(), 120);
  EXPECT_EQ(layer.points(1).samples(), 15u);
  EXPECT_EQ(layer.points(1).candidates(), 6u);
  EXPECT_EQ(layer.points(1).model_choice_ns(), 25);
  EXPECT_EQ(layer.points(1).tiling().at("row_groups"), 4);
  EXPECT_EQ(layer.points(1).tiling().size(), 9u);
  EXPECT_EQ(Export(), Exported({entry, Entry(6144)}));
}

TEST_F(TuningAdminTest, AnotherDaemonOnTheSameCacheKnowsIt) {
  v1::ImportTuningResponse response;
  ASSERT_TRUE(Import(OpenBySocket(), Exported({Entry(8192)}), &response).ok());
  daemon_.reset();
  StartDaemon();
  EXPECT_EQ(List().layers_size(), 1);
}

TEST_F(TuningAdminTest, ADamagedImportIsRefusedAsAWhole) {
  const std::string token = OpenBySocket();
  v1::ImportTuningResponse response;
  const std::string json = Exported({Entry(8192), Entry(6144)});
  const grpc::Status status = Import(token, json.substr(0, json.size() / 2), &response);
  EXPECT_EQ(ReasonOf(status), "TUNING_DAMAGED");
  EXPECT_EQ(List().layers_size(), 0);
  ASSERT_TRUE(
      Import(token, Exported({}), &response).ok());
  EXPECT_EQ(response.layers(), 0u);
}

TEST_F(TuningAdminTest, AListThatDoesNotFitAMessageIsCut) {
  const std::string token = OpenBySocket();
  std::vector<MeasuredPoint> points;
  for (int m = 1; m <= 400; ++m) points.push_back(MakePoint(m, 10));
  v1::ImportTuningResponse response;
  for (int n = 1; n <= 60; ++n) {
    TuningEntry entry = Entry(n);
    entry.points = points;
    ASSERT_TRUE(Import(token, Exported({entry}), &response).ok());
  }
  const v1::ListTuningResponse list = List();
  EXPECT_TRUE(list.truncated());
  EXPECT_GT(list.layers_size(), 20);
  EXPECT_LT(list.layers_size(), 60);
  EXPECT_GT(Export().size(), size_t{4} << 20) << "the export is whole";
}

TEST_F(TuningAdminTest, GemmctlTunesListsExportsAndImports) {
  gemmctl::ToolRun run = Gemmctl({"tune"});
  EXPECT_EQ(run.code, gemmctl::kFailed);
  EXPECT_THAT(run.err, HasSubstr("this node has no GPU"));
  EXPECT_EQ(Gemmctl({"tune", "--m", "0"}).code, gemmctl::kUsage);
  EXPECT_EQ(Gemmctl({"tune", "--candidates", "65"}).code, gemmctl::kUsage);
  EXPECT_EQ(Gemmctl({"tune", "--list", "--export", "x"}).code, gemmctl::kUsage);
  EXPECT_EQ(Gemmctl({"tune", "--list", "word"}).code, gemmctl::kUsage);

  std::vector<TuningEntry> entries;
  for (int n = 1; n <= 230; ++n) entries.push_back(Entry(64 * n));  // more than one message takes at a time
  const std::string json = Exported(entries);
  const std::string file = directory_ / "in.json";
  std::ofstream(file) << json;
  run = Gemmctl({"tune", "--import", file});
  EXPECT_EQ(run.code, gemmctl::kDone) << run.err;
  EXPECT_THAT(run.out, HasSubstr("230 layers imported"));
  run = Gemmctl({"tune", "--list"});
  EXPECT_EQ(run.code, gemmctl::kDone) << run.err;
  EXPECT_THAT(run.out, HasSubstr("Fake GPU"));
  EXPECT_THAT(run.out, HasSubstr("measured"));
  const std::string out = directory_ / "out.json";
  run = Gemmctl({"tune", "--export", out, "-o", "json"});
  EXPECT_EQ(run.code, gemmctl::kDone) << run.err;
  EXPECT_THAT(run.out, HasSubstr("\"layers\": 230"));
  std::ifstream written(out);
  EXPECT_EQ(std::string((std::istreambuf_iterator<char>(written)), std::istreambuf_iterator<char>()),
            json);
  EXPECT_NE(Gemmctl({"tune", "--export", out}).code, gemmctl::kDone) << "it exists";
  EXPECT_EQ(Gemmctl({"tune", "--export", out, "--force"}).code, gemmctl::kDone);

  std::ofstream(file) << "no table";
  run = Gemmctl({"tune", "--import", file});
  EXPECT_EQ(run.code, gemmctl::kFailed);
  EXPECT_THAT(run.err, HasSubstr(file + ": tuning: it is no JSON object"));

  auto damaged = nlohmann::ordered_json::parse(json);
  damaged["entries"][105]["layer"]["n"] = "wide";
  std::ofstream(file) << damaged.dump();
  run = Gemmctl({"tune", "--import", file});
  EXPECT_EQ(run.code, gemmctl::kFailed);
  EXPECT_THAT(run.err, HasSubstr(file + ": after 100 layers were imported, counting entries from 100: tuning: "
                                        "entries[5].layer.n is \"wide\", expected a whole number from 1"));
}

}  // namespace
}  // namespace gemmd

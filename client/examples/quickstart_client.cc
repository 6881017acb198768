// What    The main job of one client process: register real checkpoints, run GEMM and MoE at M = 1,
//         16, 256, compare with double precision, print a short table. deploy/quickstart starts two
//         of these.
// Exit    0 all results within the error bar, 1 one is not or a call failed, 2 usage, 69 no daemon.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/examples/main_job.h"
#include "client/gemmctl/arguments.h"
#include "client/gemmctl/numbers.h"
#include "client/gemmctl/table.h"
#include "client/gemmctl/workspace.h"
#include "client/session.h"
#include "kernels/base/status.h"

namespace gemmd::examples {
namespace {

using client::Layer;
using client::Session;
using gemmctl::DenseWeights;
using gemmctl::Workspace;

constexpr int64_t kTokens[] = {1, 16, 256};
constexpr int64_t kTopK = 2;
constexpr uint64_t kWorkspaceBytes = uint64_t{4} << 20;

struct Job {
  std::string data;
  std::string device;
  int wait_for = 1;
  double error_bar = 4e-3;
  Session* session = nullptr;
  Workspace* workspace = nullptr;
  gemmctl::Table results{{"request", "M", "kernel", "relative error", "time"}};
  bool failed = false;
};

struct LoadedLayer {
  const DenseCase* from;
  DenseWeights expected;
  Layer layer;
};

std::vector<gemmctl::Option> Options() {
  return {{"socket", 0, "PATH", "", "socket of the daemon"},
          {"name", 0, "NAME", "client", "label of this client"},
          {"data", 0, "DIR", "tests/data/checkpoints", "checkpoints with expected weights"},
          {"device", 0, "ID", "auto", "auto, cpu or cuda:<GPU UUID>"},
          {"memory", 0, "KIND", "auto", "auto, ipc, memfd or daemon"},
          {"wait-for", 0, "N", "1", "start when N sessions hold every layer"},
          {"error-bar", 0, "X", "4e-3",
           "largest relative Frobenius error; rounding y to bf16 alone gives about 1.7e-3"},
          {"help", 'h', "", "", "print this"}};
}

absl::StatusOr<LoadedLayer> Load(Job& job, const DenseCase& from) {
  const std::string path = std::filesystem::absolute(job.data + "/" + from.checkpoint).string();
  LoadedLayer loaded{.from = &from};
  GEMMD_ASSIGN_OR_RETURN(loaded.expected, ExpectedWeights(job.data, from));
  auto layer = job.session->RegisterCheckpoint(path, from.module, job.device,
                                               absl::StrCat(from.checkpoint, "/", from.module));
  if (!layer.ok()) return Annotate(layer.status(), from.checkpoint);
  loaded.layer = *std::move(layer);
  return loaded;
}

// Median time of repeated calls, at most 50 of them and about 0.2 s.
template <typename Call>
absl::StatusOr<double> MedianMicroseconds(Call call) {
  std::vector<double> times;
  const absl::Time end = absl::Now() + absl::Milliseconds(200);
  while (times.size() < 3 || (times.size() < 50 && absl::Now() < end)) {
    const auto begin = std::chrono::steady_clock::now();
    GEMMD_RETURN_IF_ERROR(call().status());
    const auto took = std::chrono::steady_clock::now() - begin;
    times.push_back(std::chrono::duration<double, std::micro>(took).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void Report(Job& job, const std::string& label, int64_t m, const std::string& kernel,
            const gemmctl::ErrorReport& error, double microseconds) {
  const bool good = error.Within(job.error_bar);
  job.failed |= !good;
  job.results.Add({label, absl::StrCat(m), kernel,
                   absl::StrFormat("%.2e%s", error.relative_frobenius, good ? "" : "  TOO LARGE"),
                   gemmctl::MicrosecondsText(microseconds)});
  if (!good)
    std::fprintf(stderr, "%s M=%ld: %s\n", label.c_str(), static_cast<long>(m),
                 error.Text().c_str());
}

absl::Status RunDense(Job& job, const LoadedLayer& loaded, int64_t m) {
  const DenseWeights& expected = loaded.expected;
  job.workspace->Clear();
  const std::vector<double> values =
      gemmctl::RandomNormal(static_cast<uint64_t>(m), m * expected.k);
  client::Gemm gemm{.layer = &loaded.layer};
  GEMMD_ASSIGN_OR_RETURN(gemm.x, job.workspace->Put(v1::DATA_TYPE_BFLOAT16, m, expected.k, values));
  GEMMD_ASSIGN_OR_RETURN(gemm.y, job.workspace->Place(v1::DATA_TYPE_BFLOAT16, m, expected.n));
  GEMMD_ASSIGN_OR_RETURN(const v1::GemmResponse response, job.session->Run(gemm));
  GEMMD_ASSIGN_OR_RETURN(const double time,
                         MedianMicroseconds([&] { return job.session->Run(gemm); }));
  GEMMD_ASSIGN_OR_RETURN(const std::vector<double> x, job.workspace->Get(gemm.x));
  GEMMD_ASSIGN_OR_RETURN(const std::vector<double> y, job.workspace->Get(gemm.y));
  GEMMD_ASSIGN_OR_RETURN(
      const std::vector<double> operand,
      gemmctl::OperandOf(loaded.layer.info().spec(), response.report(), expected.k, x));
  const gemmctl::ErrorReport error =
      gemmctl::Compare(y, gemmctl::ReferenceGemm(expected, m, operand), expected.n);
  Report(job, loaded.from->label, m, response.report().kernel(), error, time);
  return absl::OkStatus();
}

// Routing that uses every expert: token t goes to experts t and t + 1 with weights 0.625 and 0.375.
struct Routing {
  std::vector<double> ids;
  std::vector<double> weights;
};
Routing RoundRobin(int64_t m, int64_t experts) {
  Routing routing;
  for (int64_t token = 0; token < m; ++token) {
    for (int64_t slot = 0; slot < kTopK; ++slot) {
      routing.ids.push_back(static_cast<double>((token + slot) % experts));
      routing.weights.push_back(slot == 0 ? 0.625 : 0.375);
    }
  }
  return routing;
}

absl::Status RunMoe(Job& job, const LoadedLayer& gate_up, const LoadedLayer& down, int64_t m) {
  const int64_t k = gate_up.expected.k;
  const int64_t n = down.expected.n;
  const Routing routing = RoundRobin(m, gate_up.expected.experts);
  job.workspace->Clear();
  client::Moe moe{.gate_up = &gate_up.layer, .down = &down.layer};
  moe.activation = v1::ACTIVATION_FUNCTION_SWIGLU_CLAMPED;
  GEMMD_ASSIGN_OR_RETURN(
      moe.x, job.workspace->Put(v1::DATA_TYPE_BFLOAT16, m, k,
                                gemmctl::RandomNormal(static_cast<uint64_t>(m), m * k)));
  GEMMD_ASSIGN_OR_RETURN(moe.y, job.workspace->Place(v1::DATA_TYPE_BFLOAT16, m, n));
  GEMMD_ASSIGN_OR_RETURN(moe.topk_ids,
                         job.workspace->Put(v1::DATA_TYPE_INT32, m, kTopK, routing.ids));
  GEMMD_ASSIGN_OR_RETURN(moe.topk_weights,
                         job.workspace->Put(v1::DATA_TYPE_FLOAT32, m, kTopK, routing.weights));
  GEMMD_ASSIGN_OR_RETURN(const v1::MoeResponse response, job.session->Run(moe));
  GEMMD_ASSIGN_OR_RETURN(const double time,
                         MedianMicroseconds([&] { return job.session->Run(moe); }));
  GEMMD_ASSIGN_OR_RETURN(const std::vector<double> x, job.workspace->Get(moe.x));
  GEMMD_ASSIGN_OR_RETURN(const std::vector<double> y, job.workspace->Get(moe.y));
  const gemmctl::MoeReference reference{
      .gate_up = &gate_up.expected, .down = &down.expected, .top_k = kTopK};
  const std::vector<double> want =
      gemmctl::ReferenceMoe(reference, m, x, routing.ids, routing.weights);
  Report(job, "MXFP4 MoE, top 2 of 3", m, response.gate_up().kernel(), gemmctl::Compare(y, want, n),
         time);
  return absl::OkStatus();
}

// Waits until every layer is held by `wait_for` sessions, so that all clients run at the same time.
absl::StatusOr<std::vector<v1::LayerInfo>> Gather(Job& job,
                                                  const std::vector<LoadedLayer>& layers) {
  const absl::Time deadline = absl::Now() + absl::Minutes(2);
  while (true) {
    std::vector<v1::LayerInfo> infos;
    bool complete = true;
    for (const LoadedLayer& loaded : layers) {
      GEMMD_ASSIGN_OR_RETURN(infos.emplace_back(), job.session->Inspect(loaded.layer));
      complete &= infos.back().references() >= static_cast<uint32_t>(job.wait_for);
    }
    if (complete) return infos;
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("after 2 minutes not every layer is held by ", job.wait_for, " sessions"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void PrintLayers(const std::vector<v1::LayerInfo>& infos) {
  gemmctl::Table table({"layer", "format", "E x N x K", "digest", "clients"});
  for (const v1::LayerInfo& info : infos) {
    table.Add({info.name(), info.source_format(),
               absl::StrCat(info.experts(), " x ", info.n(), " x ", info.k()),
               info.digest().substr(0, 12), absl::StrCat(info.references())});
  }
  std::printf("%s\n", table.Text().c_str());
}

absl::Status RunAll(Job& job) {
  std::vector<LoadedLayer> layers;
  for (const DenseCase& from : kDenseCases) {
    GEMMD_ASSIGN_OR_RETURN(layers.emplace_back(), Load(job, from));
  }
  GEMMD_ASSIGN_OR_RETURN(layers.emplace_back(), Load(job, kGateUpCase));
  GEMMD_ASSIGN_OR_RETURN(layers.emplace_back(), Load(job, kDownCase));
  GEMMD_ASSIGN_OR_RETURN(const std::vector<v1::LayerInfo> infos, Gather(job, layers));
  const absl::Time together_until = absl::Now() + absl::Seconds(job.wait_for > 1 ? 1 : 0);
  PrintLayers(infos);
  for (size_t i = 0; i + 2 < layers.size(); ++i) {
    for (int64_t m : kTokens) GEMMD_RETURN_IF_ERROR(RunDense(job, layers[i], m));
  }
  for (int64_t m : kTokens) {
    GEMMD_RETURN_IF_ERROR(RunMoe(job, layers[layers.size() - 2], layers.back(), m));
  }
  std::printf("%s", job.results.Text().c_str());
  // The others may still be counting the holders of a layer.
  absl::SleepFor(together_until - absl::Now());
  return absl::OkStatus();
}

absl::StatusOr<std::string> ChooseDevice(const Session& session, const std::string& wanted) {
  GEMMD_ASSIGN_OR_RETURN(const v1::HelloResponse hello, session.hello());
  for (const v1::DeviceInfo& device : hello.devices()) {
    const bool matches = wanted == "auto" ? device.ready() : device.id() == wanted;
    if (!matches) continue;
    std::printf("device  %s, %s (%s), gemmd %s\n", device.id().c_str(), device.name().c_str(),
                device.architecture().c_str(), hello.server_version().c_str());
    return device.id();
  }
  return Error(absl::StatusCode::kNotFound, "WRONG_DEVICE",
               absl::StrCat("no ready device '", wanted, "'"));
}

absl::Status Main(const gemmctl::Arguments& arguments, bool* failed) {
  Job job;
  job.data = arguments.Text("data");
  GEMMD_ASSIGN_OR_RETURN(job.wait_for, arguments.Integer("wait-for", 1, 1000));
  GEMMD_ASSIGN_OR_RETURN(job.error_bar, arguments.Number("error-bar", 0, 1));
  GEMMD_ASSIGN_OR_RETURN(Session session, Session::Open({.address = arguments.Text("socket"),
                                                         .name = arguments.Text("name")}));
  std::printf("client  %s, pid %d\n", arguments.Text("name").c_str(), static_cast<int>(getpid()));
  GEMMD_ASSIGN_OR_RETURN(job.device, ChooseDevice(session, arguments.Text("device")));
  GEMMD_ASSIGN_OR_RETURN(
      Workspace workspace,
      Workspace::Create(session, job.device, arguments.Text("memory"), kWorkspaceBytes));
  std::printf("memory  %s\n\n", workspace.kind().c_str());
  job.session = &session;
  job.workspace = &workspace;
  const absl::Status status = RunAll(job);
  *failed = job.failed;
  return status;
}

}  // namespace
}  // namespace gemmd::examples

int main(int argc, char** argv) {
  const auto options = gemmd::examples::Options();
  const auto arguments =
      gemmd::gemmctl::Arguments::Parse(options, std::vector<std::string>(argv + 1, argv + argc));
  if (!arguments.ok() || !arguments->positional().empty()) {
    std::fprintf(
        stderr, "%s\n",
        arguments.ok() ? "no positional arguments" : arguments.status().ToString().c_str());
    return 2;
  }
  if (arguments->Has("help")) {
    std::printf("usage: gemmd_quickstart_client [options]\n\n%s",
                gemmd::gemmctl::OptionsHelp(options).c_str());
    return 0;
  }
  bool failed = false;
  const absl::Status status = gemmd::examples::Main(*arguments, &failed);
  if (!status.ok()) {
    std::fprintf(stderr, "gemmd_quickstart_client: %s [%s]\n",
                 std::string(status.message()).c_str(), gemmd::ReasonOf(status).c_str());
    return gemmd::ReasonOf(status) == "NOT_RUNNING" ? 69 : 1;
  }
  return failed ? 1 : 0;
}

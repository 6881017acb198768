#include "tests/e2e/roles.h"

#include <signal.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/gemmctl/matrix_file.h"
#include "client/gemmctl/numbers.h"
#include "client/gemmctl/reference.h"
#include "client/gemmctl/workspace.h"
#include "client/submitter.h"
#include "kernels/base/status.h"
#include "tests/e2e/environment.h"

namespace gemmd::e2e {
namespace {

using client::Layer;
using client::Region;
using client::Session;
using gemmctl::Workspace;

constexpr char kRoleCase[] = "gptq_v1_autogptq_b4_g128_sym";
constexpr char kRoleModule[] = "model.layers.0.mlp.down_proj";
constexpr int64_t kRows = 8;

std::atomic<bool> stop{false};

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

absl::StatusOr<std::string> DeviceUnderTest(const Session& session) {
  GEMMD_ASSIGN_OR_RETURN(const v1::HelloResponse hello, session.hello());
  for (const v1::DeviceInfo& device : hello.devices()) {
    if ((device.id() != "cpu") == OnCuda()) return device.id();
  }
  return absl::NotFoundError("the daemon has no device of the kind under test");
}

// A session with one layer, operands and the expected result.
struct Bench {
  Session session;
  std::string device;
  Layer layer;
  Workspace workspace;
  client::Gemm gemm;
  std::vector<double> want;

  // Runs once; an error of the call, or Internal when the numbers are wrong.
  absl::Status RunOnce() {
    GEMMD_RETURN_IF_ERROR(session.Run(gemm).status());
    GEMMD_ASSIGN_OR_RETURN(const std::vector<double> y, workspace.Get(gemm.y));
    const gemmctl::ErrorReport error = gemmctl::Compare(y, want, gemm.y.columns);
    return error.Within(4e-3) ? absl::OkStatus()
                              : absl::InternalError("wrong result: " + error.Text());
  }
};

absl::StatusOr<std::unique_ptr<Bench>> MakeBench(int64_t rows) {
  GEMMD_ASSIGN_OR_RETURN(Session session, Session::Open({.name = Variable("GEMMD_E2E_ROLE", "")}));
  GEMMD_ASSIGN_OR_RETURN(const std::string device, DeviceUnderTest(session));
  GEMMD_ASSIGN_OR_RETURN(
      Layer layer,
      session.RegisterCheckpoint(absl::StrCat(Checkpoints(), "/", kRoleCase), kRoleModule, device));
  GEMMD_ASSIGN_OR_RETURN(
      const gemmctl::Array weights,
      gemmctl::ReadSafetensors(absl::StrCat(Checkpoints(), "/", kRoleCase, "/expected.safetensors"),
                               absl::StrCat(kRoleModule, ".weight_f32")));
  const int64_t n = layer.info().n();
  const int64_t k = layer.info().k();
  const uint64_t bytes = gemmctl::PlacedBytes(v1::DATA_TYPE_BFLOAT16, rows, n) +
                         gemmctl::PlacedBytes(v1::DATA_TYPE_BFLOAT16, rows, k);
  GEMMD_ASSIGN_OR_RETURN(Workspace workspace, Workspace::Create(session, device, "auto", bytes));
  auto bench = std::unique_ptr<Bench>(
      new Bench{std::move(session), device, std::move(layer), std::move(workspace)});
  bench->gemm.layer = &bench->layer;
  GEMMD_ASSIGN_OR_RETURN(bench->gemm.x, bench->workspace.Put(v1::DATA_TYPE_BFLOAT16, rows, k,
                                                             gemmctl::RandomNormal(1, rows * k)));
  GEMMD_ASSIGN_OR_RETURN(bench->gemm.y, bench->workspace.Place(v1::DATA_TYPE_BFLOAT16, rows, n));
  if (rows <= 64) {
    GEMMD_ASSIGN_OR_RETURN(const std::vector<double> x, bench->workspace.Get(bench->gemm.x));
    bench->want = gemmctl::ReferenceGemm({.n = n, .k = k, .weights = weights.values}, rows, x);
  }
  return bench;
}

absl::Status Steady() {
  GEMMD_ASSIGN_OR_RETURN(const auto bench, MakeBench(kRows));
  GEMMD_RETURN_IF_ERROR(bench->RunOnce());
  Say("ready");
  int64_t runs = 0;
  for (; !stop; ++runs) GEMMD_RETURN_IF_ERROR(bench->RunOnce());
  if (bench->session.reopened() != 0) return absl::InternalError("the session was opened anew");
  Say(absl::StrCat("runs ", runs));
  return absl::OkStatus();
}

bool MayComeBack(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kAborted;
}

absl::Status Recovering() {
  GEMMD_ASSIGN_OR_RETURN(const auto bench, MakeBench(kRows));
  GEMMD_RETURN_IF_ERROR(bench->RunOnce());
  Say("ready");
  uint64_t known = 0;
  while (!stop) {
    const absl::Status status = bench->RunOnce();
    if (!status.ok() && !MayComeBack(status)) return status;
    if (!status.ok() || bench->session.reopened() == known) continue;
    known = bench->session.reopened();
    Say(absl::StrCat("recovered ", known));
  }
  return absl::OkStatus();
}

absl::Status Busy() {
  GEMMD_ASSIGN_OR_RETURN(const auto bench, MakeBench(4096));
  client::Submitter submitter(bench->session, 64);
  for (uint64_t tag = 0; tag < 64; ++tag) GEMMD_RETURN_IF_ERROR(submitter.Submit(tag, bench->gemm));
  Say("ready");
  for (uint64_t tag = 64; !stop; ++tag) {
    GEMMD_ASSIGN_OR_RETURN(const client::Answer answer, submitter.Next());
    GEMMD_RETURN_IF_ERROR(answer.status);
    GEMMD_RETURN_IF_ERROR(submitter.Submit(tag, bench->gemm));
  }
  return absl::OkStatus();
}

// 64 MiB of codes, so that a kill finds a registration under way.
absl::Status Registering() {
  GEMMD_ASSIGN_OR_RETURN(Session session, Session::Open({.name = "registering"}));
  GEMMD_ASSIGN_OR_RETURN(const std::string device, DeviceUnderTest(session));
  constexpr int64_t kN = 8192, kK = 8192;
  const uint64_t code_bytes = kN * kK;
  client::LayerTensors tensors{.n = kN, .k = kK};
  tensors.spec.mutable_weight()->set_kind(v1::NUMBER_KIND_INTEGER);
  tensors.spec.mutable_weight()->set_bits(8);
  GEMMD_ASSIGN_OR_RETURN(Region region, session.AllocateHost(code_bytes));
  tensors.codes = {&region, 0, code_bytes};
  Say("ready");
  for (uint8_t round = 0; !stop; ++round) {
    region.data()[0] = std::byte{round};
    GEMMD_RETURN_IF_ERROR(
        session.RegisterTensors(tensors, device, absl::StrCat("round ", round)).status());
  }
  return absl::OkStatus();
}

absl::Status Hoarding() {
  GEMMD_ASSIGN_OR_RETURN(const auto bench, MakeBench(kRows));
  std::vector<Region> regions;
  for (int i = 0; i < 100; ++i) {
    GEMMD_ASSIGN_OR_RETURN(regions.emplace_back(), bench->session.AllocateHost(1 << 20));
    GEMMD_ASSIGN_OR_RETURN(regions.emplace_back(),
                           bench->session.AllocateInDaemon(bench->device, 1 << 20));
  }
  GEMMD_ASSIGN_OR_RETURN(const Layer other, bench->session.RegisterCheckpoint(
                                                Checkpoints() + "/awq_gemm_g128",
                                                "model.layers.0.self_attn.o_proj", bench->device));
  Say("ready");
  while (!stop) absl::SleepFor(absl::Milliseconds(20));
  return absl::OkStatus();
}

absl::Status Enormous() {
  GEMMD_ASSIGN_OR_RETURN(const auto job, MakeEnormousJob());
  Say("ready");
  return job->session.Run(job->gemm, absl::InfiniteFuture()).status();
}

}  // namespace

absl::StatusOr<std::unique_ptr<EnormousJob>> MakeEnormousJob() {
  constexpr int64_t kM = int64_t{1} << 27, kSide = 8;
  constexpr uint64_t kMatrix = 2 * kM * kSide, kPage = 4096;
  GEMMD_ASSIGN_OR_RETURN(Session session, Session::Open({.name = "enormous"}));
  GEMMD_ASSIGN_OR_RETURN(Region memory, session.AllocateHost(kPage + 2 * kMatrix));
  client::LayerTensors tensors{.n = kSide, .k = kSide};
  tensors.spec.mutable_weight()->set_kind(v1::NUMBER_KIND_INTEGER);
  tensors.spec.mutable_weight()->set_bits(8);
  tensors.codes = {&memory, 0, kSide * kSide};
  GEMMD_ASSIGN_OR_RETURN(Layer layer, session.RegisterTensors(tensors, "cpu", "small"));
  auto job = std::unique_ptr<EnormousJob>(
      new EnormousJob{std::move(session), std::move(memory), std::move(layer)});
  job->gemm.layer = &job->layer;
  job->gemm.x = {.region = &job->memory, .byte_offset = kPage, .rows = kM, .columns = kSide};
  job->gemm.y = job->gemm.x;
  job->gemm.y.byte_offset += kMatrix;
  return job;
}

int RunRole(const std::string& role) {
  struct sigaction action {};
  action.sa_handler = [](int) { stop = true; };
  sigaction(SIGTERM, &action, nullptr);
  absl::Status status = absl::InvalidArgumentError("unknown role " + role);
  if (role == "steady") status = Steady();
  if (role == "recovering") status = Recovering();
  if (role == "busy") status = Busy();
  if (role == "registering") status = Registering();
  if (role == "hoarding") status = Hoarding();
  if (role == "enormous") status = Enormous();
  if (status.ok()) return 0;
  Say(absl::StrCat("failed: ", status.ToString(), " ", ReasonOf(status)));
  return 1;
}

}  // namespace gemmd::e2e

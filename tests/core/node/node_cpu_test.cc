// A node on the CPU device, as the daemon runs it without a GPU: memfds, checkpoint files, real numbers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>

#include "core/checkpoint/checkpoint.h"
#include "core/exec/cpu_device.h"
#include "core/exec/cpu_numbers.h"
#include "core/quant/activations.h"
#include "core/quant/reference.h"
#include "tests/core/checkpoint/test_checkpoint.h"
#include "tests/core/node/node_fixture.h"

namespace gemmd {
namespace {

const std::filesystem::path kCheckpoints = std::filesystem::path(GEMMD_TEST_DATA) / "checkpoints";

// A client's shared memory, mapped here and passed to the daemon.
class SharedFile {
 public:
  explicit SharedFile(uint64_t size) : size_(size) {
    fd_ = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(size)), 0);
    EXPECT_EQ(fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    bytes_ =
        static_cast<std::byte*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
  }
  ~SharedFile() {
    munmap(bytes_, size_);
    close(fd_);
  }
  int fd() const { return fd_; }
  MatrixView View(const NumberFormat& type, int64_t rows, int64_t columns,
                  uint64_t offset = 0) const {
    MatrixView view;
    view.address = reinterpret_cast<uintptr_t>(bytes_) + offset;
    view.type = type;
    view.is_signed_int = type.kind == NumberKind::kInteger;
    view.rows = rows;
    view.columns = columns;
    view.row_stride = columns;
    return view;
  }

 private:
  const uint64_t size_;
  int fd_ = -1;
  std::byte* bytes_ = nullptr;
};

class NodeCpuTest : public ::testing::Test {
 protected:
  NodeCpuTest() {
    NodeOptions options;
    options.checkpoint_roots = {std::filesystem::canonical(kCheckpoints)};
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(CreateCpuDevice({2}));
    node = std::make_unique<Node>(std::move(options), std::move(devices), nullptr);
    session = node->OpenSession({"test", getpid(), getuid(), "socket"}).value();
  }

  absl::StatusOr<LayerInfo> Register(const std::string& checkpoint, const std::string& module,
                                     const std::shared_ptr<Session>& owner) {
    Outcome<LayerInfo> outcome;
    node->RegisterLayer(
        owner, {"", checkpoint, CheckpointSource{(kCheckpoints / checkpoint), module}}, nullptr,
        [&](absl::StatusOr<LayerInfo> info) { outcome.Set(std::move(info)); });
    return outcome.Wait();
  }

  RegionRef Share(const SharedFile& file, uint64_t size) {
    const uint64_t ticket = node->PassMemory(*session, dup(file.fd()), size).value();
    return node->RegisterRegion(*session, {"cpu", PassedSource{ticket, 0, 0}, "shared"})
        .value()
        .ref;
  }

  // What the product takes of a row of x: quantized where the report says so.
  static std::vector<double> Operand(const StandardTensor& tensor, const NumberFormat& used,
                                     const std::vector<double>& x) {
    if (used.bits == 0 || used.bits > 8) return x;
    const ActivationScaling scaling = ScalingOf(tensor);
    const std::vector<float> taken = DequantizeActivations(
        QuantizeActivations(std::vector<float>(x.begin(), x.end()), scaling), scaling);
    return {taken.begin(), taken.end()};
  }

  // Runs `layer` on two rows in shared memory and compares with the reader's tensor.
  void Check(const StandardTensor& tensor, uint64_t layer_id) {
    const auto [experts, n, k] = tensor.shape;
    const auto size = static_cast<uint64_t>(2 * (n + k) * 4);
    SharedFile file(size);
    const auto y_offset = static_cast<uint64_t>(2 * k * 4);
    const RegionRef region = Share(file, size);
    std::vector<double> x(static_cast<size_t>(k));
    for (int64_t m = 0; m < 2; ++m) {
      for (int64_t i = 0; i < k; ++i)
        x[static_cast<size_t>(i)] = static_cast<double>((i * (m + 3)) % 7 - 3);
      WriteRow(file.View(kFloat32, 2, k), m, 0, x.data(), k);
    }
    GemmRequest request;
    request.layer_id = layer_id;
    request.x = {region, 0, kFloat32, false, {2, k}, 0};
    request.y = {region, y_offset, kFloat32, false, {2, n}, 0};
    Outcome<GemmResult> outcome;
    node->SubmitGemm(session, request, absl::InfiniteFuture(), nullptr,
                     [&](absl::StatusOr<GemmResult> result) { outcome.Set(std::move(result)); });
    const auto result = outcome.Wait();
    ASSERT_TRUE(result.ok()) << result.status();
    const std::vector<double> operand = Operand(tensor, result->report.activation_used, x);
    // The reference rounds code times scale to float32.
    const double of_operand = operand == x ? 0.0 : 0x1p-24;
    std::vector<double> y(static_cast<size_t>(n));
    ReadRow(file.View(kFloat32, 2, n, y_offset), 1, y.data());
    for (int64_t row = 0; row < n; ++row) {
      std::vector<double> w(static_cast<size_t>(k));
      DequantizeRow(tensor, 0, row, absl::MakeSpan(w));
      double expected = Bias(tensor, 0, row);
      double magnitude = std::abs(expected);
      for (size_t i = 0; i < w.size(); ++i) {
        expected += w[i] * operand[i];
        magnitude += std::abs(w[i] * operand[i]);
      }
      // One rounding to float32, and the order of a sum in double.
      EXPECT_NEAR(y[static_cast<size_t>(row)], expected,
                  std::abs(expected) * 0x1p-24 + magnitude * (1e-12 + of_operand));
    }
  }

  std::unique_ptr<Node> node;
  std::shared_ptr<Session> session;
};

TEST_F(NodeCpuTest, RunsLayersOfEveryExporterFromFiles) {
  for (const std::string checkpoint :
       {"gptq_v1_autogptq_b4_g128_sym", "awq_gemm_g128", "fp8_block128_deepseek",
        "ct_pack_w4_g64_actorder_group", "ct_mxfp4_plain"}) {
    SCOPED_TRACE(checkpoint);
    const auto modules = ListModules(std::filesystem::canonical(kCheckpoints / checkpoint));
    ASSERT_TRUE(modules.ok()) << modules.status();
    ASSERT_FALSE(modules->empty());
    const auto layer = Register(checkpoint, modules->front(), session);
    ASSERT_TRUE(layer.ok()) << layer.status();
    const auto read =
        ReadLayer(std::filesystem::canonical(kCheckpoints / checkpoint), modules->front());
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(layer->digest, Digest(read->tensor));
    if (read->tensor.shape.experts == 1) Check(read->tensor, layer->layer_id);
  }
}

TEST_F(NodeCpuTest, TwoProcessesShareOneCopyOfAFile) {
  const auto other = node->OpenSession({"other", 1, 1, "socket"}).value();
  const auto modules =
      ListModules(std::filesystem::canonical(kCheckpoints / "awq_gemm_g128")).value();
  const auto first = Register("awq_gemm_g128", modules.front(), session);
  const auto second = Register("awq_gemm_g128", modules.front(), other);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->layer_id, second->layer_id);
  EXPECT_EQ(second->references, 2);
  EXPECT_EQ(node->Status().devices[0].weights_bytes, first->bytes);
}

// Between two registrations somebody writes a file of the checkpoint anew.
TEST_F(NodeCpuTest, ACheckpointThatChangedIsReadAnew) {
  TemporaryDirectory directory;
  NodeOptions options;
  options.checkpoint_roots = {directory.path()};
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(CreateCpuDevice({2}));
  node = std::make_unique<Node>(std::move(options), std::move(devices), nullptr);
  session = node->OpenSession({"test", getpid(), getuid(), "socket"}).value();
  const auto digest = [&] {
    Outcome<LayerInfo> outcome;
    node->RegisterLayer(session, {"", "", CheckpointSource{directory.path(), "a"}}, nullptr,
                        [&](absl::StatusOr<LayerInfo> info) { outcome.Set(std::move(info)); });
    const auto info = outcome.Wait();
    return info.ok() ? info->digest : ReasonOf(info.status());
  };
  const auto write = [&](const std::string& config, const RawTensors& tensors) {
    WriteFile(directory.path() / "config.json", config);
    WriteTensors(directory.path() / "model.safetensors", tensors);
    for (const char* file : {"config.json", "model.safetensors"}) {
      MakeNewer(directory.path() / file);
    }
    const auto read = ReadLayer(directory.path(), "a");
    return read.ok() ? Digest(read->tensor) : ReasonOf(read.status());
  };
  const std::string first = write("{}", PlainLinears({"a"}, 1));
  EXPECT_EQ(digest(), first);
  EXPECT_EQ(digest(), first);
  const std::string second = write("{}", PlainLinears({"a"}, 2));
  EXPECT_NE(second, first);
  EXPECT_EQ(digest(), second);
  EXPECT_EQ(
      write(R"({"quantization_config": {"quant_method": "unheard of"}})", PlainLinears({"a"}, 2)),
      "UNSUPPORTED_FORMAT");
  EXPECT_EQ(digest(), "UNSUPPORTED_FORMAT");
  const std::string last = write("{}", PlainLinears({"a", "b"}, 3));
  EXPECT_EQ(digest(), last);
}

TEST_F(NodeCpuTest, ARunningRequestEndsWithItsDeadlineItsClientOrItsSession) {
  const auto layer =
      Register("gptq_v1_autogptq_b4_g128_sym", "model.layers.0.mlp.down_proj", session);
  ASSERT_TRUE(layer.ok()) << layer.status();
  const int64_t n = layer->shape.n, k = layer->shape.k;
  constexpr int64_t kRows = int64_t{1} << 19;  // seconds of work
  const auto x_bytes = static_cast<uint64_t>(kRows * k * 2);
  const uint64_t size = x_bytes + static_cast<uint64_t>(kRows * n * 2);
  SharedFile file(size);
  const RegionRef region = Share(file, size);
  GemmRequest request;
  request.layer_id = layer->layer_id;
  request.x = {region, 0, kFloat16, false, {kRows, k}, 0};
  request.y = {region, x_bytes, kFloat16, false, {kRows, n}, 0};
  const auto start = [&](absl::Time deadline, std::function<bool()> cancelled) {
    auto outcome = std::make_shared<Outcome<GemmResult>>();
    node->SubmitGemm(session, request, deadline, std::move(cancelled),
                     [outcome](absl::StatusOr<GemmResult> done) { outcome->Set(std::move(done)); });
    return outcome;
  };
  const auto run = [&](absl::Time deadline, std::function<bool()> cancelled) {
    return start(deadline, std::move(cancelled))->Wait().status();
  };
  const absl::Status late = run(absl::Now() + absl::Milliseconds(100), nullptr);
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_EQ(ReasonOf(late), "DEADLINE");
  EXPECT_NE(std::string(late.message()).find("ran"), std::string::npos) << late;
  std::atomic<int> asked{0};
  const absl::Status gone = run(absl::InfiniteFuture(), [&] { return ++asked > 3; });
  EXPECT_EQ(gone.code(), absl::StatusCode::kCancelled) << gone;
  EXPECT_EQ(asked, 4);
  asked = 0;
  // The daemon ends the session, then closes its connection: that is no client that gave up.
  const absl::Status ended = run(absl::InfiniteFuture(), [&] {
    if (++asked == 2) node->EndSession(session, "close");
    return asked > 2;
  });
  EXPECT_EQ(ReasonOf(ended), "SESSION_ENDED") << ended;
}

TEST_F(NodeCpuTest, AMissingModuleIsNotFound) {
  EXPECT_EQ(ReasonOf(Register("awq_gemm_g128", "no.such.module", session).status()),
            "MODULE_NOT_FOUND");
}

}  // namespace
}  // namespace gemmd

// Models whose unquantized experts lie in one tensor, through a real daemon: the layers are those of the same experts
// stored one by one, whole, for a rank and quantized.
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/layer_slice.h"
#include "client/model.h"
#include "client/quantize_to.h"
#include "client/session.h"
#include "core/quant/reference.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"
#include "tests/e2e/environment.h"
#include "tests/e2e/golden_layer.h"
#include "tests/e2e/layer_check.h"

namespace gemmd::e2e {
namespace {

constexpr int64_t kStackedExperts = 4;
constexpr int64_t kHidden = 64;
constexpr int64_t kInner = 32;
constexpr char kSizes[] = R"("num_local_experts": 4, "hidden_size": 64, "intermediate_size": 32)";

// [rows, columns] of numbers, as a bfloat16 tensor or its transpose.
RawTensor Tensor(const std::vector<float>& numbers, int64_t rows, int64_t columns,
                 bool transposed) {
  RawTensor tensor{"BF16", {rows, columns}, {}};
  if (transposed) std::swap(tensor.shape[0], tensor.shape[1]);
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t at = transposed ? i % rows * columns + i / rows : i;
    const uint32_t code = EncodeNumber(kBFloat16, numbers[static_cast<size_t>(at)]);
    tensor.bytes.append({static_cast<char>(code), static_cast<char>(code >> 8)});
  }
  return tensor;
}

double NumberAt(const RawTensor& tensor, int64_t index) {
  uint16_t code = 0;
  std::memcpy(&code, tensor.bytes.data() + 2 * index, sizeof(code));
  return DecodeNumber(kBFloat16, code);
}

class StackedExpertsTest : public DaemonTest {
 protected:
  void SetUp() override { StartDaemon(); }

  std::vector<float> Numbers(int64_t count) {
    std::normal_distribution<float> weights(0, 0.05f);
    std::vector<float> numbers;
    for (int64_t i = 0; i < count; ++i) numbers.push_back(weights(random_));
    return numbers;
  }

  // Two layers of experts twice: as Llama-4 stacks them, and one by one.
  void WriteTwins() {
    RawTensors stacked;
    RawTensors single;
    for (int layer = 0; layer < 2; ++layer) {
      const std::string experts = absl::StrCat("model.layers.", layer, ".feed_forward.experts.");
      RawTensor& in =
          stacked[experts + "gate_up_proj"] = {"BF16", {kStackedExperts, kHidden, 2 * kInner}, {}};
      RawTensor& out =
          stacked[experts + "down_proj"] = {"BF16", {kStackedExperts, kInner, kHidden}, {}};
      for (int64_t expert = 0; expert < kStackedExperts; ++expert) {
        const std::string own = absl::StrCat(experts, expert, ".");
        const auto gate_up = Numbers(2 * kInner * kHidden);
        const auto down = Numbers(kHidden * kInner);
        const RawTensor rows = Tensor(gate_up, 2 * kInner, kHidden, false);
        const size_t half = rows.bytes.size() / 2;
        single[own + "gate_proj.weight"] = {"BF16", {kInner, kHidden}, rows.bytes.substr(0, half)};
        single[own + "up_proj.weight"] = {"BF16", {kInner, kHidden}, rows.bytes.substr(half)};
        single[own + "down_proj.weight"] = Tensor(down, kHidden, kInner, false);
        in.bytes += Tensor(gate_up, 2 * kInner, kHidden, true).bytes;
        out.bytes += Tensor(down, kHidden, kInner, true).bytes;
      }
    }
    const std::string config =
        absl::StrCat(R"({"model_type": "llama4_text", "num_hidden_layers": 2, )", kSizes, "}");
    Write("stacked", config, stacked);
    Write("single", config, single);
  }
  // One layer's experts, [E, K, N] with biases, and what they mean.
  std::vector<GoldenLayer> WriteGptOss() {
    RawTensors tensors;
    std::vector<GoldenLayer> meant;
    for (const auto& [name, k, n] :
         {std::tuple("gate_up_proj", kHidden, 2 * kInner), {"down_proj", kInner, kHidden}}) {
      const std::string module = absl::StrCat("model.layers.0.mlp.experts.", name);
      RawTensor& weight = tensors[module] =
          Tensor(Numbers(kStackedExperts * k * n), kStackedExperts * k, n, false);
      const RawTensor& bias = tensors[module + "_bias"] =
          Tensor(Numbers(kStackedExperts * n), kStackedExperts, n, false);
      weight.shape = {kStackedExperts, k, n};
      GoldenLayer layer{.module = module, .experts = kStackedExperts, .k = k, .rows = n};
      for (int64_t i = 0; i < kStackedExperts * n * k; ++i) {
        const int64_t expert = i / (n * k);
        layer.weights.push_back(NumberAt(weight, (expert * k + i % k) * n + i / k % n));
      }
      for (int64_t i = 0; i < kStackedExperts * n; ++i) layer.bias.push_back(NumberAt(bias, i));
      meant.push_back(std::move(layer));
    }
    Write("gpt_oss", absl::StrCat(R"({"model_type": "gpt_oss", )", kSizes, "}"), tensors);
    return meant;
  }
  void Write(const std::string& name, const std::string& config, const RawTensors& tensors) const {
    std::filesystem::create_directory(Folder(name));
    WriteFile(Folder(name) + "/config.json", config);
    WriteTensors(Folder(name) + "/model.safetensors", tensors);
  }
  std::string Folder(const std::string& name) const { return directory_ + "/ckpt/" + name; }

  // Digest of each layer, by its module.
  std::map<std::string, std::string> Digests(client::Session& session,
                                             v1::RegisterModelRequest request,
                                             const std::string& name) {
    request.set_path(Folder(name));
    request.set_fuse(true);
    const auto model = client::RegisterModel(session, request);
    EXPECT_TRUE(model.ok()) << model.status();
    std::map<std::string, std::string> digests;
    if (!model.ok()) return digests;
    for (const auto& [module, layer] : model->layers) {
      digests[module] = absl::StrCat(layer.info().experts(), "x", layer.info().n(), "x",
                                     layer.info().k(), " ", layer.info().digest());
    }
    return digests;
  }
  std::unique_ptr<Process> StartTool(std::vector<std::string> words) {
    words.insert(words.begin(), {Program("gemmctl"), "--socket", socket()});
    return Start(words);
  }

  const uint32_t seed_ = std::random_device()();
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__, absl::StrCat("seed ", seed_)};
  std::mt19937 random_{seed_};
};

TEST_F(StackedExpertsTest, AModelHasTheLayersOfExpertsOneByOne) {
  WriteTwins();
  client::Session session = client::Session::Open({.address = socket(), .name = "stacks"}).value();
  std::vector<v1::RegisterModelRequest> requests(3);
  *requests[1].mutable_slice()->mutable_tensor() = client::RankOf(1, 2).rank();
  *requests[1].mutable_slice()->mutable_experts() = client::RankOf(1, 2);
  *requests[2].mutable_quantize() = client::ParseQuantizeTo("int4,group=16").value();
  for (const v1::RegisterModelRequest& request : requests) {
    SCOPED_TRACE(request.ShortDebugString());
    const auto stacked = Digests(session, request, "stacked");
    EXPECT_EQ(stacked.size(), 4u);
    EXPECT_EQ(stacked, Digests(session, request, "single"));
  }
}

TEST_F(StackedExpertsTest, TheyComputeWhatTheFileMeans) {
  client::Session session = client::Session::Open({.address = socket(), .name = "experts"}).value();
  for (const GoldenLayer& meant : WriteGptOss()) {
    const auto layer = session.RegisterCheckpoint(Folder("gpt_oss"), meant.module);
    ASSERT_TRUE(layer.ok()) << layer.status();
    const auto check = CheckLayer(session, *layer, meant, StandardTensor{}, v1::DATA_TYPE_FLOAT32,
                                  absl::ZeroDuration());
    ASSERT_TRUE(check.ok()) << check.status();
    EXPECT_TRUE(check->right()) << meant.module << " " << check->error_of_bound;
  }
}

TEST_F(StackedExpertsTest, GemmctlInspectsExportsAndRegistersThem) {
  WriteGptOss();
  const std::string folder = Folder("gpt_oss");
  auto inspect = StartTool({"inspect", folder, "-o", "json"});
  EXPECT_EQ(inspect->Wait(absl::Minutes(1)), 0);
  const auto report = nlohmann::json::parse(inspect->Rest(), nullptr, false);
  ASSERT_TRUE(report.is_object());
  EXPECT_TRUE(report["problems"].empty()) << report["problems"];
  for (const char* name : {"gate_up_proj", "down_proj"}) {
    const std::string module = absl::StrCat("model.layers.0.mlp.experts.", name);
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{}, {"--quantize", "mxfp4"}}) {
      SCOPED_TRACE(absl::StrCat(module, " ", more.size()));
      const auto tool = [&](std::vector<std::string> words) {
        words.insert(words.end(), more.begin(), more.end());
        return StartTool(words);
      };
      const std::string file = absl::StrCat(directory_, "/", name, more.size(), ".safetensors");
      auto exported = tool({"export", folder, module, file, "-o", "json"});
      EXPECT_EQ(exported->Wait(absl::Minutes(1)), 0);
      auto registered = tool({"register", folder, module, "-o", "json"});
      EXPECT_EQ(registered->Wait(absl::Minutes(1)), 0);
      const auto layer = nlohmann::json::parse(registered->Rest(), nullptr, false);
      EXPECT_EQ(layer["digest"], nlohmann::json::parse(exported->Rest(), nullptr, false)["digest"]);
      EXPECT_EQ(layer["experts"], kStackedExperts);
    }
  }
}

}  // namespace
}  // namespace gemmd::e2e

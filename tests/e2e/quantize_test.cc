// Unquantized weights registered with a target: a real daemon holds the bytes that core/quant gives, once for
// everybody who asks for them.
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/layer_slice.h"
#include "client/model.h"
#include "client/quantize_to.h"
#include "client/session.h"
#include "core/checkpoint/checkpoint.h"
#include "core/quant/combine.h"
#include "core/quant/quantize_layer.h"
#include "core/quant/rank_slice.h"
#include "core/quant/reference.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"
#include "server/convert.h"
#include "tests/core/checkpoint/test_checkpoint.h"
#include "tests/e2e/environment.h"

namespace gemmd::e2e {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kWeightRows = 16;
constexpr int64_t kWeightColumns = 72;  // no multiple of 32: the last group is shorter
const std::string kMlp = "model.layers.0.mlp.";
const std::string kAttention = "model.layers.0.self_attn.";

// Numbers of float16 as one tensor of a file.
RawTensor Float16Tensor(int64_t n, int64_t k, uint32_t seed, float deviation = 0.05f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> weights(0, deviation);
  RawTensor tensor{"F16", {n, k}, {}};
  for (int64_t i = 0; i < n * k; ++i) {
    const uint32_t code = EncodeNumber(kFloat16, weights(random));
    tensor.bytes.append({static_cast<char>(code), static_cast<char>(code >> 8)});
  }
  return tensor;
}

class QuantizeTest : public DaemonTest {
 protected:
  void SetUp() override {
    daemon_device_ = "cpu";
    StartDaemon();
    session_.emplace(Open("quantize"));
  }
  client::Session Open(const std::string& name) {
    return client::Session::Open({.address = socket(), .name = name}).value();
  }

  // q, k, v and down of a model; the parts of a layer have different scales.
  std::string WriteModel(const std::map<std::string, RawTensor>& more = {}) {
    const std::string folder = directory_ + "/ckpt/plain";
    std::filesystem::create_directory(folder);
    RawTensors tensors(more.begin(), more.end());
    uint32_t seed = 1;
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
      tensors[kAttention + name + ".weight"] = Float16Tensor(seed == 1 ? 64 : 32, 64, seed, 0.01f * seed);
      ++seed;
    }
    tensors[kMlp + "down_proj.weight"] = Float16Tensor(32, 128, 9);
    tensors[kMlp + "down_proj.bias"] = {"F16", {32}, std::string(64, 0x3c)};
    WriteTensors(folder + "/model.safetensors", tensors);
    WriteFile(folder + "/config.json", "{}");
    return folder;
  }

  // Lines are written a little after what they tell.
  bool IsLogged(const std::string& text) const {
    return Within(absl::Seconds(10), [&] {
      std::ifstream file(log());
      return absl::StrContains(std::string(std::istreambuf_iterator<char>(file), {}), text);
    });
  }

  static v1::CheckpointSource SourceOf(const std::string& folder, const std::string& module,
                                       const std::string& target) {
    v1::CheckpointSource source;
    source.set_path(folder);
    source.set_module(module);
    if (!target.empty()) *source.mutable_quantize() = client::ParseQuantizeTo(target).value();
    return source;
  }
  static QuantizeTarget TargetOf(const std::string& text) {
    return FromProto(client::ParseQuantizeTo(text).value(), "quantize").value();
  }
  static std::string DigestOf(const std::string& folder, const std::string& module,
                              const std::string& target, const SliceRequest& slice = {}) {
    return Digest(Slice(*QuantizeLayer(ReadLayer(folder, module)->tensor, TargetOf(target)), slice).value());
  }

  std::optional<client::Session> session_;
};

// Weights of two experts in memory that the daemon maps.
class Weights {
 public:
  Weights(client::Session& session, const NumberFormat& type) {
    tensor_.spec.weight = type;
    tensor_.shape = {2, kWeightRows, kWeightColumns};
    const size_t row_bytes = static_cast<size_t>(tensor_.spec.RowWords(kWeightColumns)) * 4;
    tensor_.codes = Buffer(2 * kWeightRows * row_bytes);
    std::mt19937 random(5);
    std::normal_distribution<float> weights(0, 0.1f);
    for (size_t row = 0; row < 2 * kWeightRows; ++row) {
      for (size_t k = 0; k < kWeightColumns; ++k) {
        const uint32_t code = EncodeNumber(type, weights(random));
        std::memcpy(tensor_.codes.data() + row * row_bytes + k * type.bits / 8, &code, type.bits / 8u);
      }
    }
    memory_ = *session.AllocateHost(tensor_.codes.size());
    Share();
  }
  void Share() { std::memcpy(memory_.data(), tensor_.codes.data(), tensor_.codes.size()); }

  client::LayerTensors To(const v1::QuantizeTo& target) const {
    client::LayerTensors tensors;
    *tensors.spec.mutable_weight() = ToProto(tensor_.spec.weight);
    tensors.experts = 2;
    tensors.n = kWeightRows;
    tensors.k = kWeightColumns;
    tensors.codes = {&memory_, 0, tensor_.codes.size()};
    tensors.quantize = target;
    return tensors;
  }
  StandardTensor& tensor() { return tensor_; }

 private:
  StandardTensor tensor_;
  client::Region memory_;
};

// A quantized layer in memory that the daemon maps.
class Tensors {
 public:
  Tensors(client::Session& session, const StandardTensor& tensor) : tensor_(tensor) {
    codes_ = Share(session, tensor.codes);
    scales_ = Share(session, tensor.scales);
    bias_ = Share(session, tensor.bias);
  }
  client::LayerTensors Source() const {
    client::LayerTensors tensors;
    tensors.spec = ToProto(tensor_.spec);
    tensors.n = tensor_.shape.n;
    tensors.k = tensor_.shape.k;
    tensors.codes = {&codes_, 0, tensor_.codes.size()};
    tensors.scales = client::RegionBytes{&scales_, 0, tensor_.scales.size()};
    tensors.bias = client::RegionBytes{&bias_, 0, tensor_.bias.size()};
    return tensors;
  }

 private:
  static client::Region Share(client::Session& session, const Buffer& bytes) {
    client::Region region = *session.AllocateHost(bytes.size());
    std::memcpy(region.data(), bytes.data(), bytes.size());
    return region;
  }

  const StandardTensor tensor_;
  client::Region codes_;
  client::Region scales_;
  client::Region bias_;
};

std::vector<QuantSpec> EveryWeightType() {
  std::vector<QuantSpec> specs;
  for (int bits = 1; bits <= 8; ++bits) {
    for (const auto zero : {ZeroPointKind::kNone, ZeroPointKind::kInteger, ZeroPointKind::kFloat}) {
      specs.push_back({.weight = IntegerFormat(bits), .scale = kFloat16, .zero_point = zero});
    }
  }
  for (int exponent = 0; exponent <= 5; ++exponent) {
    for (int mantissa = 0; exponent + mantissa <= 7; ++mantissa) {
      if (exponent + mantissa == 0) continue;
      specs.push_back({.weight = FloatFormat(exponent, mantissa), .scale = kFloat32});
    }
  }
  for (const NumberFormat& weight : {kFloat4E2M1, kFloat8E4M3}) {  // MXFP4, MXFP8; NVFP4 and fp8 beside them
    specs.push_back({.weight = weight, .scale = kFloat8E8M0});
    specs.push_back({.weight = weight, .scale = kFloat8E4M3, .secondary_scale = SecondaryScaleKind::kTensor});
  }
  specs.push_back({.weight = kFloat8E5M2, .scale = kBFloat16});
  specs.push_back(
      {.weight = IntegerFormat(4), .scale = kFloat8E4M3, .secondary_scale = SecondaryScaleKind::kChannel});
  return specs;
}

TEST_F(QuantizeTest, EveryWeightTypeAtEveryGranularityHasTheBytesOfTheReference) {
  const std::pair<int64_t, int64_t> blocks[] = {{1, 0}, {1, 32}, {1, 16}, {8, 32}, {0, 0}};  // channel to tensor
  for (const NumberFormat& type : {kBFloat16, kFloat32}) {
    Weights weights(*session_, type);
    std::vector<QuantSpec> specs = EveryWeightType();
    if (type == kFloat32) specs.resize(6);
    for (QuantSpec spec : specs) {
      for (const auto& [block_n, block_k] : blocks) {
        spec.scale_block_n = block_n;
        spec.scale_block_k = block_k;
        v1::QuantizeTo target;
        *target.mutable_spec() = ToProto(spec);
        const auto layer = session_->RegisterTensors(weights.To(target), "cpu", "");
        ASSERT_TRUE(layer.ok()) << layer.status();
        const v1::LayerInfo info = layer->info();
        QuantizationError error;
        const auto want = QuantizeLayer(weights.tensor(), {.spec = spec}, {}, &error);
        ASSERT_TRUE(want.ok()) << want.status();
        EXPECT_EQ(info.digest(), Digest(*want)) << info.spec().ShortDebugString();
        EXPECT_EQ(info.spec().SerializeAsString(), ToProto(want->spec).SerializeAsString());
        EXPECT_EQ(info.quantized(), v1::SCALE_RULE_LARGEST);
        EXPECT_EQ(info.quantization_error(), error.relative());
        EXPECT_EQ(info.source_format(), "tensors");
      }
    }
  }
}

TEST_F(QuantizeTest, TwoSessionsShareWhatTheyQuantizeEach) {
  const std::string folder = WriteModel();
  client::Session other = Open("other");
  const auto source = SourceOf(folder, kMlp + "down_proj", "int4,group=32");
  const auto first = session_->RegisterCheckpoint(source);
  const auto second = other.RegisterCheckpoint(source);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(first->info().digest(), second->info().digest());
  EXPECT_EQ(second->info().references(), 2u);
  EXPECT_EQ(Status().layers(), 1u);
  EXPECT_EQ(first->info().source_format(), "unquantized");
  EXPECT_EQ(first->info().spec().bias().bits(), 16u);
  EXPECT_TRUE(IsLogged("format=unquantized quantized=largest weight_bits=4"));
}

// The weights as a quantized checkpoint would have them, from memory, and the same made by the daemon: one layer.
TEST_F(QuantizeTest, ASharedLayerTellsEachSessionOfItsOwnSource) {
  const std::string folder = WriteModel();
  const auto source = SourceOf(folder, kMlp + "down_proj", "int4,group=32");
  QuantizationError error;
  const StandardTensor made =
      *QuantizeLayer(ReadLayer(folder, kMlp + "down_proj")->tensor, TargetOf("int4,group=32"), {}, &error);
  for (const bool quantized_first : {true, false}) {
    client::Session other = Open("other");
    Tensors tensors(other, made);
    std::optional<client::Layer> given;
    if (!quantized_first) given = *other.RegisterTensors(tensors.Source(), "cpu", "given");
    const auto quantized = session_->RegisterCheckpoint(source, "cpu", "made");
    ASSERT_TRUE(quantized.ok()) << quantized.status();
    if (quantized_first) given = *other.RegisterTensors(tensors.Source(), "cpu", "given");
    ASSERT_EQ(given->info().digest(), quantized->info().digest());
    ASSERT_EQ(Status().layers(), 1u);
    for (const v1::LayerInfo& info : {quantized->info(), *session_->Inspect(*quantized)}) {
      EXPECT_EQ(info.source_format(), "unquantized");
      EXPECT_EQ(info.quantized(), v1::SCALE_RULE_LARGEST);
      EXPECT_EQ(info.quantization_error(), error.relative());
    }
    for (const v1::LayerInfo& info : {given->info(), *other.Inspect(*given)}) {
      EXPECT_EQ(info.source_format(), "tensors");
      EXPECT_EQ(info.quantized(), v1::SCALE_RULE_UNSPECIFIED);
      EXPECT_EQ(info.quantization_error(), 0);
    }
    v1::RegisterModelRequest model;  // as the first of the two, from the same files
    model.set_path(folder);
    model.add_modules(kMlp + "down_proj");
    *model.mutable_quantize() = source.quantize();
    const auto registered = client::RegisterModel(other, model);
    ASSERT_TRUE(registered.ok()) << registered.status();
    EXPECT_EQ(registered->layers.begin()->second.info().quantization_error(), error.relative());
    auto layers = Start({Program("gemmctl"), "--socket", socket(), "layers", "-o", "json"});
    EXPECT_EQ(layers->Wait(absl::Minutes(1)), 0);
    const auto all = nlohmann::json::parse(layers->Rest(), nullptr, false);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0]["source_format"], "tensors, unquantized") << "the operator sees both";
    EXPECT_EQ(all[0]["quantization_error"], error.relative());
  }
}

// What was read of the same files for another target, or none, is another layer.
TEST_F(QuantizeTest, TargetsOfOneModuleAreLayersOfTheirOwn) {
  const std::string folder = WriteModel();
  std::set<std::string> digests;
  std::vector<client::Layer> layers;
  for (const char* target : {"", "int4,group=32", "int4,group=64", "int4,group=32,rule=full_range", "nvfp4", "mxfp4",
                             "fp8-block", "int3,tensor,zero=int"}) {
    auto layer = session_->RegisterCheckpoint(SourceOf(folder, kMlp + "down_proj", target), "cpu",
                                              absl::StrCat("to ", target));
    ASSERT_TRUE(layer.ok()) << target << ": " << layer.status();
    EXPECT_TRUE(digests.insert(layer->info().digest()).second) << target;
    EXPECT_EQ(layer->info().quantized() != v1::SCALE_RULE_UNSPECIFIED, *target != '\0');
    if (*target == '\0') {
      EXPECT_TRUE(IsLogged("format=unquantized quantized=no weight_bits=16"));
    }
    if (*target != '\0') {
      EXPECT_EQ(layer->info().digest(), DigestOf(folder, kMlp + "down_proj", target)) << target;
      EXPECT_GT(layer->info().quantization_error(), 0);
    }
    layers.push_back(*std::move(layer));
  }
}

TEST_F(QuantizeTest, SlicesAreThoseOfTheQuantizedWhole) {
  const std::string folder = WriteModel();
  for (const char* target : {"int4,group=32", "int4,tensor", "nvfp4", "e4m3,block=16x32"}) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      auto rows = SourceOf(folder, kMlp + "down_proj", target);
      auto columns = rows;
      *rows.mutable_slice()->mutable_rows() = client::RankOf(rank, 2);
      *columns.mutable_slice()->mutable_columns() = client::RankOf(rank, 2);
      const auto layer = session_->RegisterCheckpoint(rows, "cpu", absl::StrCat(target, " rows ", rank));
      ASSERT_TRUE(layer.ok()) << layer.status();
      const AxisSlice axis{.rank = rank, .size = 2, .range = {}};
      const SliceRequest row_slice{{}, axis, {}, {}};
      EXPECT_EQ(layer->info().digest(), DigestOf(folder, kMlp + "down_proj", target, row_slice));
      const auto cut = session_->RegisterCheckpoint(columns, "cpu", absl::StrCat(target, " columns ", rank));
      ASSERT_TRUE(cut.ok()) << cut.status();
      const SliceRequest column_slice{{}, {}, axis, {}};
      EXPECT_EQ(cut->info().digest(), DigestOf(folder, kMlp + "down_proj", target, column_slice));
    }
  }
}

TEST_F(QuantizeTest, JoinedPartsKeepTheirOwnScales) {
  const std::string folder = WriteModel();
  for (const char* target : {"int8,tensor,scale=f32", "nvfp4"}) {
    std::vector<StandardTensor> parts;
    for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
      parts.push_back(*QuantizeLayer(ReadLayer(folder, kAttention + part)->tensor, TargetOf(target)));
    }
    const StandardTensor joined = *ConcatenateRows(std::move(parts));
    const auto layer = session_->RegisterCheckpoint(SourceOf(folder, kAttention + "qkv_proj", target), "cpu", target);
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_EQ(layer->info().digest(), Digest(joined));
  }
}

TEST_F(QuantizeTest, AModelIsQuantizedButForWhatIsExcluded) {
  const std::string folder = WriteModel({{"lm_head.weight", Float16Tensor(8, 64, 3)}});
  v1::RegisterModelRequest request;
  request.set_path(folder);
  request.set_fuse(true);
  request.add_exclude("lm_head");
  *request.mutable_quantize() = client::ParseQuantizeTo("w4a16,group=32").value();
  const auto model = client::RegisterModel(*session_, request);
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(model->layers.size(), 2u);
  for (const auto& [module, layer] : model->layers) {
    EXPECT_EQ(layer.info().spec().weight().bits(), 4u) << module;
    EXPECT_EQ(layer.info().quantized(), v1::SCALE_RULE_LARGEST) << module;
  }
  EXPECT_EQ(Status().layers(), 2u) << "the library's references are to the daemon's layers";
  request.set_path(Checkpoints() + "/modelopt_fp8_llama");
  const auto quantized = client::RegisterModel(*session_, request);
  EXPECT_EQ(ReasonOf(quantized.status()), "ALREADY_QUANTIZED") << quantized.status();
  EXPECT_THAT(std::string(quantized.status().message()), HasSubstr("model.layers.0."));
}

TEST_F(QuantizeTest, RefusesWhatCannotBeQuantized) {
  const std::string folder = WriteModel();
  const auto expect = [&](const v1::CheckpointSource& source, const char* reason, const char* message) {
    const auto layer = session_->RegisterCheckpoint(source);
    EXPECT_EQ(ReasonOf(layer.status()), reason) << layer.status();
    EXPECT_THAT(std::string(layer.status().message()), HasSubstr(message));
  };
  v1::CheckpointSource source = SourceOf(folder, kMlp + "down_proj", "int4,group=32");
  v1::QuantizeTo& target = *source.mutable_quantize();
  const v1::QuantizeTo good = target;
  target.clear_spec();
  expect(source, "MISSING_FIELD", "checkpoint.quantize.spec");
  target = good;
  target.set_rule(static_cast<v1::ScaleRule>(9));
  expect(source, "UNKNOWN_ENUM", "checkpoint.quantize.rule");
  target = good;
  *target.mutable_spec()->mutable_weight() = ToProto(kBFloat16);
  expect(source, "BAD_SPEC", "checkpoint.quantize: weights of 16 bits are not quantized");
  target = good;
  target.mutable_spec()->set_has_group_index(true);
  expect(source, "UNSUPPORTED_SPEC", "a group index");
  expect(SourceOf(Checkpoints() + "/gptq_v1_autogptq_b4_g128_sym", kMlp + "down_proj", "int4,group=32"),
         "ALREADY_QUANTIZED",
         "model.safetensors: module model.layers.0.mlp.down_proj: tensor model.layers.0.mlp.down_proj.qweight: its weights "
         "have 4 bits");
  expect(SourceOf(folder, "nothing", "int4,group=32"), "MODULE_NOT_FOUND", "nothing");
  Weights weights(*session_, kFloat32);
  const float bad = std::nanf("");
  std::memcpy(weights.tensor().codes.data() + 4 * (kWeightRows * kWeightColumns + 3 * kWeightColumns + 5), &bad, 4);
  weights.Share();
  const auto not_finite = session_->RegisterTensors(weights.To(good), "cpu", "");
  EXPECT_EQ(ReasonOf(not_finite.status()), "NOT_FINITE");
  EXPECT_THAT(std::string(not_finite.status().message()), HasSubstr("expert 1, row 3, column 5 is nan"));
  client::LayerTensors quantized = weights.To(good);
  *quantized.spec.mutable_weight() = ToProto(kFloat8E4M3);
  quantized.codes.byte_size = 2 * kWeightRows * kWeightColumns;
  EXPECT_EQ(ReasonOf(session_->RegisterTensors(quantized, "cpu", "").status()), "ALREADY_QUANTIZED");
  EXPECT_EQ(Status().layers(), 0u);
}

TEST_F(QuantizeTest, GemmctlQuantizesWithTheDaemonAndWithoutIt) {
  const std::string folder = WriteModel();
  const std::string module = kMlp + "down_proj";
  const auto tool = [this](std::vector<std::string> words) {
    words.insert(words.begin(), {Program("gemmctl"), "--socket", socket()});
    return Start(words);
  };
  for (const char* spec : {"int4,group=32,zero=int", "nvfp4"}) {
    auto run = tool({"run", folder, module, "--random", "5", "--dtype", "f32", "--quantize", spec});
    EXPECT_EQ(run->Wait(absl::Minutes(1)), 0) << spec;
    const std::string text = run->Rest();
    EXPECT_THAT(text, HasSubstr("by the daemon, rule largest, relative error of the weights"));
    EXPECT_THAT(text, HasSubstr("within"));
  }
  const std::string file = directory_ + "/layer.safetensors";
  auto exported = tool({"export", folder, module, file, "--quantize", "mxfp8", "-o", "json"});
  EXPECT_EQ(exported->Wait(absl::Minutes(1)), 0);
  const auto json = nlohmann::json::parse(exported->Rest(), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["digest"], DigestOf(folder, module, "mxfp8"));
  EXPECT_GT(json["quantization_error"], 0);
  auto described = tool({"register", folder, module, "--quantize", "mxfp8", "-o", "json"});
  EXPECT_EQ(described->Wait(absl::Minutes(1)), 0);
  const auto info = nlohmann::json::parse(described->Rest(), nullptr, false);
  EXPECT_EQ(info["digest"], json["digest"]);
  EXPECT_EQ(info["quantized"], "SCALE_RULE_OCP");
  auto all = tool({"register", folder, "--all", "--fuse", "--quantize", "w8a16"});
  EXPECT_EQ(all->Wait(absl::Minutes(1)), 0);
  EXPECT_THAT(all->Rest(), HasSubstr("unquantized, quantized"));
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"register", folder, module, "--quantize", "int4,groups=32"},
           {"register", folder, "--all", "--quantize", "int9"},
           {"prewarm", "--running", "--quantize", "int4"}}) {
    EXPECT_EQ(tool(words)->Wait(absl::Minutes(1)), 2) << words.back();
  }
  EXPECT_EQ(tool({"export", folder, module, file, "--force", "--quantize", "int4,scale=none,secondary=tensor"})
                ->Wait(absl::Minutes(1)),
            1);
}

}  // namespace
}  // namespace gemmd::e2e

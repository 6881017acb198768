// gemmctl export: what it wrote is read back and compared bit for bit.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/gemmctl/export_file.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/safetensors.h"
#include "core/quant/reference.h"
#include "core/quant/standard_tensor.h"
#include "tests/client/gemmctl/tool.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd::gemmctl {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kGptq[] = "gptq_v1_autogptq_b4_g128_sym";
constexpr char kDown[] = "model.layers.0.mlp.down_proj";

std::string Content(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

json HeaderOf(const std::filesystem::path& file) {
  const std::string content = Content(file);
  uint64_t length = 0;
  std::memcpy(&length, content.data(), sizeof(length));
  EXPECT_EQ(length % 8, 0u) << "the data begin at a multiple of 8";
  return json::parse(content.substr(sizeof(length), length));
}

// ---- the file back into a StandardTensor, as core/quant/README.md says ----

template <typename Enum>
Enum EnumOf(const json& name, const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
  }
  ADD_FAILURE() << name << " is no known name";
  return {};
}

NumberFormat FormatOf(const json& from) {
  if (from.is_null()) return kNoFormat;
  return {EnumOf<NumberKind>(from["kind"], {"none", "integer", "float", "exponent"}), from["bits"],
          from["exponent_bits"], from["mantissa_bits"],
          EnumOf<SpecialValues>(from["special"], {"none", "nan_only", "ieee"})};
}

ActivationScaleKind ActivationScaleOf(const json& name) {
  return EnumOf<ActivationScaleKind>(name,
                                     {"none", "static_tensor", "dynamic_token", "dynamic_group"});
}

QuantSpec SpecOf(const json& from) {
  QuantSpec spec;
  spec.weight = FormatOf(from["weight"]);
  spec.scale = FormatOf(from["scale"]);
  spec.scale_block_n = from["scale_block_n"];
  spec.scale_block_k = from["scale_block_k"];
  spec.zero_point = EnumOf<ZeroPointKind>(from["zero_point"], {"none", "integer", "float"});
  spec.secondary_scale =
      EnumOf<SecondaryScaleKind>(from["secondary_scale"], {"none", "tensor", "channel"});
  spec.has_group_index = from["has_group_index"];
  spec.bias = FormatOf(from["bias"]);
  spec.activation = FormatOf(from["activation"]);
  spec.activation_scale = ActivationScaleOf(from["activation_scale"]);
  spec.activation_group = from["activation_group"];
  return spec;
}

StandardTensor FactsOf(const json& from) {
  StandardTensor tensor;
  tensor.spec = SpecOf(from["spec"]);
  tensor.shape = {from["experts"], from["n"], from["k"]};
  tensor.scale_columns = from["scale_columns"];
  tensor.gate_up_interleaved = from["gate_up_interleaved"];
  tensor.has_input_scale = from["has_input_scale"];
  const json& encoding = from["encoding"];
  if (encoding.is_null()) return tensor;
  tensor.encoding = {FormatOf(encoding["format"]), ActivationScaleOf(encoding["scale"]),
                     encoding["group"], encoding["zero_points"], FormatOf(encoding["group_scale"])};
  return tensor;
}

StandardTensor ReadBack(const std::filesystem::path& path) {
  const json metadata = HeaderOf(path)["__metadata__"];
  EXPECT_EQ(metadata["gemmd.format"], "StandardTensor");
  StandardTensor tensor = FactsOf(json::parse(metadata["gemmd.layer"].get<std::string>()));
  const auto file = SafetensorsFile::Open(path, path.filename().string());
  EXPECT_TRUE(file.ok()) << file.status();
  const auto sizes = TensorSizes(tensor);
  EXPECT_TRUE(sizes.ok()) << sizes.status();
  size_t present = 0;
  for (const TensorSize& size : *sizes) {
    const TensorInfo* info = (*file)->Find(size.name);
    EXPECT_EQ(info != nullptr, size.bytes > 0) << size.name;
    if (info == nullptr) continue;
    ++present;
    tensor.*size.buffer = *(*file)->Read(*info);
  }
  EXPECT_EQ((*file)->tensors().size(), present) << "a tensor without a meaning";
  EXPECT_EQ(Digest(tensor), metadata["gemmd.digest"]);
  return tensor;
}

void ExpectSame(const StandardTensor& got, const StandardTensor& want) {
  EXPECT_TRUE(got.spec == want.spec);
  EXPECT_TRUE(got.shape == want.shape);
  EXPECT_TRUE(got.encoding == want.encoding);
  EXPECT_EQ(got.scale_columns, want.scale_columns);
  EXPECT_EQ(got.gate_up_interleaved, want.gate_up_interleaved);
  EXPECT_EQ(got.has_input_scale, want.has_input_scale);
  const auto sizes = TensorSizes(want);
  ASSERT_TRUE(sizes.ok());
  for (const TensorSize& size : *sizes) {
    EXPECT_TRUE(got.*size.buffer == want.*size.buffer) << size.name;
  }
  EXPECT_TRUE(Validate(got).ok());
  EXPECT_EQ(Digest(got), Digest(want));
}

std::vector<float> Floats(const std::filesystem::path& path, const std::string& name) {
  const auto file = SafetensorsFile::Open(path, path.filename().string());
  EXPECT_TRUE(file.ok()) << file.status();
  const TensorInfo* info = (*file)->Find(name);
  if (info == nullptr) return {};
  EXPECT_EQ(info->dtype, "F32");
  const auto bytes = (*file)->Read(*info);
  EXPECT_TRUE(bytes.ok());
  std::vector<float> values(bytes->size() / sizeof(float));
  std::memcpy(values.data(), bytes->data(), bytes->size());
  return values;
}

std::vector<float> Dequantized(const StandardTensor& tensor) {
  const auto [experts, n, k] = tensor.shape;
  std::vector<float> weights(static_cast<size_t>(experts * n * k));
  for (int64_t row = 0; row < experts * n; ++row) {
    DequantizeRowFloat32(tensor, row / n, row % n, absl::MakeSpan(weights).subspan(row * k, k));
  }
  return weights;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class ExportTest : public testing::Test {
 protected:
  ToolRun Export(const std::string& checkpoint, const std::string& module,
                 std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"export", checkpoint, module, path().string()};
    words.insert(words.end(), more.begin(), more.end());
    return Tool(words);
  }
  std::filesystem::path path() const { return directory_.path() / "layer.safetensors"; }
  size_t FilesInFolder() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory_.path()),
                                             std::filesystem::directory_iterator()));
  }

  TemporaryDirectory directory_;
};

TEST_F(ExportTest, EveryGoldenLayerComesBackBitForBit) {
  int layers = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(GEMMD_TEST_DATA) + "/checkpoints")) {
    if (!entry.is_directory()) continue;
    const auto modules = ListModules(entry.path());
    ASSERT_TRUE(modules.ok()) << modules.status();
    for (const std::string& module : *modules) {
      SCOPED_TRACE(entry.path().filename().string() + " " + module);
      const auto layer = ReadLayer(entry.path(), module);
      const ToolRun run = Export(entry.path(), module, {"--force"});
      ASSERT_EQ(run.code, layer.ok() ? kDone : kFailed) << run.err;
      if (!layer.ok()) continue;
      ++layers;
      ExpectSame(ReadBack(path()), layer->tensor);
      ASSERT_EQ(Export(entry.path(), module, {"--force", "--as", "float32"}).code, kDone);
      EXPECT_TRUE(SameBits(Floats(path(), module + ".weight"), Dequantized(layer->tensor)));
      std::vector<float> bias;
      const auto [experts, n, k] = layer->tensor.shape;
      if (layer->tensor.spec.bias.present()) {
        for (int64_t row = 0; row < experts * n; ++row) {
          bias.push_back(static_cast<float>(Bias(layer->tensor, row / n, row % n)));
        }
      }
      EXPECT_TRUE(SameBits(Floats(path(), module + ".bias"), bias));
    }
  }
  EXPECT_GT(layers, 100);
  EXPECT_EQ(FilesInFolder(), 1u) << "temporary files stay behind";
}

TEST_F(ExportTest, WritesAComposedModuleThatHasNoTensorsOfItsOwn) {
  const std::string checkpoint = CaseDirectory("modelopt_nvfp4_qwen3moe");
  const std::string module = "model.layers.0.mlp.experts.gate_up_proj";
  const auto layer = ReadLayer(checkpoint, module);
  ASSERT_TRUE(layer.ok()) << layer.status();
  ASSERT_EQ(Export(checkpoint, module).code, kDone);
  ExpectSame(ReadBack(path()), layer->tensor);
}

TEST_F(ExportTest, ReadsZeroPointsAsTheOptionSays) {
  const std::string checkpoint = CaseDirectory("gptq_v1_gptqmodel_b4_g64_asym_borrow");
  const auto by_word = ReadLayer(checkpoint, kDown);
  const auto by_field =
      ReadLayer(checkpoint, kDown, nullptr, {}, {}, nullptr, {.gptq_zero_points = GptqZeroPoints::kFieldMasked});
  ASSERT_TRUE(by_word.ok() && by_field.ok());
  ASSERT_NE(Digest(by_word->tensor), Digest(by_field->tensor));
  const ToolRun masked = Export(checkpoint, kDown, {"--gptq-zero-points", "field-masked", "-o", "json"});
  ASSERT_EQ(masked.code, kDone);
  EXPECT_THAT(masked.err, HasSubstr("note: tensor model.layers.0.mlp.down_proj.qzeros: 29 of "));
  EXPECT_THAT(json::parse(masked.out)["notes"].at(0).get<std::string>(), HasSubstr("(field-masked)"));
  ExpectSame(ReadBack(path()), by_field->tensor);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--force"}, {"--force", "--gptq-zero-points", "word"}}) {
    ASSERT_EQ(Export(checkpoint, kDown, words).code, kDone);
    ExpectSame(ReadBack(path()), by_word->tensor);
  }
}

// 4 MiB is one block of what is written: this layer takes several, the last one partial.
TEST_F(ExportTest, WritesLargeLayersInBlocks) {
  constexpr int64_t kN = 1300, kK = 1111;
  RawTensor weight{"F16", {kN, kK}, std::string(2 * kN * kK, '\0')};
  for (size_t i = 0; i < weight.bytes.size(); i += 2) {
    weight.bytes[i] = static_cast<char>(i * 7 / 3);
    weight.bytes[i + 1] = static_cast<char>(0x30 + i % 11);  // finite
  }
  TemporaryDirectory checkpoint;
  WriteFile(checkpoint.path() / "config.json", "{}");
  WriteTensors(checkpoint.path() / "model.safetensors", {{"a.weight", weight}});
  const auto layer = ReadLayer(checkpoint.path(), "a");
  ASSERT_TRUE(layer.ok()) << layer.status();
  ASSERT_EQ(Export(checkpoint.path(), "a", {"--as", "float32"}).code, kDone);
  EXPECT_GT(std::filesystem::file_size(path()), size_t{5} << 20);
  EXPECT_TRUE(SameBits(Floats(path(), "a.weight"), Dequantized(layer->tensor)));
}

TEST_F(ExportTest, ReplacesAFileOnlyWhenTold) {
  WriteFile(path(), "precious");
  const ToolRun refused = Export(CaseDirectory(kGptq), kDown);
  EXPECT_EQ(refused.code, kUsage);
  EXPECT_THAT(refused.err, HasSubstr("--force"));
  EXPECT_EQ(Content(path()), "precious");
  EXPECT_EQ(Export(CaseDirectory(kGptq), kDown, {"--force"}).code, kDone);
  EXPECT_NE(Content(path()), "precious");
  EXPECT_EQ(FilesInFolder(), 1u);
}

TEST_F(ExportTest, ReplacesNothingButFiles) {
  const std::filesystem::path target = path().string() + ".target";
  WriteFile(target, "precious");
  std::filesystem::create_symlink(target, path());
  const ToolRun refused = Export(CaseDirectory(kGptq), kDown, {"--force"});
  EXPECT_EQ(refused.code, kUsage);
  EXPECT_THAT(refused.err, HasSubstr("no regular file"));
  EXPECT_TRUE(std::filesystem::is_symlink(path()));
  EXPECT_EQ(Content(target), "precious");
}

TEST_F(ExportTest, APartThatWasLeftBehindIsNoHindrance) {
  WriteFile(path().string() + ".part-" + std::to_string(getpid()), "of one that was killed");
  EXPECT_EQ(Export(CaseDirectory(kGptq), kDown).code, kDone);
  EXPECT_EQ(FilesInFolder(), 2u) << "it stays";
}

// As of a process that is killed: what has no name cannot stay. Where the file system has no such files, a part
// lies beside.
TEST_F(ExportTest, AFileThatIsNotWholeHasNoName) {
  const int probe = open(directory_.path().c_str(), O_WRONLY | O_TMPFILE, 0600);
  const size_t parts = probe < 0 ? 1 : 0;
  if (probe >= 0) close(probe);
  for (const bool replace : {false, true}) {
    auto file = ExportFile::Create(path(), replace);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Write("ours", 4).ok());
    EXPECT_EQ(FilesInFolder(), (replace ? 1u : 0u) + parts);
    ASSERT_TRUE(file->Commit().ok());
    EXPECT_EQ(FilesInFolder(), 1u);
    EXPECT_EQ(Content(path()), "ours");
  }
}

TEST_F(ExportTest, AFailureLeavesTheOldFileAndNothingElse) {
  WriteFile(path(), "precious");
  const ToolRun failed = Export(CaseDirectory(kGptq), "no.such.module", {"--force"});
  EXPECT_EQ(failed.code, kFailed);
  EXPECT_THAT(failed.err, HasSubstr("MODULE_NOT_FOUND"));
  EXPECT_EQ(Content(path()), "precious");
  EXPECT_EQ(FilesInFolder(), 1u);
}

TEST_F(ExportTest, AFileThatAppearsMeanwhileIsNotReplaced) {
  auto file = ExportFile::Create(path(), false);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Write("ours", 4).ok());
  WriteFile(path(), "theirs");
  EXPECT_THAT(std::string(file->Commit().message()), HasSubstr("exists"));
  EXPECT_EQ(Content(path()), "theirs");
}

TEST_F(ExportTest, SaysWhatIsWrongWithItsUsage) {
  EXPECT_EQ(Tool({"export", "a", "b"}).code, kUsage);
  EXPECT_THAT(Export(CaseDirectory(kGptq), kDown, {"--as", "int4"}).err, HasSubstr("'int4'"));
  const ToolRun folder = Tool({"export", CaseDirectory(kGptq), kDown, directory_.path().string()});
  EXPECT_EQ(folder.code, kUsage);
  EXPECT_THAT(folder.err, HasSubstr("folder"));
  const ToolRun nowhere =
      Tool({"export", CaseDirectory(kGptq), kDown, (directory_.path() / "no" / "file").string()});
  EXPECT_EQ(nowhere.code, kFailed);
  EXPECT_THAT(nowhere.err, HasSubstr("No such file"));
}

TEST_F(ExportTest, ReportsAsJson) {
  const ToolRun run = Export(CaseDirectory(kGptq), kDown, {"-o", "json"});
  ASSERT_EQ(run.code, kDone) << run.err;
  const json report = json::parse(run.out);
  EXPECT_EQ(report["digest"], HeaderOf(path())["__metadata__"]["gemmd.digest"]);
  EXPECT_EQ(report["bytes"], std::filesystem::file_size(path()));
  EXPECT_EQ(report["form"], "standard");
}

}  // namespace
}  // namespace gemmd::gemmctl

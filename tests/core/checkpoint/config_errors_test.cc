// Damaged configs of every exporter: the error names the file with its path, the module where it is about one, the
// key, what is expected and what is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/json.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr char kConfig[] = "config.json";
constexpr char kQuantConfigFile[] = "hf_quant_config.json";

struct Case {
  const char* checkpoint;
  const char* file;
  const char* pointer;  // of the damaged field, below quantization_config in config.json
  const char* value;    // JSON; "" removes the field
  const char* key;
  const char* expected;  // also of what no reader knows: what is read instead
  const char* got;
};

constexpr char kGptq[] = "gptq_v1_autogptq_b4_g128_sym";
constexpr char kAwq[] = "awq_gemm_g128";
constexpr char kCtInt[] = "ct_pack_w4_g128_sym";
constexpr char kCtBlock[] = "ct_fp8_block_div";
constexpr char kCtNvfp4[] = "ct_nvfp4_n50_k80";
constexpr char kFp8[] = "fp8_block128_deepseek";
constexpr char kAutoRound[] = "autoround_native_b4_g32_asym";
constexpr char kQuark[] = "encoded_quark_int4_group";
constexpr char kBitnet[] = "bitnet_autobitlinear";
constexpr char kMxfp4[] = "mxfp4_plain_uint8";
constexpr char kModelOpt[] = "modelopt_nvfp4_odd";

const std::vector<Case>& Cases() {
  static const auto* const kCases = new std::vector<Case>{
      {kGptq, kConfig, "/quant_method", R"("gguf")", "quant_method", "gptq, awq", "gguf"},
      {kGptq, kConfig, "/quant_method", "5", "quant_method", "a string", "5"},
      {kGptq, kConfig, "/quant_method", "", "quant_method", "gptq, awq", R"("")"},
      {kGptq, kConfig, "", "[4]", "quantization_config", "an object", "[4]"},
      {kGptq, kConfig, "/bits", R"("four")", "bits", "an integer", R"("four")"},
      {kGptq, kConfig, "/bits", "", "bits", "an integer", "none"},
      {kGptq, kConfig, "/bits", "5", "bits", "2, 3, 4, 8", "5"},
      {kGptq, kConfig, "/bits", "18446744073709551615", "bits", "an integer",
       "18446744073709551615"},
      {kGptq, kConfig, "/group_size", "0", "group_size", "-1 or an integer from 1 to 2^30", "0"},
      {kGptq, kConfig, "/group_size", "-2", "group_size", "-1 or an integer from 1 to 2^30", "-2"},
      {kGptq, kConfig, "/group_size", "1.5", "group_size", "an integer", "1.5"},
      {kGptq, kConfig, "/sym", R"("yes")", "sym", "true or false", R"("yes")"},
      {kGptq, kConfig, "/desc_act", "1", "desc_act", "true or false", "1"},
      {kGptq, kConfig, "/checkpoint_format", R"("marlin")", "checkpoint_format", "gptq_v2",
       "marlin"},
      {kGptq, kConfig, "/pack_dtype", R"("int8")", "pack_dtype", "int32", "int8"},
      {kGptq, kConfig, "/lm_head", "{}", "lm_head", "true or false", "{}"},
      {kGptq, kConfig, "/dynamic", "[]", "dynamic", "an object", "[]"},
      {kGptq, kConfig, "/dynamic", R"({"(": {}})", "dynamic", "pattern", "("},
      {kGptq, kConfig, "/dynamic", R"({"model": 3})", "dynamic.model", "an object", "3"},
      {kGptq, kConfig, "/dynamic", R"({"-:lm": {}, "+:model\\.": {"bits": "four"}})", R"("dynamic.+:model\.": "bits")",
       "an integer", R"("four")"},
      {kGptq, kConfig, "/dynamic", R"({"model": {"bits": 5}, "+:m": {"bits": 6}})", R"("dynamic.model": )", "2, 3, 4, 8", "5"},
      {kAwq, kConfig, "/bits", R"([4])", "bits", "an integer", "[4]"},
      {kAwq, kConfig, "/group_size", "0", "group_size", "-1 or an integer from 1 to 2^30", "0"},
      {kAwq, kConfig, "/version", R"("marlin")", "version", "gemm and gemv", "marlin"},
      {kAwq, kConfig, "/zero_point", "0", "zero_point", "true or false", "0"},
      {kAwq, kConfig, "/modules_to_not_convert", R"("lm_head")", "modules_to_not_convert",
       "a list of strings", R"("lm_head")"},
      {kCtInt, kConfig, "/config_groups", "", "config_groups", "an object", "none"},
      {kCtInt, kConfig, "/config_groups", "[1]", "config_groups", "an object", "[1]"},
      {kCtInt, kConfig, "/config_groups/group_0", R"("int4")", "config_groups.group_0", "an object",
       R"("int4")"},
      {kCtInt, kConfig, "/config_groups/group_0/targets", R"("Linear")", "targets",
       "a list of strings", R"("Linear")"},
      {kCtInt, kConfig, "/config_groups/group_0/targets", R"(["re:("])", "targets", "pattern", "("},
      {kCtInt, kConfig, "/config_groups/group_0/weights", "", "weights", "an object", "none"},
      {kCtInt, kConfig, "/config_groups/group_0/weights", "4", "weights", "an object", "4"},
      {kCtInt, kConfig, "/config_groups/group_0/weights/num_bits", R"("4")",
       R"(weights: "num_bits")", "an integer", R"("4")"},
      {kCtInt, kConfig, "/config_groups/group_0/weights/num_bits", "9", "weights: ", "1 to 8", "9"},
      {kCtInt, kConfig, "/config_groups/group_0/weights/group_size", "-3", "group_size",
       "an integer from 1 to 2^30", "-3"},
      {kCtInt, kConfig, "/config_groups/group_0/weights/actorder", "7", "actorder", "a string",
       "7"},
      {kCtInt, kConfig, "/config_groups/group_0/input_activations", R"("int8")",
       "input_activations", "an object", R"("int8")"},
      {kCtInt, kConfig, "/config_groups/group_0/output_activations", "7", "output_activations",
       "an object", "7"},
      {kCtInt, kConfig, "/sparsity_config", "[1]", "sparsity_config", "an object", "[1]"},
      {kCtInt, kConfig, "/transform_config", R"("hadamard")", "transform_config", "an object",
       R"("hadamard")"},
      {kCtInt, kConfig, "/ignore", R"({"a": 1})", "ignore", "a list of strings", R"({"a":1})"},
      {kCtInt, kConfig, "/ignore", R"(["re:("])", "ignore", "pattern", "("},
      {kCtInt, kConfig, "/version", "0.18", "version", "a string", "0.18"},
      {kCtInt, kConfig, "/quantization_status", R"("calibration")", "quantization_status",
       "compressed", "calibration"},
      {kCtBlock, kConfig, "/config_groups/group_0/weights/block_structure", "", "block_structure",
       kExtentPair, "none"},
      {kCtBlock, kConfig, "/config_groups/group_0/weights/block_structure", "[128, 0]",
       "block_structure", kExtentPair, "[128,0]"},
      {kCtBlock, kConfig, "/config_groups/group_0/weights/block_structure", "[4294967424, 128]",
       "block_structure", kExtentPair, "[4294967424,128]"},
      {kCtBlock, kConfig, "/config_groups/group_0/weights/block_structure", R"("128")",
       "block_structure", kExtentPair, R"("128")"},
      {kCtNvfp4, kConfig, "/config_groups/group_0/input_activations/dynamic", "1",
       R"(input_activations: "dynamic")", "true, false", "1"},
      {kCtNvfp4, kConfig, "/config_groups/group_0/input_activations/dynamic", R"("global")",
       "dynamic", "true, false", R"("global")"},
      {kCtNvfp4, kConfig, "/config_groups/group_0/input_activations/group_size", "0", "group_size",
       "an integer from 1 to 2^30", "0"},
      {kFp8, kConfig, "/weight_block_size", R"("128x128")", "weight_block_size",
       kExtentPair, R"("128x128")"},
      {kFp8, kConfig, "/weight_block_size", "[128]", "weight_block_size", kExtentPair,
       "[128]"},
      {kFp8, kConfig, "/weight_block_size", "[128, -1]", "weight_block_size",
       kExtentPair, "[128,-1]"},
      {kFp8, kConfig, "/activation_scheme", R"("token")", "activation_scheme", "dynamic and static",
       "token"},
      {kFp8, kConfig, "/fmt", R"("e3m4")", "fmt", "e4m3 and e5m2", "e3m4"},
      {kFp8, kConfig, "/ignored_layers", R"("all")", "ignored_layers", "a list of strings",
       R"("all")"},
      {kAutoRound, kConfig, "/packing_format", R"("auto_round:mlx")", "packing_format",
       "llm_compressor", "mlx"},
      {kAutoRound, kConfig, "/bits", R"("4")", "bits", "an integer", R"("4")"},
      {kAutoRound, kConfig, "/group_size", "[4]", "group_size", "an integer", "[4]"},
      {kAutoRound, kConfig, "/data_type", R"("nv_fp")", "data_type", "int with 16-bit", "nv_fp"},
      {kAutoRound, kConfig, "/extra_config", "[]", "extra_config", "an object", "[]"},
      {kAutoRound, kConfig, "/extra_config", R"({"(.*": {}})", "extra_config", "pattern", "(.*"},
      {kAutoRound, kConfig, "/block_name_to_quantize", "3", "block_name_to_quantize",
       "a list of strings", "3"},
      {kQuark, kConfig, "/global_quant_config", R"("int4")", "global_quant_config", "an object",
       R"("int4")"},
      {kQuark, kConfig, "/global_quant_config/weight", R"("int4")", "weight", "an object",
       R"("int4")"},
      {kQuark, kConfig, "/global_quant_config/weight/group_size", "-1", "group_size",
       "an integer from 1 to 2^30", "-1"},
      {kQuark, kConfig, "/global_quant_config/weight/dtype", R"("mx6")", "weights of", "not read",
       "mx6"},
      {kQuark, kConfig, "/global_quant_config/weight/qscheme", R"("per_block")", "block_size",
       kExtentPair, "none"},
      {kQuark, kConfig, "/layer_quant_config", "[1]", "layer_quant_config", "an object", "[1]"},
      {kQuark, kConfig, "/layer_quant_config", R"({"*": 3})", "layer_quant_config.*", "an object",
       "3"},
      {kQuark, kConfig, "/layer_type_quant_config", R"("x")", "layer_type_quant_config",
       "an object", R"("x")"},
      {kQuark, kConfig, "/exclude", R"(["re:("])", "exclude", "pattern", "("},
      {kQuark, kConfig, "/export", "true", "export", "an object", "true"},
      {kQuark, kConfig, "/export/pack_method", R"("zigzag")", "pack_method", "not read", "zigzag"},
      {kBitnet, kConfig, "/linear_class", R"("dense")", "linear_class",
       "bitlinear and autobitlinear", "dense"},
      {kBitnet, kConfig, "/modules_to_not_convert", R"(["("])", "modules_to_not_convert", "pattern",
       "("},
      {kMxfp4, kConfig, "/modules_to_not_convert", "{}", "modules_to_not_convert",
       "a list of strings", "{}"},
      {kModelOpt, kQuantConfigFile, "/quantization", "[]", "quantization", "an object", "[]"},
      {kModelOpt, kQuantConfigFile, "/quantization/quant_algo", "4", "quant_algo", "a string", "4"},
      {kModelOpt, kQuantConfigFile, "/quantization/quant_algo", R"("NVFP5")", "quant_algo", "fp8, ",
       "nvfp5"},
      {kModelOpt, kQuantConfigFile, "/quantization/group_size", R"("16")", "group_size",
       "an integer", R"("16")"},
      {kModelOpt, kQuantConfigFile, "/quantization/group_size", "-16", "group_size",
       "an integer from 1 to 2^30", "-16"},
      {kModelOpt, kQuantConfigFile, "/quantization/group_size", "32", "group_size", "16", "32"},
      {kModelOpt, kQuantConfigFile, "/quantization/exclude_modules", R"("lm_head")",
       "exclude_modules", "a list of strings", R"("lm_head")"},
      {kModelOpt, kQuantConfigFile, "/quantization/quant_algo", R"("MIXED_PRECISION")",
       "quantized_layers", "an object", "none"},
  };
  return *kCases;
}

void Damage(nlohmann::ordered_json& document, const std::string& pointer,
            const std::string& value) {
  const nlohmann::ordered_json::json_pointer at(pointer);
  if (!value.empty()) {
    document[at] = nlohmann::ordered_json::parse(value);
  } else {
    document[at.parent_pointer()].erase(at.back());
  }
}

// Of the first module, or of what comes before any.
absl::Status FirstError(const std::filesystem::path& directory, std::string& module) {
  const auto checkpoint = Checkpoint::Open(directory);
  if (!checkpoint.ok()) return checkpoint.status();
  const auto modules = (*checkpoint)->ListModules();
  if (!modules.ok()) return modules.status();
  module = modules->front();
  return (*checkpoint)->ReadLayer(module).status();
}

// Beside quantization_config.
TEST(ConfigErrorsTest, OfTheModelNameFileKeyExpectedAndGot) {
  struct ModelCase {
    const char* key;
    const char* value;
    const char* message;
  };
  for (const ModelCase& one :
       {ModelCase{"text_config", "[]", R"("text_config": expected an object, got [])"},
        ModelCase{"text_config", R"({"llm_config": 1})", R"("text_config.llm_config": expected an object, got 1)"},
        ModelCase{"thinker_config", "true", R"("thinker_config": expected an object, got true)"},
        ModelCase{"model_type", "7", R"("model_type": expected a string, got 7)"},
        ModelCase{"text_config", R"({"model_type": []})", R"("text_config.model_type": expected a string, got [])"},
        ModelCase{"block_configs", "{}", R"("block_configs": expected a list of objects, got {})"},
        ModelCase{"block_configs", R"([{}, "x"])", R"("block_configs[1]": expected an object, got "x")"},
        ModelCase{"num_experts", "-1", R"("num_experts": expected an integer from 0 to 65536, got -1)"},
        ModelCase{"num_hidden_layers", "2.0", R"("num_hidden_layers": expected an integer from 0 to 65536, got 2.0)"},
        ModelCase{"hidden_size", "-5", R"("hidden_size": expected an integer from 0 to 2^30, got -5)"},
        ModelCase{"moe_intermediate_size", R"(["8"])", R"("moe_intermediate_size": expected an integer from 0 to 2^30, got ["8"])"},
        ModelCase{"block_configs", R"([{"ffn": 2}])", R"("block_configs[0].ffn": expected an object, got 2)"}}) {
    SCOPED_TRACE(absl::StrCat(one.key, " = ", one.value));
    EditableCheckpoint checkpoint(kGptq);
    checkpoint.config[one.key] = nlohmann::ordered_json::parse(one.value);
    const TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    const absl::Status status = Checkpoint::Open(directory.path()).status();
    EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT");
    EXPECT_EQ(std::string(status.message()),
              absl::StrCat((directory.path() / kConfig).string(), ": ", one.message));
  }
}

TEST(ConfigErrorsTest, NameFileModuleKeyExpectedAndGot) {
  for (const Case& one : Cases()) {
    SCOPED_TRACE(std::string(one.checkpoint) + " " + one.pointer + " = " + one.value);
    EditableCheckpoint checkpoint(one.checkpoint);
    if (one.file == kQuantConfigFile) {
      ASSERT_FALSE(checkpoint.modelopt_config.is_null());
      checkpoint.config.erase("quantization_config");
      Damage(checkpoint.modelopt_config, one.pointer, one.value);
    } else {
      Damage(checkpoint.config, std::string("/quantization_config") + one.pointer, one.value);
    }
    const TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    std::string module;
    const absl::Status status = FirstError(directory.path(), module);
    ASSERT_THAT(ReasonOf(status), AnyOf("BAD_CHECKPOINT", "UNSUPPORTED_FORMAT")) << status;
    const std::string message(status.message());
    EXPECT_EQ(message.rfind((directory.path() / one.file).string() + ": ", 0), 0u) << message;
    if (!module.empty()) {
      EXPECT_THAT(message, HasSubstr(": module " + module));
    }
    EXPECT_THAT(message, HasSubstr(one.key));
    EXPECT_THAT(message, HasSubstr(one.expected));
    EXPECT_THAT(message, HasSubstr(one.got));
  }
}

// Whoever writes them, and in modules that are quantized or not: their weights fit a rotated x alone.
TEST(ConfigErrorsTest, NameTheRotationsThatXWouldNeed) {
  const std::vector<std::pair<const char*, const char*>> asked = {
      {"rotation_config", R"({"algorithm": "hadamard", "block_size": 32, "hadamard_type": "hadamard"})"},
      {"rotation_config", R"({"backend": "inplace", "fuse_online_to_weight": true})"},
      {"rotation_config", R"("hadamard")"},
      {"hadamard_config", R"({"block_size": 32})"},
      {"spinquant_config", R"({"rotation_size": 32})"},
      {"spinquant_config", R"({"r1": false, "r4": true})"},
      {"transform_config", R"({"config_groups": {"R4": {"type": "hadamard"}}})"},
      {"rotation", R"("hadamard")"},
      {"rotation", R"("random")"},
      {"algo_config", R"([{"name": "rotation", "online_r1_rotation": true}])"}};
  for (const char* name : {kAutoRound, "autoround_mxfp4", "autoround_autoawq_sym", "autoround_fp8_channel", kGptq, kAwq,
                           kCtInt, kFp8, kQuark, kBitnet, kMxfp4}) {
    for (const auto& [key, value] : asked) {
      SCOPED_TRACE(absl::StrCat(name, " ", key, " = ", value));
      EditableCheckpoint checkpoint(name);
      checkpoint.config["quantization_config"][key] = nlohmann::ordered_json::parse(value);
      checkpoint.tensors["lm_head.weight"] = {"BF16", {2, 4}, std::string(16, '\0')};
      const TemporaryDirectory directory;
      checkpoint.Write(directory.path());
      std::string module;
      const absl::Status status = FirstError(directory.path(), module);
      const std::string expected = absl::StrCat(": \"", key, "\"");
      for (const auto& [of, error] : {std::pair(module, status),
                                      {"lm_head", ReadLayer(directory.path(), "lm_head", nullptr).status()}}) {
        EXPECT_EQ(ReasonOf(error), "UNSUPPORTED_FORMAT") << error;
        EXPECT_THAT(std::string(error.message()),
                    HasSubstr((directory.path() / kConfig).string() + ": module " + of + expected));
      }
    }
  }
}

TEST(ConfigErrorsTest, TakeRotationsThatAreInTheWeights) {
  for (const char* fields :
       {R"({"rotation_config": null, "spinquant_config": null, "rotation": null, "transform_config": null})",
        R"({"rotation_config": {}, "hadamard_config": {}, "spinquant_config": {}, "transform_config": {}, "rotation": ""})",
        R"({"spinquant_config": {"r1": true, "online_r1_rotation": false, "r2": true, "r3": true, "r4": false}})",
        R"({"spinquant_config": {"r1": false}})", R"({"algo_config": [{"name": "rotation", "r1": true, "r4": false}]})"}) {
    for (const char* name : {kAutoRound, kGptq, kQuark}) {
      SCOPED_TRACE(absl::StrCat(name, " ", fields));
      EditableCheckpoint checkpoint(name);
      checkpoint.config["quantization_config"].update(nlohmann::ordered_json::parse(fields));
      const TemporaryDirectory directory;
      checkpoint.Write(directory.path());
      std::string module;
      const absl::Status status = FirstError(directory.path(), module);
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

// Whatever a group size is, it is the config's fault, not that of a tensor which does not fit it.
TEST(ConfigErrorsTest, NameTheGroupSizeThatIsNone) {
  const std::string ct = "/config_groups/group_0/";
  const std::vector<std::pair<const char*, std::string>> keys = {
      {kGptq, "/group_size"},
      {kAwq, "/group_size"},
      {kCtInt, ct + "weights/group_size"},
      {kCtNvfp4, ct + "weights/group_size"},
      {kCtNvfp4, ct + "input_activations/group_size"},
      {kAutoRound, "/group_size"},
      {kQuark, "/global_quant_config/weight/group_size"},
      {kModelOpt, "/group_size"}};
  for (const auto& [name, pointer] : keys) {
    for (const char* value : {"1000000000000000000", "1073741825", "-7", "128.0", "\"128\"", "true",
                              "9223372036854775808", "-9223372036854775808", "0"}) {
      if (std::string(value) == "0" && name == kModelOpt) continue;  // it writes 0 for none
      SCOPED_TRACE(absl::StrCat(name, pointer, " = ", value));
      EditableCheckpoint checkpoint(name);
      const bool in_file = !checkpoint.modelopt_config.is_null();
      if (in_file) checkpoint.config.erase("quantization_config");
      Damage(in_file ? checkpoint.modelopt_config : checkpoint.config,
             (in_file ? "/quantization" : "/quantization_config") + pointer, value);
      const TemporaryDirectory directory;
      checkpoint.Write(directory.path());
      std::string module;
      const absl::Status status = FirstError(directory.path(), module);
      EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT") << status;
      const std::string message(status.message());
      EXPECT_EQ(message.rfind((directory.path() / (in_file ? kQuantConfigFile : kConfig)).string(), 0),
                0u)
          << message;
      EXPECT_THAT(message, HasSubstr("\"group_size\": expected "));
      EXPECT_THAT(message, HasSubstr(absl::StrCat("got ", value)));
    }
  }
}

// A size of 16 bits and more means none; one that no type has does not.
TEST(ConfigErrorsTest, NameBitsThatNoTypeHas) {
  for (const auto& [name, pointer] :
       {std::pair(kAutoRound, "/bits"), std::pair(kAutoRound, "/act_bits"),
        std::pair(kGptq, "/bits"), std::pair(kAwq, "/bits"),
        std::pair(kCtInt, "/config_groups/group_0/weights/num_bits"),
        std::pair(kCtNvfp4, "/config_groups/group_0/input_activations/num_bits")}) {
    EditableCheckpoint checkpoint(name);
    Damage(checkpoint.config, std::string("/quantization_config") + pointer, "1000000000000000000");
    const TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    std::string module;
    const std::string message(FirstError(directory.path(), module).message());
    EXPECT_EQ(message.rfind((directory.path() / kConfig).string(), 0), 0u) << message;
    EXPECT_THAT(message, HasSubstr("bits"));
    EXPECT_THAT(message, HasSubstr("1000000000000000000"));
  }
}

TEST(ConfigErrorsTest, NameTheFileOfOlderExporters) {
  for (const auto& [name, base] :
       {std::pair("quantize_config.json", kGptq), std::pair("quant_config.json", kAwq)}) {
    EditableCheckpoint checkpoint(base);
    nlohmann::ordered_json separate = checkpoint.config["quantization_config"];
    checkpoint.config.erase("quantization_config");
    separate["bits"] = "four";
    const TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    WriteFile(directory.path() / name, separate.dump());
    std::string module;
    const std::string message(FirstError(directory.path(), module).message());
    EXPECT_EQ(message, (directory.path() / name).string() + ": module " + module +
                           ": \"bits\": expected an integer from -2^63 to 2^63 - 1, got \"four\"");
  }
}

TEST(ConfigErrorsTest, NameTheFileThatIsNoJson) {
  struct Text {
    const char* text;
    const char* message;
  };
  for (const char* file : {kConfig, kQuantConfigFile, "model.safetensors.index.json"}) {
    for (const auto& [text, expected] :
         std::vector<Text>{{"", "not valid JSON at line 1, column 1 (byte 1)"},
                           {"{\"a\": 1", "not valid JSON at line 1, column 8 (byte 8)"},
                           {"{} x", "not valid JSON at line 1, column 4 (byte 4)"},
                           {"{\n  \"a\": 1,\n  \"b\": infinity\n}", "not valid JSON at line 3, column 8 (byte 20)"},
                           {"{\"a\": 1NaN}", "not valid JSON at line 1, column 8 (byte 8)"},
                           {"{\"a\": --Infinity}", "not valid JSON at line 1, column 8 (byte 8)"},
                           {"{NaN: 1}", "not valid JSON at line 1, column 4 (byte 4)"},
                           {"NaN", "expected a JSON object, got NaN"},
                           {"[1, -Infinity]", "expected a JSON object, got [1,\"-Infinity\"]"},
                           {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
                            "a Git LFS pointer, not the file that it stands for: run \"git lfs pull\""},
                           {"\n <!DOCTYPE html>",
                            "an HTML or XML page, not the file that was to be downloaded: download it again"},
                           {"{\"a\": 1e999}", "the number 1e999 is none of float64"},
                           {"[1, 2]", "expected a JSON object, got [1,2]"},
                           {"{\"a\": 1, \"a\": 2}", "duplicate key \"a\""}}) {
      const EditableCheckpoint checkpoint(kModelOpt);
      const TemporaryDirectory directory;
      checkpoint.Write(directory.path());
      WriteFile(directory.path() / file, text);
      std::string module;
      const absl::Status status = FirstError(directory.path(), module);
      EXPECT_EQ(ReasonOf(status), "BAD_CHECKPOINT") << file << " " << text;
      EXPECT_EQ(status.message(), (directory.path() / file).string() + ": " + expected);
    }
  }
}

TEST(ConfigErrorsTest, NameWhatIsWrongWithTheIndex) {
  for (const auto& [index, expected] :
       {std::pair("{}", "\"weight_map\": expected an object, got none"),
        std::pair(R"({"weight_map": [1]})", "\"weight_map\": expected an object, got [1]"),
        std::pair(R"({"weight_map": {"a.weight": 3}})",
                  "tensor a.weight: expected the name of a file in the same "
                  "directory, got 3"),
        std::pair(R"({"weight_map": {"a.weight": "../b"}})", "got \"../b\"")}) {
    const EditableCheckpoint checkpoint(kGptq);
    const TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    const std::filesystem::path file = directory.path() / "model.safetensors.index.json";
    WriteFile(file, index);
    std::string module;
    const std::string message(FirstError(directory.path(), module).message());
    EXPECT_EQ(message.rfind(file.string() + ": ", 0), 0u) << message;
    EXPECT_THAT(message, HasSubstr(expected));
  }
}

TEST(ConfigErrorsTest, AreTheSameForEveryModule) {
  EXPECT_EQ(WithoutModule("/a/config.json: module a.b: \"bits\": expected 4"),
            "/a/config.json: \"bits\": expected 4");
  EXPECT_EQ(WithoutModule("module a.b: /a/x.safetensors: no such file"),
            "/a/x.safetensors: no such file");
  for (const char* other : {"/a/config.json: not valid JSON", "", "x: module y", "module y"}) {
    EXPECT_EQ(WithoutModule(other), other);
  }
}

TEST(ConfigErrorsTest, AByteOrderMarkIsNoError) {
  const EditableCheckpoint checkpoint(kGptq);
  const TemporaryDirectory directory;
  checkpoint.Write(directory.path());
  WriteFile(directory.path() / kConfig, "\xef\xbb\xbf" + checkpoint.config.dump());
  std::string module;
  EXPECT_TRUE(FirstError(directory.path(), module).ok());
}

// What json.dump of Python writes by default: "time_step_limit": [0.0, Infinity] in published configs.
TEST(ConfigErrorsTest, NumbersThatJsonHasNoNameForAreNumbersAndNoIntegers) {
  const std::string spelled = R"({"time_step_limit": [0.0, Infinity], "a":NaN,"b": -Infinity, "c": "\\", "NaN": "\"[Infinity]", )";
  for (const char* file : {kConfig, kQuantConfigFile}) {
    const EditableCheckpoint checkpoint(kModelOpt);
    const TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    const nlohmann::ordered_json& content = file == kConfig ? checkpoint.config : checkpoint.modelopt_config;
    WriteFile(directory.path() / file, spelled + content.dump().substr(1));
    std::string module;
    EXPECT_TRUE(FirstError(directory.path(), module).ok()) << FirstError(directory.path(), module);
  }
  const auto parsed = ParseJsonObject<Json>(spelled + "\"d\": 0E0}", JsonDialect::kPython);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)["c"], "\\");
  EXPECT_EQ((*parsed)["NaN"], "\"[Infinity]");
  for (const char* value : {"Infinity", "-Infinity", "NaN"}) {
    const TemporaryDirectory directory;
    EditableCheckpoint(kGptq).Write(directory.path());
    WriteFile(directory.path() / kConfig, absl::StrCat("{\"num_experts\": ", value, "}"));
    EXPECT_EQ(Checkpoint::Open(directory.path()).status().message(),
              absl::StrCat((directory.path() / kConfig).string(),
                           ": \"num_experts\": expected an integer from 0 to 65536, got ", value));
    EXPECT_FALSE(ParseJsonObject<Json>(absl::StrCat("{\"a\": ", value, "}")).ok()) << "strict";
  }
}

TEST(ConfigErrorsTest, SayWhatLeavesAQuantizedModuleOut) {
  struct Change {
    const char* checkpoint;
    const char* pointer;
    const char* value;
    const char* message;
  };
  for (const Change& change :
       {Change{kCtInt, "/ignore", R"(["re:.*down_proj"])", R"(("ignore" names it by "re:.*down_proj"), but it has a packed)"},
        Change{kCtInt, "/config_groups/group_0/targets", R"(["re:.*q_proj"])", R"((no target of "config_groups" names it), but)"},
        Change{kCtInt, "/config_groups", "{}", R"(("config_groups" is empty), but)"},
        Change{kGptq, "/dynamic", R"({"-:.*": {}})", R"(("dynamic" leaves it out), but it has a tensor .qweight)"}}) {
    EditableCheckpoint checkpoint(change.checkpoint);
    Damage(checkpoint.config, std::string("/quantization_config") + change.pointer, change.value);
    const TemporaryDirectory directory;
    checkpoint.Write(directory.path());
    std::string module;
    const absl::Status status = FirstError(directory.path(), module);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("excluded by its config ") + change.message));
  }
}

}  // namespace
}  // namespace gemmd

// Which module gets which scheme, against the exporters' own functions (tests/data/resolve).
#include "core/checkpoint/module_rules.h"

#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/composite.h"
#include "kernels/base/status.h"
#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {
namespace {

nlohmann::json Cases(const std::string& file) {
  return LoadJson(std::filesystem::path(GEMMD_TEST_DATA) / "resolve" / file)["cases"];
}

// Order of keys matters, so the text is parsed as a config is.
Json Ordered(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return Json::parse(stream);
}

TEST(PythonMatchTest, IsAnchoredAtTheStartOnly) {
  EXPECT_TRUE(*PythonMatch("model", "model.layers"));
  EXPECT_FALSE(*PythonMatch("layers", "model.layers"));
  EXPECT_TRUE(*PythonMatch(".*layers$", "model.layers"));
  EXPECT_TRUE(*PythonMatch("(?!.*gate).*", "model.layers"));
  EXPECT_EQ(ReasonOf(PythonMatch("(", "x").status()), "BAD_CHECKPOINT");
  EXPECT_EQ(ReasonOf(PythonMatch(std::string(600, 'a'), "x").status()), "BAD_CHECKPOINT");
  for (const char* const number : {"8888888888888888888", "88888888888888888888"}) {  // found by fuzzing
    EXPECT_EQ(ReasonOf(PythonMatch(absl::StrCat("\\", number), "x").status()), "BAD_CHECKPOINT");
    EXPECT_EQ(ReasonOf(PythonMatch(absl::StrCat("a{", number, "}"), "x").status()), "BAD_CHECKPOINT");
  }
}

TEST(PythonMatchTest, TakesPolynomialTimeForHostilePatterns) {
  const std::string text = std::string(500, 'a') + "b";
  for (const char* pattern : {"(a*)*c", "(a|aa)+c", "(.*.*.*.*)*c", "(a*)*(?=c)"}) {
    EXPECT_FALSE(*PythonMatch(pattern, text)) << pattern;
  }
  EXPECT_EQ(ReasonOf(PythonMatch("(a)\\1", text).status()), "BAD_CHECKPOINT");
}

TEST(ShellMatchTest, TakesTheWholeNameAndDotsAsText) {
  EXPECT_TRUE(ShellMatch("model.layers.0.*", "model.layers.0.mlp.gate"));
  EXPECT_TRUE(ShellMatch("*gate", "model.layers.0.mlp.gate"));
  EXPECT_TRUE(ShellMatch("lm_head*", "lm_head"));
  EXPECT_TRUE(ShellMatch("a?c*", "abc.d"));
  EXPECT_FALSE(ShellMatch("model.layers.0*", "model.layers.1"));
  EXPECT_FALSE(ShellMatch("*mlp.gate", "model.layers.0.mlp.gate_proj"));
  EXPECT_FALSE(ShellMatch("layers", "model.layers"));
  EXPECT_FALSE(ShellMatch("", "a"));
  EXPECT_FALSE(ShellMatch(std::string(100, '*') + "b", std::string(500, 'a')));
}

TEST(HuggingFaceRuleTest, SkipsWhatTransformersSkips) {
  for (const auto& each : Cases("resolve_hf_modules_to_not_convert.json")) {
    std::vector<std::string> patterns;
    if (!each["modules_to_not_convert"].is_null()) {
      patterns = each["modules_to_not_convert"].get<std::vector<std::string>>();
    }
    for (const auto& [module, converted] : each["convert"].items()) {
      const auto skipped = SkippedByPatterns(patterns, module);
      ASSERT_TRUE(skipped.ok()) << skipped.status();
      EXPECT_EQ(*skipped, !converted.get<bool>())
          << module << " " << each["modules_to_not_convert"];
    }
  }
}

TEST(GptqDynamicTest, TakesTheFirstPatternThatMatches) {
  const Json document =
      Ordered(std::filesystem::path(GEMMD_TEST_DATA) / "resolve" / "resolve_gptq_dynamic.json");
  for (const Json& each : document["cases"]) {
    const Json config = {{"bits", 4}, {"group_size", 128}, {"dynamic", each["dynamic"]}};
    for (const auto& [module, result] : each["result"].items()) {
      const auto own = ApplyDynamic(config, module);
      ASSERT_TRUE(own.ok()) << own.status();
      EXPECT_EQ(own->has_value(), result != false) << module << " " << each["dynamic"];
      if (!own->has_value()) continue;
      Json expected = config;
      if (result.is_object()) {
        for (const auto& [name, value] : result.items()) expected[name] = value;
      }
      EXPECT_EQ(**own, expected) << module;
    }
  }
}

TEST(CompressedTensorsRuleTest, PutsEveryModuleIntoTheGroupTheLibraryDoes) {
  const Json document = Ordered(std::filesystem::path(GEMMD_TEST_DATA) / "resolve" /
                                "resolve_compressed_tensors.json");
  for (const Json& each : document["cases"]) {
    for (const Json& module : each["modules"]) {
      if (module["class"] != "Linear") continue;
      const auto groups = ResolveConfigGroups(each["config"], module["name"].get<std::string>());
      ASSERT_TRUE(groups.ok()) << groups.status();
      if (module["group"].is_null()) {
        EXPECT_TRUE(groups->empty()) << module;
        continue;
      }
      ASSERT_FALSE(groups->empty()) << module;
      const Json& expected = each["config"]["config_groups"][module["group"].get<std::string>()];
      EXPECT_EQ(groups->front(), expected) << each["case"] << module;
    }
  }
}

TEST(CompressedTensorsRuleTest, MatchesAFusedNameThroughItsParts) {
  for (const auto& each : Cases("resolve_fused_names.json")) {
    const std::string fused = each["fused_name"];
    const Json config = {
        {"config_groups", {{"a", {{"targets", {each["target"].get<std::string>()}}}}}}};
    // The tensors of a layer whose projections are stored one by one.
    std::map<std::string, std::string> index;
    const std::string parent = fused.substr(0, fused.rfind('.') + 1);
    for (const char* part : {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "down_proj"}) {
      index[parent + part + ".weight"] = "model.safetensors";
    }
    const auto parts = FindParts(index, fused);
    ASSERT_TRUE(parts.ok() && parts->has_value()) << fused;
    bool matches = false;
    for (const std::string& part : (*parts)->front()) {
      matches = matches || !ResolveConfigGroups(config, part)->empty();
    }
    EXPECT_EQ(matches, each["match"].get<bool>()) << each;
  }
}

TEST(CompressedTensorsRuleTest, GivesBothGroupsWhereEnginesDisagree) {
  const Json config = Json::parse(R"({"config_groups": {
      "a": {"targets": ["re:.*down_proj"], "weights": {"num_bits": 8}},
      "b": {"targets": ["re:.*[dk].*_proj"], "weights": {"num_bits": 4}}}})");
  const auto groups = ResolveConfigGroups(config, "model.layers.0.mlp.down_proj");
  ASSERT_TRUE(groups.ok()) << groups.status();
  ASSERT_EQ(groups->size(), 2u);
  EXPECT_EQ((*groups)[0]["weights"]["num_bits"], 4);  // sorted by text, "[" comes before "d"
  EXPECT_EQ((*groups)[1]["weights"]["num_bits"], 8);  // first in the config
}

TEST(CompressedTensorsRuleTest, UnderstandsIgnoreEntriesOfWrappedModules) {
  const Json config = Json::parse(R"({"config_groups": {"a": {"targets": ["Linear"]}},
                                      "ignore": ["lm_head.linear", "re:.*gate$"]})");
  EXPECT_TRUE(ResolveConfigGroups(config, "lm_head")->empty());
  EXPECT_TRUE(ResolveConfigGroups(config, "model.mlp.gate")->empty());
  EXPECT_EQ(ResolveConfigGroups(config, "model.mlp.gate_proj")->size(), 1u);
}

TEST(CompressedTensorsRuleTest, AClassOfAnEngineNamesItsModulesOnly) {
  const auto groups = [](const char* target, const char* name) {
    const Json config = {{"config_groups", {{"a", {{"targets", {target}}}}}}};
    return ResolveConfigGroups(config, std::string("model.layers.0.x.") + name)->size();
  };
  for (const char* name : {"q_proj", "down_proj", "anything"}) {
    EXPECT_EQ(groups("Linear", name), 1u);
    EXPECT_EQ(groups("linear", name), 1u);
    EXPECT_EQ(groups("SomebodysLinear", name), 1u) << "a class of the model's own code";
    EXPECT_EQ(groups("Embedding", name), 0u);
  }
  EXPECT_EQ(groups("QKVParallelLinear", "k_proj"), 1u);
  EXPECT_EQ(groups("QKVParallelLinear", "o_proj"), 0u);
  EXPECT_EQ(groups("RowParallelLinear", "o_proj"), 1u);
  EXPECT_EQ(groups("RowParallelLinear", "gate_proj"), 0u);
  EXPECT_EQ(groups("ColumnParallelLinear", "gate_proj"), 1u) << "part of MergedColumnParallelLinear";
  EXPECT_EQ(groups("ParallelLinear", "down_proj"), 1u);
}

TEST(CompressedTensorsRuleTest, SaysWhyAModuleIsInNoGroup) {
  const Json config = Json::parse(R"({"config_groups": {"a": {"targets": ["re:.*q_proj"]}},
                                      "ignore": ["lm_head", "re:.*down_proj"]})");
  EXPECT_EQ(WhyInNoGroup(config, "a.down_proj"), "\"ignore\" names it by \"re:.*down_proj\"");
  EXPECT_EQ(WhyInNoGroup(config, "a.up_proj"), "no target of \"config_groups\" names it");
  EXPECT_EQ(WhyInNoGroup(Json::parse(R"({"config_groups": {}})"), "a"), "\"config_groups\" is empty");
}

}  // namespace
}  // namespace gemmd

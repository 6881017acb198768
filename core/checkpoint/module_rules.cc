// gcc 12 reports std::regex itself when it is inlined under sanitizers.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "core/checkpoint/module_rules.h"

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_names.h"

namespace gemmd {
namespace {

constexpr char kRegexPrefix[] = "re:";
// Patterns and module names of real models are far shorter.
constexpr size_t kLongestText = 512;

#ifdef __GLIBCXX__
// Matching in polynomial time: with backtracking a hostile pattern takes exponential time, and a recursion
// per character. The price is that back-references are refused.
constexpr auto kSyntax = std::regex_constants::ECMAScript | std::regex_constants::__polynomial;
#else
constexpr auto kSyntax = std::regex_constants::ECMAScript;
#endif

// std::regex computes the number of a repetition or back-reference without a look at its length.
bool HasLongNumber(absl::string_view pattern) {
  constexpr int kMostDigits = 9;
  int digits = 0;
  for (const char c : pattern) {
    digits = absl::ascii_isdigit(static_cast<unsigned char>(c)) ? digits + 1 : 0;
    if (digits > kMostDigits) return true;
  }
  return false;
}

// vLLM's linears by class, in lower case, and the modules that are of it by the last part of their names. A class name of a
// config counts where it is contained in one of the module's.
struct EngineClass {
  const char* name;
  std::set<std::string> modules;
};

const std::vector<EngineClass>& EngineClasses() {
  static const auto* const kClasses = new std::vector<EngineClass>{
      {"qkvparallellinear", {"q_proj", "k_proj", "v_proj", "qkv_proj", "query", "key", "value", "query_key_value"}},
      {"mergedcolumnparallellinear", {"gate_proj", "up_proj", "gate_up_proj", "w1", "w3", "w13"}},
      {"columnparallellinear", {"q_b_proj", "kv_b_proj", "fc1", "c_fc", "dense_h_to_4h"}},
      {"rowparallellinear", {"o_proj", "out_proj", "down_proj", "w2", "fc2", "dense", "dense_4h_to_h"}},
      {"replicatedlinear", {"q_a_proj", "kv_a_proj_with_mqa", "fused_qkv_a_proj", "gate"}},
      {"mergedreplicatedlinear", {"q_a_proj", "kv_a_proj_with_mqa", "fused_qkv_a_proj"}},
  };
  return *kClasses;
}

// Whether `target` is the name of a class that `module` may be of. All modules with weights that we read are of "Linear"; a
// class of an engine has some of them, one that nobody here knows may have any.
bool MayBeOfClass(const std::string& target, const std::string& module) {
  const std::string name = absl::AsciiStrToLower(target);
  if (name.find('.') != std::string::npos || !absl::StrContains(name, "linear")) return false;
  if (name == "linear") return true;
  const std::string last = SplitModule(module).second;
  bool is_known = false;
  for (const EngineClass& engine : EngineClasses()) {
    if (!absl::StrContains(engine.name, name)) continue;
    if (engine.modules.count(last) > 0) return true;
    is_known = true;
  }
  return !is_known;
}

absl::StatusOr<bool> IgnoreMatches(const std::string& entry, const std::string& module) {
  if (absl::StartsWith(entry, kRegexPrefix)) {
    return PythonMatch(entry.substr(sizeof(kRegexPrefix) - 1), module);
  }
  // Some exporters name the inner linear of a wrapped module.
  return entry == module || entry == module + ".linear";
}

// The first entry of "ignore" that names `module`.
absl::StatusOr<std::optional<std::string>> IgnoreEntryOf(const Json& config, const std::string& module) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<std::string> ignore, StringsField(config, {"ignore"}));
  for (const std::string& entry : ignore) {
    const auto ignored = IgnoreMatches(entry, module);
    if (!ignored.ok()) return Annotate(ignored.status(), "\"ignore\"");
    if (*ignored) return entry;
  }
  return std::nullopt;
}

struct Target {
  std::string text;
  const Json* group;
};

absl::StatusOr<std::vector<Target>> TargetsOf(const Json& config) {
  std::vector<Target> targets;
  GEMMD_ASSIGN_OR_RETURN(const Json* const groups, ObjectField(config, {"config_groups"}));
  if (groups == nullptr) return targets;  // of a config that quantizes the key-value cache alone
  for (const auto& [name, group] : groups->items()) {
    if (!group.is_object())
      return WrongField(absl::StrCat("config_groups.", name), "an object", group);
    const auto texts = StringsField(group, {"targets"});
    if (!texts.ok()) return Annotate(texts.status(), absl::StrCat("config_groups.", name));
    for (const std::string& text : *texts) {
      // A target of two groups belongs to the last one.
      const auto same = std::find_if(targets.begin(), targets.end(),
                                     [&text](const Target& target) { return target.text == text; });
      if (same != targets.end()) targets.erase(same);
      targets.push_back({text, &group});
    }
  }
  return targets;
}

// Whether two groups differ in nothing but their targets.
bool SameScheme(Json a, Json b) {
  a.erase("targets");
  b.erase("targets");
  return a == b;
}

absl::StatusOr<bool> NamesModule(const Target& target, const std::string& module) {
  if (absl::StartsWith(target.text, kRegexPrefix)) {
    return PythonMatch(target.text.substr(sizeof(kRegexPrefix) - 1), module);
  }
  return target.text == module;
}

// The first of `targets` that names `module`, or its class, or nullptr.
absl::StatusOr<const Json*> FirstGroup(const std::vector<Target>& targets,
                                       const std::string& module) {
  for (const Target& target : targets) {
    const auto matches = NamesModule(target, module);
    if (!matches.ok()) return Annotate(matches.status(), "\"targets\"");
    if (*matches) return target.group;
  }
  for (const Target& target : targets) {
    if (MayBeOfClass(target.text, module)) return target.group;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<bool> PythonMatch(const std::string& pattern, const std::string& text) {
  if (pattern.size() > kLongestText || text.size() > kLongestText) {
    return BadCheckpoint(absl::StrCat("pattern or module name longer than ", kLongestText));
  }
  if (HasLongNumber(pattern)) {
    return BadCheckpoint(absl::StrCat("pattern \"", pattern, "\" has a number of more than 9 digits"));
  }
  try {
    const std::regex regex(pattern, kSyntax);
    return std::regex_search(text, regex, std::regex_constants::match_continuous);
  } catch (const std::regex_error&) {
    return BadCheckpoint(absl::StrCat("pattern \"", pattern, "\" is not understood"));
  }
}

absl::StatusOr<bool> SkippedByPatterns(const std::vector<std::string>& patterns,
                                       const std::string& module) {
  for (const std::string& pattern : patterns) {
    if (absl::EndsWith(module, pattern)) return true;
    const auto matches = PythonMatch(pattern, module);
    if (!matches.ok()) return Annotate(matches.status(), "\"modules_to_not_convert\"");
    if (*matches) return true;
  }
  return false;
}

bool ShellMatch(absl::string_view pattern, absl::string_view text) {
  size_t p = 0;
  size_t t = 0;
  size_t star = absl::string_view::npos;  // the last '*' seen, and where its text may end
  size_t resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

absl::StatusOr<std::optional<Json>> ApplyDynamic(const Json& config, const std::string& module) {
  GEMMD_ASSIGN_OR_RETURN(const Json* const dynamic, ObjectField(config, {"dynamic"}));
  if (dynamic == nullptr) return config;
  for (const auto& [key, overrides] : dynamic->items()) {
    absl::string_view pattern = key;
    const bool negative = absl::ConsumePrefix(&pattern, "-:");
    absl::ConsumePrefix(&pattern, "+:");
    const auto matches = PythonMatch(std::string(pattern), module);
    if (!matches.ok()) return Annotate(matches.status(), "\"dynamic\"");
    if (!*matches) continue;
    if (negative) return std::nullopt;
    if (!overrides.is_object())
      return WrongField(absl::StrCat("dynamic.", key), "an object", overrides);
    Json merged = config;
    for (const auto& [name, value] : overrides.items()) merged[name] = value;
    return merged;
  }
  return config;
}

std::string WhyInNoGroup(const Json& config, const std::string& module) {
  const auto entry = IgnoreEntryOf(config, module);
  if (entry.ok() && *entry) return absl::StrCat("\"ignore\" names it by \"", **entry, "\"");
  const Json* const groups = FindField(config, {"config_groups"});
  if (groups != nullptr && groups->empty()) return "\"config_groups\" is empty";
  return "no target of \"config_groups\" names it";
}

absl::StatusOr<std::vector<Json>> ResolveConfigGroups(const Json& config,
                                                      const std::string& module) {
  GEMMD_ASSIGN_OR_RETURN(const std::optional<std::string> ignored, IgnoreEntryOf(config, module));
  if (ignored) return std::vector<Json>{};
  GEMMD_ASSIGN_OR_RETURN(const std::vector<Target> in_config_order, TargetsOf(config));
  // The library: exact names first, then regexes sorted by their text.
  std::vector<Target> sorted = in_config_order;
  std::sort(sorted.begin(), sorted.end(), [](const Target& a, const Target& b) {
    return std::pair(absl::StartsWith(a.text, kRegexPrefix), a.text) <
           std::pair(absl::StartsWith(b.text, kRegexPrefix), b.text);
  });
  GEMMD_ASSIGN_OR_RETURN(const Json* const by_library, FirstGroup(sorted, module));
  GEMMD_ASSIGN_OR_RETURN(const Json* const by_vllm, FirstGroup(in_config_order, module));
  std::vector<Json> groups;
  if (by_library != nullptr) groups.push_back(*by_library);
  if (by_vllm != by_library && !SameScheme(*by_vllm, *by_library)) groups.push_back(*by_vllm);
  return groups;
}

absl::StatusOr<std::string> RulesOf(const Json& config, const std::string& module) {
  std::string rules;
  if (!config.is_object()) return rules;
  const auto named = config.find("quant_method");
  const Json method = named == config.end() ? Json() : *named;
  if (method == "gptq") {
    GEMMD_ASSIGN_OR_RETURN(const std::optional<Json> rule, ApplyDynamic(config, module));
    if (rule) rules = rule->dump();
  } else if (method == "compressed-tensors") {
    GEMMD_ASSIGN_OR_RETURN(const std::vector<Json> groups, ResolveConfigGroups(config, module));
    for (const Json& group : groups) absl::StrAppend(&rules, group.dump(), "\n");
  }
  // Entries for single modules: whoever has such a config reads them all.
  for (const char* const field : {"extra_config", "layer_quant_config", "quantized_layers"}) {
    const auto entries = config.find(field);
    if (entries != config.end() && !entries->empty()) absl::StrAppend(&rules, module, "\n");
  }
  return rules;
}

}  // namespace gemmd
